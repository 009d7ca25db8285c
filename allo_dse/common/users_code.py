"""Functions that a study brings along: what goes wrong in them is the study's fault, not a design's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb

from .errors import StudyError

_OURS = f"{Path(__file__).resolve().parents[1]}/"


@contextmanager
def of_the_study(name: str, hint: str) -> Iterator[None]:
    """Errors say whose they are, and where in the user's code.

    Args:
        name: what of the study is asked.

    Raises:
        StudyError: for any.
    """
    try:
        yield
    except Exception as error:
        places = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
        place = next((f" ({file}:{line})" for file, line in places if not file.startswith(_OURS)), "")
        raise StudyError(f"{name} of the study: {type(error).__name__}: {error}{place}", hint=hint) from error
