#!/usr/bin/env python3
"""Which PTX do packages carry, and what of it does the emulator take?

    scripts/ptx_census.py --command build/cli/kernelwright [--cuobjdump FILE] [--markdown FILE] [--json FILE]
                          [--refused FILE] WHEEL_OR_FOLDER...

It looks for PTX in three kinds of places:
  - files that hold PTX, by their name or their first lines;
  - fat binaries inside shared objects, if there is cuobjdump;
  - inline assembly in headers and Python sources: the words of string literals that look like opcodes.

For each instruction form, which is an opcode with its modifiers, it asks the emulator by name: an entry that holds the
opcode alone is refused as "not modelled" or for its lack of operands. For PTX of whole modules it also asks of each
entry whether the emulator can run it. It downloads nothing.
"""
import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

SOURCES = {".h", ".hpp", ".cuh", ".cu", ".inl", ".py", ".jinja", ".cpp", ".cc"}
LIBRARY = re.compile(r"\.(so(\.[\d.]+)?|fatbin|cubin)$")
LARGEST_SOURCE = 4 << 20
# The roots of PTX opcodes (PTX ISA "Instruction Set"). A word of a string that begins with another is no instruction.
ROOTS = set("""abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx
call clz clusterlaunchcontrol cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma
fns getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar
min mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret
rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix sub subc suld suq
sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2
vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma
xor""".split())
ALONE = {"ret", "exit", "trap", "brkpt", "bra", "call"}  # opcodes that need no modifier
STATEMENT = re.compile(r"(?:^|[;{}:])\s*(?:@!?%?[\w$]+\s+)?([a-z][a-z0-9]*(?:\.[a-zA-Z0-9_:]+)*)(?=[\s;])", re.M)
LITERAL = re.compile(r'R"(\w*)\((.*?)\)\1"|"""(.*?)"""|"((?:[^"\\\n]|\\.)*)"', re.S)
# A statement of a literal. An opcode that is not followed by a space or a semicolon is a piece that a program puts
# together: it has holes.
STATEMENT_OF_SOURCE = re.compile(r"(?:^|[;{}\n])\s*(?:@!?[%\w]+\s+)?([a-z][a-z0-9]*[a-zA-Z0-9_:.{}#$%+]*)([\s;])?")


def is_opcode(word):
    root, dot, _ = word.partition(".")
    return root in ROOTS and (bool(dot) or word in ALONE)


def forms_of_ptx(text):
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    return collections.Counter(word for word in STATEMENT.findall(text) if is_opcode(word))


def forms_of_source(text):
    """Opcodes in string literals, and how many words looked like opcodes but have holes."""
    found, holes = collections.Counter(), 0
    if not re.search(r"\basm\b|inline_asm|inline_ptx|asm_call|llvm\.inline|ptx", text):
        return found, holes
    # Neighbouring literals are one string.
    for match in LITERAL.finditer(re.sub(r'(?<=[^"(,=\s\\])"\s+"(?=[^"\s])|(?<=\s)"\s+"(?=[^"])', "", text)):
        literal = next((group for group in match.groups()[1:] if group is not None), "")
        literal = literal.replace("\\n", "\n").replace("\\t", "\t")
        for statement in STATEMENT_OF_SOURCE.finditer(literal):
            word, end = statement.groups()
            if not is_opcode(word) or "." not in word:
                continue
            if end and not re.search(r"[{}#$%+]|^$", word):
                found[word] += 1
            else:
                holes += 1
    return found, holes


