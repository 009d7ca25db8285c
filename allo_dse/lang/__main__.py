"""`python -m allo_dse.lang PROGRAM.py [ARGUMENT ...]` runs a Python program written for Allo, unchanged.

`python -m allo_dse.lang -m MODULE [ARGUMENT ...]` runs a module in the same way: `-m pytest tests/dataflow`.

Before them may stand `--strict` (tokens that are left in a stream are an error) and `--check=run` (indices that leave
their dimension are checked when the program runs; see `allo_dse.lang.rules`).
"""

from __future__ import annotations

import itertools
import runpy
import sys
import traceback
from pathlib import Path
from types import FunctionType

from allo_dse.common.errors import AlloDseError, ProgramError

from .install import install
from .rules import rules

_USAGE = f"{__doc__}\nWhere Allo is installed, it is used; elsewhere `import allo` resolves to allo-dse."


def main(arguments: list[str]) -> int:
    """Run the program and return its exit code.

    The code is 2 when the program is not legal, with the error on standard error.
    """
    if arguments[:1] in (["-h"], ["--help"]):
        print(_USAGE)
        return 0
    options = list(itertools.takewhile(lambda argument: argument.startswith("--"), arguments))
    arguments = arguments[len(options) :]
    unknown = [option for option in options if option != "--strict" and not option.startswith("--check=")]
    if not arguments or arguments == ["-m"] or unknown:
        print(*(f"unknown option {option}" for option in unknown), _USAGE, sep="\n", file=sys.stderr)
        return 2
    try:
        checks = [option.removeprefix("--check=") for option in options if option != "--strict"]
        with rules(strict="--strict" in options, check=checks[-1] if checks else None):
            return _run(arguments)
    except AlloDseError as error:
        print(error, file=sys.stderr)
        return 2


def _run(arguments: list[str]) -> int:
    as_module = arguments[0] == "-m"
    program = Path(arguments[0])
    if not as_module and not program.is_file():
        print(f"there is no program {program}", file=sys.stderr)
        return 2
    install()
    sys.argv = arguments[1:] if as_module else arguments
    if as_module:
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        return 0
    sys.path[0] = str(program.resolve().parent)
    try:
        runpy.run_path(str(program), run_name="__main__")
    except AttributeError as error:
        if not isinstance(error.obj, FunctionType):
            raise
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        raise ProgramError(
            f"`{error.obj.__name__}` is a function: it has no `{error.name}`",
            hint=f"arrays are named by its schedule: s.{error.name}, after s = allo.customize({error.obj.__name__})",
            file=frame.f_code.co_filename, line=line,
        ) from None  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
