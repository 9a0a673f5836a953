"""The command `kernelwright`: where it lies, and how Python becomes it."""
import json
import os
import pathlib
import platform
import shutil
import sys

from ._errors import MissingError

NAME = "kernelwright"


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


def _is_script(path):
    """Whether a file is run by an interpreter: pip's `kernelwright` is, and it would call this package again."""
    with open(path, "rb") as file:
        return file.read(2) == b"#!"


def find_command():
    """The command's path. If KERNELWRIGHT_COMMAND names it, no other place is searched."""
    named = os.environ.get("KERNELWRIGHT_COMMAND")
    for path in [pathlib.Path(named)] if named else commands():
        if path.is_file() and os.access(path, os.X_OK) and (named or not _is_script(path)):
            return str(path)
    if named:
        raise MissingError(f"KERNELWRIGHT_COMMAND is {named}, which is no program")
    raise MissingError(f"the command {NAME} is neither beside the package nor in PATH; build the target kernelwright_cli, "
                       "or set KERNELWRIGHT_COMMAND to it")


def hand_over(arguments, calls):
    """Becomes the command. `calls`: what fast_calls() says, for `doctor`."""
    path = find_command()
    os.environ["KERNELWRIGHT_PYTHON_CALLS"] = json.dumps({"python": platform.python_version(), **calls})
    sys.stdout.flush()
    os.execv(path, [NAME, *arguments])