class Census:
    def __init__(self, command, cuobjdump):
        self.command, self.cuobjdump = command, cuobjdump
        self.counts = collections.defaultdict(collections.Counter)  # form -> package -> how often
        self.packages = {}

    def add(self, path):
        path = pathlib.Path(path)
        parts = path.name.split("-")
        name = f"{parts[0]} {parts[1]}" if path.suffix == ".whl" else path.name
        about = self.packages[name] = collections.Counter()
        modules = []
        with tempfile.TemporaryDirectory() as folder:
            for member, read in self.members(path):
                if LIBRARY.search(member):
                    modules += self.modules_of_library(pathlib.Path(folder), member, read)
                elif member.endswith(".ptx"):
                    modules.append(read().decode(errors="replace"))
                elif pathlib.Path(member).suffix in SOURCES:
                    data = read()
                    if len(data) > LARGEST_SOURCE:
                        continue
                    found, holes = forms_of_source(data.decode(errors="replace"))
                    about["sources"] += bool(found)
                    about["holes"] += holes
                    for form, count in found.items():
                        self.counts[form][name] += count
                        about["inline"] += count
            modules = [module for module in modules if ".version" in module and ".target" in module]
            for module in modules:
                for form, count in forms_of_ptx(module).items():
                    self.counts[form][name] += count
                    about["instructions"] += count
            about["modules"] = len(modules)
            self.ask_entries(modules, name)

    @staticmethod
    def members(path):
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file():
                    yield str(file.relative_to(path)), file.read_bytes
            return
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                yield member, lambda member=member: archive.read(member)

    def modules_of_library(self, folder, member, read):
        if not self.cuobjdump:
            return []
        file = folder / pathlib.Path(member).name
        file.write_bytes(read())
        if b".nv_fatbin" not in file.read_bytes() and not member.endswith((".fatbin", ".cubin")):
            file.unlink()
            return []
        made = subprocess.run([self.cuobjdump, "-ptx", str(file)], capture_output=True, text=True, errors="replace",
                              check=False).stdout
        file.unlink()
        return [".version" + module.split("\nFatbin ")[0] for module in re.split(r"(?m)^\.version", made)[1:]]

    def ask(self, text):
        """The refusals of a module's entries by their names, or the refusal of all of it."""
        with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
            file.write(text)
            file.flush()
            run = subprocess.run([self.command, "emulate", file.name, "--check", "--json"], capture_output=True,
                                 text=True, check=False)
        if run.returncode not in (0, 1) or not run.stdout.startswith("{"):
            return re.sub(r"\S*/tmp\w*\.ptx:? ?", "", (run.stderr or run.stdout).strip().splitlines()[-1])
        return {entry["entry"]: entry["refusal"] for entry in json.loads(run.stdout)["entries"]}

    def ask_entries(self, modules, name):
        about = self.packages[name]
        about["refusals"] = collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for module, answer in zip(modules, pool.map(self.ask, modules)):
                if isinstance(answer, str):
                    count = len(re.findall(r"\.entry\b", module))
                    about["entries"] += count
                    about["refusals"]["module: " + generic(answer)] += count
                    continue
                about["entries"] += len(answer)
                for refusal in answer.values():
                    about["run"] += not refusal
                    if refusal:
                        about["refusals"][generic(refusal)] += 1

    def ask_forms(self):
        """What the emulator says of each form: "" if it takes it. A form that lacks operands is one that it knows."""
        forms = sorted(self.counts)
        entries = "".join(f".visible .entry f{at}()\n{{\n{form};\nret;\n}}\n" for at, form in enumerate(forms))
        answer = self.ask(f".version 9.0\n.target sm_100a\n.address_size 64\n{entries}")
        if isinstance(answer, str):
            sys.exit(f"ptx_census.py: the command refused the forms: {answer}")
        said = {}
        for at, form in enumerate(forms):
            refusal = generic(answer[f"f{at}"])
            said[form] = refusal if "not modelled" in refusal else ""
        return said


def generic(refusal):
    """Without the place, so that equal reasons count together."""
    return re.sub(r"^line \d+: |in the entry `[^`]*`: |, the function of line \d+", "", refusal)


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join("---" if at == 0 else "---:" for at in range(len(header)))
             + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def group_of(form):
    """The first words of a form: shapes and types vary within a group."""
    parts = re.sub(r"\bm\d+n\d+k\d+\b", "mMnNkK", form).split(".")
    words = {"cp": 4, "wgmma": 3, "mma": 3, "ldmatrix": 3, "stmatrix": 3, "tcgen05": 3, "cvt": 3}
    return ".".join(parts[:words.get(parts[0], 2)])


