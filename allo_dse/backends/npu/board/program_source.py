"""The part of a study file that a program needs, cut out so that it runs without this package."""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import tokenize
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.lang.region import Region
from allo_dse.lang.types import DType

PACKAGE = "allo_dse"
_PLAIN = (bool, int, float, str, type(None))


class NotCut(AlloDseError):
    """Source that cannot be cut out of its file."""


def program_files(
    source: Callable[..., object] | None,
    params: Mapping[str, object],
    reference: Callable[..., object] | None,
    depths: Mapping[str, int],
) -> dict[str, str]:
    """Return `program.py`, which defines `region()` and, if possible, `reference(...)`; and the modules it imports.

    Statements of the file that neither needs are left out, with what only they import.

    Args:
        source: the region, or the function that returns it for `params`.
        depths: of arrays of streams that are declared anew, by name.

    Raises:
        NotCut: when the program is not defined at the top of a file, or needs this package, or a stream is not found.
    """
    function = source.function if isinstance(source, Region) else source
    file, name = _place(function)
    arguments, extra = _arguments(params, function) if not isinstance(source, Region) else ("", [])
    call = f"{name}({arguments})" if not isinstance(source, Region) else name
    cut = _Cut(file)
    cut.deepen(name, depths)
    body = cut.text({name, *(word for word, line in extra if not line)})
    body += "".join(dict.fromkeys(line for _, line in extra))
    with contextlib.suppress(NotCut):
        body += _reference(reference, cut)
    deeper = f"; as deep as the mapping needs: {', '.join(depths)}" if depths else ""
    head = f'"""The program of a design at its parameters, cut out of {file.name}{deeper}."""\n\n'
    return {**cut.modules, "program.py": f"{head}{body}\n\ndef region():\n    return {call}\n"}


def _place(function: object, what: str = "the program") -> tuple[Path, str]:
    """The file and the name of a function that is defined at the top of a file."""
    if not isinstance(function, FunctionType) or function.__qualname__ != function.__name__:
        raise NotCut(f"{what} is not a function at the top of a file")
    if function.__name__ == "<lambda>":
        raise NotCut(f"{what} is a lambda")
    file = Path(inspect.getfile(function))
    if not file.is_file():
        raise NotCut(f"the file of {what}, {file}, cannot be read")
    return file, function.__name__


def _arguments(params: Mapping[str, object], function: object) -> tuple[str, list[tuple[str, str]]]:
    """The call's arguments as text, and the names they need, each with the line that defines it (empty: the file's)."""
    scope: Mapping[str, object] = getattr(function, "__globals__", {})
    texts, extra = [], []
    for name, value in params.items():
        if isinstance(value, _PLAIN):
            texts.append(f"{name}={_literal(value)}")
        elif isinstance(value, DType):
            texts.append(f"{name}={value.name}")
            known_type = scope.get(value.name) is value
            extra.append((value.name, "" if known_type else f"from allo.ir.types import {value.name}\n"))
        else:
            known = next((word for word, other in scope.items() if other is value), None)
            if known is None:
                raise NotCut(f"the program's parameter {name} is {value!r}, which has no name in its file")
            texts.append(f"{name}={known}")
            extra.append((known, ""))
    return ", ".join(texts), extra


def _literal(value: object) -> str:
    """The source of a plain value, without NumPy; infinities and what is no number have no name of their own."""
    text = repr(float(value)) if isinstance(value, float) else repr(value)
    return text if not isinstance(value, float) or math.isfinite(value) else f"float({text!r})"


def function_source(function: Callable[..., object]) -> str:
    """A module that defines `function`, cut out of the file at whose top it is defined.

    Args:
        function: that, or a `functools.partial` of it with plain keywords.

    Raises:
        NotCut: when it is defined elsewhere, or needs this package.
    """
    whole = function.func if isinstance(function, partial) else function
    given = function.keywords if isinstance(function, partial) else {}
    file, name = _place(whole, "what it computes")
    if not all(isinstance(value, _PLAIN) for value in given.values()):
        raise NotCut("the function is given values that have no text")
    words = "".join(f", {word}={_literal(value)}" for word, value in given.items())
    cut = _Cut(file)
    body = cut.text({name})
    if cut.modules:
        raise NotCut(f"the function needs other files: {', '.join(cut.modules)}")
    return f"{body}\n\ndef function(*arrays):\n    return {name}(*arrays{words})\n"


def _reference(reference: Callable[..., object] | None, cut: _Cut) -> str:
    """The statements that define `reference`."""
    name = getattr(reference, "__name__", "")
    if reference is not None and getattr(np, name, None) is reference:
        return f"import numpy\n\nreference = numpy.{name}\n"
    if not isinstance(reference, FunctionType) or Path(inspect.getfile(reference)) != cut.file:
        raise NotCut("the reference is not a function of the program's file")
    closed = inspect.getclosurevars(reference).nonlocals
    if not all(isinstance(value, _PLAIN) for value in closed.values()):
        raise NotCut("the reference needs local variables of the function that it is defined in")
    node = next((n for n in ast.walk(cut.tree) if _is_code_of(n, reference)), None)
    if node is None:
        raise NotCut("the reference has no source of its own")
    if isinstance(node, ast.Lambda):
        used = _names(node) - set(closed)
        # Its names stay local: the program may have others of these names, and it may call another `reference`.
        values = {name: _literal(value) for name, value in closed.items()}
        values |= {"reference": "reference"} if "reference" in used else {}
        made = f"reference = {ast.unparse(node)}"
        if values:
            head = f"def _bound_reference({', '.join(values)}):\n    return {ast.unparse(node)}\n\n\n"
            made = f"{head}reference = _bound_reference({', '.join(values.values())})"
        return f"{cut.text(used)}\n\n{made}\n"
    if reference.__qualname__ != reference.__name__:
        raise NotCut("the reference is defined in another function")
    if reference.__name__ == "reference":
        return cut.text({"reference"})
    if "reference" in set(cut.all_names()):
        raise NotCut("the file has another function `reference`")
    return f"{cut.text({reference.__name__})}\n\nreference = {reference.__name__}\n"


