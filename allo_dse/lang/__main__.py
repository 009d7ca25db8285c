"""`python -m allo_dse.lang PROGRAM.py [ARGUMENT ...]` runs a Python program written for Allo, unchanged.

`python -m allo_dse.lang -m MODULE [ARGUMENT ...]` runs a module in the same way: `-m pytest tests/dataflow`.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from allo_dse.errors import AlloDseError

from .install import install

_USAGE = f"{__doc__}\nWhere Allo is installed, it is used; elsewhere `import allo` resolves to allo-dse."


def main(arguments: list[str]) -> int:
    """Run the program; returns its exit code: 2 when it is not a legal one, with the error on standard error."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments == ["-m"]:
        print(_USAGE, file=sys.stdout if "-m" not in arguments and arguments else sys.stderr)
        return 0 if "-m" not in arguments and arguments else 2
    as_module = arguments[0] == "-m"
    program = Path(arguments[0])
    if not as_module and not program.is_file():
        print(f"there is no program {program}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments[1:] if as_module else arguments
    try:
        if as_module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(program.resolve().parent)
            runpy.run_path(str(program), run_name="__main__")
    except AlloDseError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
