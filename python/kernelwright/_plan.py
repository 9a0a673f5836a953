"""kernelwright.plan(): a model's config.json in, the problems of one rank out, through the command."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from ._errors import ConfigError, InternalError, MissingError

NAME = "kernelwright"
BY_EXIT_CODE = {2: ConfigError, 3: MissingError}


class Plan(dict):
    """A plan as `kernelwright plan` writes it (docs/models.md): "name", "model", "serving", "problems" and "missing"."""

    def configs(self):
        """The config of each problem, by its name, as Engine.prepare() takes it."""
        return {problem["name"]: {"version": 1, **{key: problem[key] for key in ("kind", "name", "problem")}}
                for problem in self["problems"]}


def commands():
    """Where the command is searched, best first, if KERNELWRIGHT_COMMAND is not set: in the package, beside Python, in
    the bin folder of an installed tree, in the build folders of the source tree, in PATH."""
    package = pathlib.Path(__file__).resolve().parent
    yield package / "bin" / NAME
    yield pathlib.Path(sys.executable).parent / NAME
    yield from (folder / "bin" / NAME for folder in package.parents[1:4])
    root = package.parent.parent
    built = [path for pattern in ("build/cli", "build/*/cli", "out/*/cli") for folder in root.glob(pattern)
             for path in [folder / NAME] if path.exists()]
    yield from sorted(built, key=lambda path: path.stat().st_mtime, reverse=True)
    found = shutil.which(NAME)
    if found:
        yield pathlib.Path(found)


def find_command():
    """The command's path. If KERNELWRIGHT_COMMAND names it, no other place is searched."""
    named = os.environ.get("KERNELWRIGHT_COMMAND")
    for path in [pathlib.Path(named)] if named else commands():
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    if named:
        raise MissingError(f"KERNELWRIGHT_COMMAND is {named}, which is no program")
    raise MissingError(f"the command {NAME} is neither beside the package nor in PATH; build the target kernelwright_cli, "
                       "or set KERNELWRIGHT_COMMAND to it")


def _options(given):
    for option, value in given.items():
        if value is None:
            continue
        for one in value if isinstance(value, (list, tuple)) else [value]:
            yield from ("--" + option, str(one))


def plan(config, *, tp=1, ep=1, kv=None, max_seqs=256, max_tokens=8192, server="vllm", page_size=None, archs=None,
         name=None):
    """The Plan of a model for one rank. config: a config.json or its folder, a dict of it, or a configuration object of
    transformers. The options are those of `kernelwright plan` (docs/models.md)."""
    if hasattr(config, "to_json_string"):
        config = json.loads(config.to_json_string(use_diff=False))
    options = list(_options({"tp": tp, "ep": ep, "kv": kv, "max-seqs": max_seqs, "max-tokens": max_tokens, "server": server,
                             "page-size": page_size, "arch": archs, "name": name}))
    with tempfile.TemporaryDirectory() as folder:
        path = config
        if isinstance(config, dict):
            path = os.path.join(folder, "config.json")
            pathlib.Path(path).write_text(json.dumps(config), encoding="utf-8")
        done = subprocess.run([find_command(), "plan", os.fspath(path), "--json", *options], capture_output=True, text=True,
                              encoding="utf-8", check=False)
        if done.returncode != 0:
            text = done.stderr.strip().removeprefix(NAME + ": ")
            error = BY_EXIT_CODE.get(done.returncode, InternalError)
            raise error(text.replace(folder + os.sep, "") or f"the command ended with {done.returncode}")
    return Plan(json.loads(done.stdout))
