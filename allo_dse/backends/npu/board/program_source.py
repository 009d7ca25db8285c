"""The part of a study file that a program needs, cut out so that it runs without this package.

Allo's front end reads the text, with two consequences. It finds the names in a region's types only if Python evaluates
them, so `from __future__ import annotations` is left out, and annotations of host code with it. It infers types in all
branches of `allo.meta_if`, so branches that the parameters exclude are left out.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib.util
import inspect
import math
import re
import sys
import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import FunctionType

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.lang.region import Region, as_region
from allo_dse.lang.types import DType

PACKAGE = "allo_dse"
ByName = Mapping[str, object]
"""Values by name."""
_PLAIN = (bool, int, float, str, type(None))


class NotCut(AlloDseError):
    """Source that cannot be cut out of its file."""


def program_files(
    source: Callable[..., object] | None,
    params: ByName,
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
    cut.specialise(name, depths, _around(source, params))
    body = cut.text({name, *(word for word, line in extra if not line)})
    body += "".join(dict.fromkeys(line for _, line in extra))
    with contextlib.suppress(NotCut):
        body += _reference(reference, cut)
    deeper = f"; as deep as the mapping needs: {', '.join(depths)}" if depths else ""
    head = f'"""The program of a design at its parameters, cut out of {file.name}{deeper}."""\n\n'
    return {**cut.modules, "program.py": f"{head}{body}\n\ndef region():\n    return {call}\n"}


def _around(source: object, params: ByName) -> ByName:
    """Values of the names around a region."""
    region = as_region(source if isinstance(source, Region) or not callable(source) else source(**params))
    return {} if region is None else {**region.function.__globals__, **region.enclosing}


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


def _arguments(params: ByName, function: object) -> tuple[str, list[tuple[str, str]]]:
    """The call's arguments as text, and the names they need, each with the line that defines it (empty: the file's)."""
    scope: ByName = getattr(function, "__globals__", {})
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
    node = next((n for n in ast.walk(cut.original) if _is_code_of(n, reference)), None)
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

    Args:
        others: files of the same project that are cut along, by the path to write each to.
    """

    def __init__(self, file: Path, others: dict[str, _Cut] | None = None) -> None:
        self.file = file
        self._others: dict[str, _Cut] = {} if others is None else others
        self._wanted: set[str] = set()
        self._copied = ""
        self._busy = False
        with tokenize.open(file) as source:  # in the encoding that it says
            self._read(source.read())
        self.original = self.tree
        self._taken: set[tuple[int, str]] = set()

    @property
    def modules(self) -> dict[str, str]:
        """Texts of the files that are cut along, by path."""
        return {path: other._copied for path, other in self._others.items()}

    def _read(self, text: str) -> None:
        self._text, self._lines = text, text.splitlines()
        self.tree = ast.parse(text)
        self._host = _HostCode(self.tree)

    def text(self, roots: set[str]) -> str:
        """The statements that define some names and what they need, in the file's order, but for those taken before."""
        needed = self._needed(roots)
        return "".join(self._statement(n, s, needed) for n, s in enumerate(self.tree.body))

    def specialise(self, function: str, depths: Mapping[str, int], around: ByName) -> None:
        """Declare streams of a function with other depths, write out named shapes, and leave out dead branches."""
        inside = [node for top in self.tree.body if function in _defined(top) for node in ast.walk(top)]
        places: Places = [
            (node.slice, ", ".join(map(str, shape)))
            for node in inside
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name)
            if isinstance(shape := around.get(node.slice.id), tuple | list) and all(type(size) is int for size in shape)
        ]
        for name, depth in depths.items():
            place = next((d for node in inside if (d := _stream_depth(node, name))), None)
            if place is None:
                stream = f"`{name}: Stream[type, {depth}]`"
                raise NotCut(f"{self.file.name} declares no {stream}, with its depth, which the mapping needs")
            places.append((place, str(depth)))
        for region in (node for node in inside if _is_device_code(node)):
            own = {n.id for n in ast.walk(region) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            own |= {n.arg for n in ast.walk(region) if isinstance(n, ast.arg)}
            known = {name: value for name, value in around.items() if name not in own}
            places += [place for node in ast.walk(region) for place in _dead_branches(node, known)]
        if places:
            self._read(_replaced(self._text, dict.fromkeys(places)))

    def _needed(self, roots: set[str]) -> set[str]:
        defined: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in _defined(statement):
                defined.setdefault(name, []).append(statement)
        needed, open_ = set(roots), list(roots)
        while open_:
            for statement in defined.get(open_.pop(), ()):
                if not isinstance(statement, ast.Import | ast.ImportFrom):
                    new = (_names(self._host.bare(statement)) & defined.keys()) - needed
                    needed |= new
                    open_ += new
        return needed

    def _statement(self, number: int, statement: ast.stmt, needed: set[str]) -> str:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            return ""
        if isinstance(statement, ast.Import | ast.ImportFrom):
            kept = [alias for alias in statement.names if _bound(alias) in needed]
            return "".join(self._once(number, _bound(alias), self._import(statement, alias)) for alias in kept)
        if not needed & set(_defined(statement)):
            return ""
        first = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        gap = "\n\n" if isinstance(statement, ast.FunctionDef | ast.ClassDef) else ""
        text = "\n".join(self._lines[first - 1 : statement.end_lineno])
        return self._once(number, "", gap + self._host.text(statement, text, first) + "\n")

    def _once(self, number: int, name: str, text: str) -> str:
        if (number, name) in self._taken:
            return ""
        self._taken.add((number, name))
        return text

    def _import(self, statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
        """Return one imported name; a module of the same project is copied along."""
        whole = isinstance(statement, ast.Import)
        module = alias.name if isinstance(statement, ast.Import) else statement.module or ""
        level = 0 if isinstance(statement, ast.Import) else statement.level
        if module.split(".")[0] == PACKAGE and (whole or module == PACKAGE):
            raise NotCut(f"{self.file.name}:{statement.lineno}: the program uses {module}")
        inside = f"{module}.{alias.name}".lstrip(".")
        if not whole and (file := self._file_of(inside, level)):
            self._copy(file, inside, None)
        elif file := self._file_of(module, level):
            self._copy(file, module, None if whole or alias.name == "*" else alias.name)
        # No package goes with the program.
        one = ast.Import([alias]) if whole else ast.ImportFrom(module, [alias], 0) if module else ast.Import([alias])
        return ast.unparse(one) + "\n"

    def _file_of(self, module: str, level: int) -> Path | None:
        """Return the file of a module of the same project: beside this one, or on Python's path and not installed."""
        folder = self.file.parents[max(level - 1, 0)]
        near = folder.joinpath(*module.split("."))
        for file in (near.with_name(f"{near.name}.py"), near / "__init__.py"):
            if module and file.is_file():
                return file
        if level or not module or module.split(".")[0] in (*sys.stdlib_module_names, "allo"):
            return None
        try:
            origin = getattr(importlib.util.find_spec(module), "origin", None)
        except (ImportError, ValueError):
            return None
        file = Path(origin or "")
        installed = {"site-packages", "dist-packages"} & set(file.parts)
        return file if file.suffix == ".py" and not installed else None

    def _copy(self, file: Path, module: str, name: str | None) -> None:
        """Copy a name of another module, or the whole module, to the path from which the program imports it."""
        path = module.replace(".", "/") + ("/__init__.py" if file.name == "__init__.py" else ".py")
        if path not in self._others:
            self._others[path] = _Cut(file, self._others)
        other = self._others[path]
        other._wanted |= {name} if name else set(other.all_names())
        if other._busy:  # files that import each other
            return
        other._busy, taken = True, set[str]()
        while taken != other._wanted:
            taken = set(other._wanted)
            other._taken.clear()
            other._copied = other.text(taken)
        other._busy = False

    def all_names(self) -> Iterable[str]:
        """Every name that is defined at the top of the file."""
        return (name for statement in self.tree.body for name in _defined(statement))


Places = list[tuple[ast.expr | ast.stmt, str]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _dead_branches(node: ast.AST, known: ByName) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield changes of a block that remove the branches of `allo.meta_if` that known values exclude."""
    body = getattr(node, "body", None)
    if not isinstance(body, list):
        return
    before: bool | None = False  # whether an earlier branch of the chain is taken; None if that depends on the task
    dead: list[ast.stmt] = []
    for statement in body:
        call = statement.items[0].context_expr if isinstance(statement, ast.With) else None
        name = call.func.attr if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else ""
        if call is None or name not in ("meta_if", "meta_elif", "meta_else"):
            continue
        assert isinstance(call, ast.Call)
        before = False if name == "meta_if" else before
        taken = _value_of(call.args[0], known) if call.args else True
        if before or taken is False:
            dead.append(statement)
        elif before is False and (name != "meta_if" or taken):
            condition = "True" if taken else ast.unparse(call.args[0])
            yield call, f"{ast.unparse(call.func).rpartition('.')[0]}.meta_if({condition})"
        elif before is None and taken and call.args:
            yield call, f"{ast.unparse(call.func).rpartition('.')[0]}.meta_else()"
        before = before or taken
    yield from ((statement, "pass" if len(dead) == len(body) else "") for statement in dead)


def _value_of(condition: ast.expr, known: ByName) -> bool | None:
    """Return the value of a condition; None if it needs other names than the known ones."""
    if not _names(condition) <= known.keys():
        return None
    try:
        return bool(eval(compile(ast.Expression(condition), "", "eval"), dict(known)))
    except Exception:
        return None


class _HostCode(ast.NodeTransformer):
    """Removes annotations from host code: Python would evaluate them, and the program may lack their names.

    Host code is everything outside regions, kernels and the functions that they call. Fields of classes keep their
    annotations as text.
    """

    def __init__(self, tree: ast.Module) -> None:
        functions = {node.name: node for node in tree.body if isinstance(node, _Function)}
        open_ = [node for node in ast.walk(tree) if isinstance(node, _Function) and _is_device_code(node)]
        self._device: set[str] = set()
        while open_:
            known = _names(open_.pop()) & functions.keys()
            called = {name for name in known if not any(map(_is_device_code, ast.walk(functions[name])))}
            open_ += [functions[name] for name in called - self._device]
            self._device |= called
        self._places: Places = []

    def bare(self, statement: ast.stmt) -> ast.stmt:
        """Return a copy of a statement without these annotations."""
        self._places = []
        found: ast.stmt = self.visit(copy.deepcopy(statement))
        return ast.fix_missing_locations(found)

    def text(self, statement: ast.stmt, text: str, first: int) -> str:
        """Return a statement's text, which begins at line `first`, without these annotations."""
        bare = self.bare(statement)
        if not self._places:
            return text
        found = _replaced(text, self._places, first)
        with contextlib.suppress(SyntaxError):
            if ast.dump(ast.parse(found).body[0]) == ast.dump(bare):
                return found
        return ast.unparse(bare)  # an annotation in brackets

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if _is_device_code(node) or node.name in self._device:
            return node
        own = node.args
        for argument in (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg):
            if argument is not None and argument.annotation is not None:
                self._places.append((argument.annotation, ""))
                argument.annotation = None
        if node.returns is not None:
            self._places.append((node.returns, ""))
            node.returns = None
        self.generic_visit(node)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and not isinstance(field.annotation, ast.Constant):
                text = ast.unparse(field.annotation)
                self._places.append((field.annotation, repr(text)))
                field.annotation = ast.Constant(text)
        node.body = [one if isinstance(one, ast.AnnAssign) else self.visit(one) for one in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            self._places.append((node, "pass"))
            return ast.Pass()
        self._places.append((node.annotation, ""))
        return ast.Assign([node.target], node.value)


def _replaced(text: str, places: Iterable[tuple[ast.expr | ast.stmt, str]], first: int = 1) -> str:
    """Replace parts of a text that begins at line `first`; a removed annotation loses its colon or arrow too."""
    lines = [line.encode() for line in text.split("\n")]
    places = list(places)
    gone = {inner for node, _ in places if isinstance(node, ast.stmt) for inner in ast.walk(node) if inner is not node}
    places = [place for place in places if place[0] not in gone]
    for node, new in sorted(places, key=lambda place: (-place[0].lineno, -place[0].col_offset)):
        at, end = node.lineno - first, (node.end_lineno or node.lineno) - first
        before = lines[at][: node.col_offset]
        before = before if new else re.sub(rb"\s*(:|->)\s*$", b"", before)
        changed = before + new.encode() + lines[end][node.end_col_offset :]
        lines[at : end + 1] = [changed] if changed.strip() else []
    return b"\n".join(lines).decode()


def _is_device_code(node: ast.AST) -> bool:
    """Return whether a function is a region or a kernel: its decorator is a call, `@df.region()`."""
    return isinstance(node, _Function) and any(
        isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] in ("region", "kernel")
        for one in node.decorator_list
    )


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
