"""python -m kernelwright: the command, with the words that follow. pip's script `kernelwright` comes here too."""
import sys

from ._command import hand_over
from ._door import fast_calls
from ._errors import MissingError

MISSING = 3  # the command's own exit code for a machine that lacks something


def main():
    try:
        hand_over(sys.argv[1:], fast_calls())
    except (MissingError, OSError) as error:
        print(f"kernelwright: {error}", file=sys.stderr)
        sys.exit(MISSING)


if __name__ == "__main__":
    main()
