"""Transport of a study to worker processes."""

from __future__ import annotations

import io
import linecache
import os
import pickle
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

from msgspec import Struct

from allo_dse import lang
from allo_dse.common.errors import StudyError

from .spec import StudySpec


class PickledStudy(Struct, frozen=True):
    """A study as bytes, with what another process needs to unpickle it and to compile its programs.

    Attributes:
        data: the pickled study, or the pickled function that loads it from its file.
        path: folders from which the study's process imports modules.
        language: whether `import allo` resolves to this package in that process.
        sources: texts of scripts and notebook cells, by the file name in the code of their functions.
    """

    data: bytes
    path: tuple[str, ...] = ()
    language: bool = False
    sources: dict[str, str] = {}

    @staticmethod
    def of(study: StudySpec) -> PickledStudy:
        """Pickle a study. Functions of `__main__` are pickled by value, those of modules by name.

        Raises:
            StudyError: if it holds something that cannot be pickled.
        """
        if study.reload is not None:
            return PickledStudy(pickle.dumps(study.reload))
        data, files = _pickled(study)
        sources = {file: text for file in sorted(files) if (text := "".join(linecache.getlines(file)))}
        path = tuple(dict.fromkeys(os.path.abspath(folder) for folder in sys.path))
        return PickledStudy(data, path, lang.is_installed(), sources)

    def load(self) -> StudySpec:
        """The study, in this process."""
        sys.path.extend(folder for folder in self.path if folder not in sys.path)
        if self.language:
            lang.install()
        for file, text in self.sources.items():  # without a time of change, `linecache` does not look for the file
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        made: StudySpec | Callable[[], StudySpec] = pickle.loads(self.data)
        return made if isinstance(made, StudySpec) else made()


def _pickled(study: StudySpec) -> tuple[bytes, set[str]]:
    """Pickle a study by value; return the files of its functions as well."""
    from ray import cloudpickle  # imported late: Ray is slow to import

    from .function_text import annotation_names  # imported late: it imports the front end

    files: set[str] = set()

    class Pickler(cloudpickle.CloudPickler):
        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, CodeType):
                files.add(obj.co_filename)
            return super().reducer_override(obj)  # type: ignore[no-untyped-call]

        def _dynamic_function_reduce(self, func: Any) -> Any:
            reduced = super()._dynamic_function_reduce(func)  # type: ignore[no-untyped-call]
            known = reduced[2][1]["__globals__"]
            for name in annotation_names(func):
                if name in func.__globals__:
                    known[name] = func.__globals__[name]
            return reduced

    buffer = io.BytesIO()
    try:
        Pickler(buffer).dump(study)  # type: ignore[no-untyped-call]
    except Exception as error:  # of any class, by objects of the user
        raise StudyError(
            f"study {study.name!r} cannot be sent to another process: {error}",
            hint="a function of the study uses an object that cannot be pickled; create it inside the function",
        ) from error
    return buffer.getvalue(), files