def groups_of(census, refused):
    """Rows of groups of refused forms, the most frequent first."""
    groups = collections.defaultdict(lambda: [0, 0, set(), ""])
    for form in refused:
        row, counts = groups[group_of(form)], census.counts[form]
        row[0] += 1
        row[1] += sum(counts.values())
        row[2] |= {name.split(" ")[0] for name in counts}
        row[3] = row[3] or form
    return [[f"`{group}`", forms, count, ", ".join(sorted(packages)), f"`{example}`"]
            for group, (forms, count, packages, example) in
            sorted(groups.items(), key=lambda item: (-item[1][1], item[0]))]


def markdown(census, said):
    total = {form: sum(counts.values()) for form, counts in census.counts.items()}
    refused = sorted((form for form in total if said[form]), key=lambda form: (-total[form], form))
    known, used = len(total) - len(refused), sum(total.values())
    left = sum(total[form] for form in refused)
    text = (f"{len(total)} forms in {used} instructions: the emulator takes {known} forms, which are "
            f"{100 * (used - left) / max(used, 1):.2f} % of the instructions.\n\n## Packages\n\n")
    text += table(["package", "modules", "entries", "that run", "instructions", "of inline assembly", "with holes"],
                  [[name, about["modules"], about["entries"], about["run"], about["instructions"], about["inline"],
                    about["holes"]] for name, about in sorted(census.packages.items())])
    families = collections.defaultdict(lambda: [0, 0, 0, 0])
    for form, count in total.items():
        row = families[form.partition(".")[0]]
        row[0] += 1
        row[1] += count
        row[2] += bool(said[form])
        row[3] += count if said[form] else 0
    text += "\n## Forms by family\n\n" + table(
        ["family", "forms", "instructions", "refused forms", "refused instructions"],
        [[f"`{name}`", *row] for name, row in sorted(families.items(), key=lambda item: -item[1][1])])
    text += "\n## Refused forms\n\n" + table(
        ["forms that begin with", "forms", "instructions", "packages", "one of them"], groups_of(census, refused))
    refusals = collections.Counter()
    for about in census.packages.values():
        refusals.update(about["refusals"])
    text += "\n## First refusals of entries\n\n" + table(
        ["refusal", "entries"], [[why.replace("|", "\\|"), count] for why, count in refusals.most_common(20)])
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", required=True, help="the program kernelwright")
    parser.add_argument("--cuobjdump", help="CUDA's program; without it, shared objects are passed over")
    for name in ("markdown", "json", "refused"):
        parser.add_argument(f"--{name}", type=pathlib.Path)
    parser.add_argument("packages", nargs="+")
    arguments = parser.parse_args()
    census = Census(arguments.command, arguments.cuobjdump)
    for package in arguments.packages:
        print(package, flush=True)
        census.add(package)
    said = census.ask_forms()
    sums = collections.Counter()
    for about in census.packages.values():
        sums.update(entries=about["entries"], run=about["run"])
    refused = sum(map(bool, said.values()))
    print(f"{sums['run']} of {sums['entries']} entries run; {refused} of {len(said)} forms are refused")
    if arguments.markdown:
        arguments.markdown.write_text(markdown(census, said))
    if arguments.json:
        arguments.json.write_text(json.dumps({form: {"refusal": said[form], "counts": dict(counts)}
                                              for form, counts in sorted(census.counts.items())}, indent=1))
    if arguments.refused:
        total = {form: sum(counts.values()) for form, counts in census.counts.items() if said[form]}
        ranked = sorted(total, key=lambda form: (-total[form], form))
        arguments.refused.write_text("".join(f"{total[form]:8} {form}\n" for form in ranked))
    return 0


if __name__ == "__main__":
    sys.exit(main())
