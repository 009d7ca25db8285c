"""The user's source: parsed once per file version, and pointed at by every diagnostic."""

from __future__ import annotations

import ast
import difflib
import linecache
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any, NoReturn

from msgspec import Struct

from allo_dse.common.errors import ProgramError

from ..program.tensors import SourceLocation


class SourceFile(Struct, eq=False):
    """A parsed file.

    Attributes:
        functions: function definitions by the line of their first decorator (or of `def`) and name.
        codes: compiled constant expressions by node.
        locations: cached by line and byte.
    """

    name: str
    lines: list[str]
    functions: Mapping[tuple[int, str], ast.FunctionDef]
    codes: dict[ast.expr, CodeType] = {}
    locations: dict[tuple[int, int], SourceLocation] = {}

    def location(self, node: ast.AST) -> SourceLocation:
        """Return the location at which a node of this file begins."""
        place = line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        if place not in self.locations:
            text = self.lines[line - 1] if line <= len(self.lines) else ""
            characters = len(text.encode()[:column].decode(errors="replace"))
            self.locations[place] = SourceLocation(self.name, line, characters + 1)
        return self.locations[place]

    def error(self, node: ast.AST, message: str, hint: str = "") -> ProgramError:
        """The error `message` at a node."""
        where = self.location(node)
        line = self.lines[where.line - 1].rstrip("\n") if where.line <= len(self.lines) else ""
        end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", None) == where.line else len(line)
        width = max(1, (end or 0) - getattr(node, "col_offset", 0))
        return ProgramError(
            message, hint=hint, file=where.file, line=where.line, column=where.column, source_line=line, width=width
        )

    def fail(self, node: ast.AST, message: str, hint: str = "") -> NoReturn:
        raise self.error(node, message, hint) from None

    def evaluate(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """The value of a constant expression in Python, `names` being its global variables.

        Raises:
            ProgramError: whatever goes wrong, at the place where it does.
        """
        if isinstance(node, ast.Constant):
            return node.value
        code = self.codes.get(node)
        if code is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # Python has warned when it read the file
                try:
                    code = self.codes[node] = compile(ast.Expression(node), self.name, "eval")
                except SyntaxError as error:
                    self.fail(node, f"this cannot stand here: {error.msg}")
        try:
            return eval(code, names)
        except NameError as error:
            named = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == error.name)
            self.fail(next(named, node), f"unknown name `{error.name}`")
        except ProgramError as error:
            if error.is_placed:
                raise
            self.fail(node, error.message, error.hint)
        except RecursionError:
            self.fail(node, "recursion without end while evaluating a constant")
        except Exception as error:
            self.fail(node, f"cannot evaluate this at compile time: {type(error).__name__}: {error}")

    def evaluate_annotation(self, node: ast.expr, names: dict[str, Any]) -> Any:
        """Like `evaluate`; a string is read as the expression it contains."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                inner = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                self.fail(node, f"cannot read the annotation {node.value!r}")
            for part in ast.walk(inner):
                if isinstance(part, ast.expr):
                    ast.copy_location(part, node)
            return self.evaluate(inner, names)
        return self.evaluate(node, names)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known; empty where none is near."""
    close = difflib.get_close_matches(name, list(known), 1)
    return f"did you mean `{close[0]}`?" if close else ""


_FILES: dict[str, SourceFile] = {}


def source_file(name: str) -> SourceFile:
    """The file `name`, parsed again only when it has changed.

    Raises:
        ProgramError: when the source cannot be had.
    """
    linecache.checkcache(name)
    lines = linecache.getlines(name)
    known = _FILES.get(name)
    if known is not None and known.lines is lines:
        return known
    if not lines:
        raise ProgramError(
            f"the source of {name} is not available", hint="define the program in a file or a notebook cell"
        )
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError as error:
        raise ProgramError(f"{name} does not parse any more: {error.msg}", hint="was it edited meanwhile?") from None
    functions = {}
    todo = list(statements_in(tree))
    while todo:
        node = todo.pop()
        todo.extend(statements_in(node))
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            functions[first, node.name] = node
    _FILES[name] = SourceFile(name, lines, functions)
    return _FILES[name]


def statements_in(node: ast.Module | ast.stmt) -> Iterator[ast.stmt]:
    """The statements of a node's blocks. Of a program's nodes nine of ten are expressions, which contain none."""
    for block in ("body", "orelse", "finalbody"):
        yield from getattr(node, block, ())
    for kind in ("handlers", "cases"):
        for part in getattr(node, kind, ()):
            yield from part.body


def function_source(function: FunctionType) -> tuple[SourceFile, ast.FunctionDef]:
    """The file and the definition of a function.

    Raises:
        ProgramError: when the source cannot be had.
    """
    code = function.__code__
    file = source_file(code.co_filename)
    node = file.functions.get((code.co_firstlineno, code.co_name))
    if node is None:
        raise ProgramError(
            f"cannot find the definition of {code.co_name} at {code.co_filename}:{code.co_firstlineno}",
            hint="was the file edited after it was imported? A lambda cannot be compiled",
        )
    return file, node


def names_of(function: FunctionType, enclosing: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a function's free names: its closure, then the enclosing variables, then globals."""
    names = dict(function.__globals__)
    names.update(enclosing)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            names[name] = cell.cell_contents
        except ValueError:
            names.pop(name, None)  # not assigned yet
    return names