def _is_code_of(node: ast.AST, function: FunctionType) -> bool:
    if not isinstance(node, ast.Lambda | ast.FunctionDef):
        return False
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    if first != function.__code__.co_firstlineno or isinstance(node, ast.Lambda) != (function.__name__ == "<lambda>"):
        return False
    return [a.arg for a in node.args.args] == list(function.__code__.co_varnames[: function.__code__.co_argcount])


class _Cut:
    """A file from which statements are taken, each once.

    Attributes:
        modules: files beside it that what was taken imports, cut in the same way.
    """

    def __init__(self, file: Path, modules: dict[str, str] | None = None) -> None:
        self.file = file
        with tokenize.open(file) as source:  # in the encoding that it says
            self._text = source.read()
        self._lines = self._text.splitlines()
        self.tree = ast.parse(self._text)
        self.modules: dict[str, str] = {} if modules is None else modules
        self._taken: set[tuple[int, str]] = set()

    def text(self, roots: set[str]) -> str:
        """The statements that define some names and what they need, in the file's order, but for those taken before."""
        needed = self._needed(roots)
        return "".join(self._statement(n, s, needed) for n, s in enumerate(self.tree.body))

    def deepen(self, function: str, depths: Mapping[str, int]) -> None:
        """Declare streams of a function with other depths."""
        inside = [node for top in self.tree.body if function in _defined(top) for node in ast.walk(top)]
        places = {name: next((d for node in inside if (d := _stream_depth(node, name))), None) for name in depths}
        for name, place in sorted(places.items(), key=lambda item: item[1].col_offset if item[1] else 0, reverse=True):
            if place is None or place.lineno != place.end_lineno:
                said = f"`{name}: Stream[type, {depths[name]}]`"
                raise NotCut(f"{self.file.name} declares no {said}, with its depth, which the mapping needs")
            line = self._lines[place.lineno - 1].encode()
            line = line[: place.col_offset] + str(depths[name]).encode() + line[place.end_col_offset :]
            self._lines[place.lineno - 1] = line.decode()

    def _needed(self, roots: set[str]) -> set[str]:
        defined: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in _defined(statement):
                defined.setdefault(name, []).append(statement)
        needed, open_ = set(roots), list(roots)
        while open_:
            for statement in defined.get(open_.pop(), ()):
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    new = (_names(statement) & defined.keys()) - needed
                    needed |= new
                    open_ += new
        return needed

    def _statement(self, number: int, statement: ast.stmt, needed: set[str]) -> str:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return self._once(number, "", ast.unparse(statement) + "\n")
        if isinstance(statement, ast.Import | ast.ImportFrom):
            kept = [alias for alias in statement.names if _bound(alias) in needed]
            return "".join(self._once(number, _bound(alias), self._import(statement, alias)) for alias in kept)
        if not needed & set(_defined(statement)):
            return ""
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        gap = "\n\n" if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ""
        return self._once(number, "", gap + "\n".join(self._lines[first - 1 : statement.end_lineno]) + "\n")

    def _once(self, number: int, name: str, text: str) -> str:
        if (number, name) in self._taken:
            return ""
        self._taken.add((number, name))
        return text

    def _import(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
        """Return one imported name; a module in the same folder is copied along."""
        whole = isinstance(statement, ast.Import)
        module = alias.name if whole else (statement.module or "") if isinstance(statement, ast.ImportFrom) else ""
        if module.split(".")[0] == PACKAGE:
            raise NotCut(f"{self.file.name}:{statement.lineno}: the program uses {module}")
        beside = self.file.parent / f"{module}.py"
        if beside.is_file() and f"{module}.py" not in self.modules:
            other = _Cut(beside, self.modules)
            self.modules[f"{module}.py"] = ""  # files that import each other
            names = set(other.all_names()) if whole or alias.name == "*" else {alias.name}
            self.modules[f"{module}.py"] = other.text(names)
        level = 0 if beside.is_file() else getattr(statement, "level", 0)  # no package goes with the program
        one = ast.Import([alias]) if whole else ast.ImportFrom(module, [alias], level)
        return ast.unparse(one) + "\n"

    def all_names(self) -> Iterable[str]:
        """Every name that is defined at the top of the file."""
        return (name for statement in self.tree.body for name in _defined(statement))


def _stream_depth(node: ast.AST, name: str) -> ast.expr | None:
    """The depth in `name: Stream[type, depth][shape]`."""
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name):
        return None
    stream = node.annotation
    while isinstance(stream, ast.Subscript) and isinstance(stream.value, ast.Subscript):
        stream = stream.value
    inside = stream.slice if isinstance(stream, ast.Subscript) else None
    return inside.elts[1] if isinstance(inside, ast.Tuple) and len(inside.elts) == 2 else None


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.split(".")[0]


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement at the top of a file defines."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return [_bound(alias) for alias in statement.names]
    if isinstance(statement, ast.Expr):
        return []
    return [n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
