"""Runs of a program on given inputs, which record the decisions that depend on data.

    program = observed(program, [{"X": x}, {"X": other}])      # program.runs has what was decided with each set

Bodies in which data decides on times write down what they do, each task into words of its own:

before:  scf.if %c {...}                          after:  call @df_decide(%words, %site, %c); scf.if %c {...}
         scf.for %i = %low to %high {...}                 %at = call @df_enter(%words, %site)
                                                          scf.for %i = ... { call @df_round(%words, %at, %i); ...}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError, StudyError, of_the_study
from allo_dse.common.mlir.bindings import Operation, Value, arith, func, ir, nested_ops
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.records import Array, replace
from allo_dse.compiler.ir.nest import CONTROL, read_nest
from allo_dse.compiler.model.arguments import Arguments, numpy_dtype
from allo_dse.compiler.program.compiled import CompiledProgram, Decisions, Pid, TaskClass
from allo_dse.lang.storage import wrapped
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.engine.engine import compile_bodies
from allo_dse.space.params import Assignment

from ..inputs import random_arrays
from .observed_control import data_sites
from .run import Externals, Run, compile_places, initial_state, wiring_of

if TYPE_CHECKING:
    from allo_dse.mapper.program import Program

Inputs = Mapping[str, object]
"""Arrays or numbers by tensor name."""
InputSets = Callable[["Program"], Sequence[Inputs]]
"""Returns a study's sets of inputs for a program."""
IntArray = NDArray[np.int64]

_ENTRY = 3  # words per entry: site, number, last value of the loop's variable
_MOST_WORDS = 1 << 25  # for all tasks together
_MOST_ENTRIES = 1 << 20  # per task
_DEEP = 1 << 12  # FIFO depths are decided later, and must not end this run
_MOST_SLOTS = 1 << 22
_LOOPS = tuple(name for name in CONTROL if name != "scf.if")
_STREAMS = ("df.get", "df.put", "df.try")
_UNSEEN = ("df.", "func.", "memref.extract")
"""Operations after which arrays may have any contents; vendor kernels get the addresses of theirs."""
_HELPERS = """
func.func private @df_enter(%w: {type}, %site: i64) -> index {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %two = arith.constant 2 : index
  %entry = arith.constant {entry} : i64
  %last = arith.constant {last} : index
  %nothing = arith.constant 0 : i64
  %used = memref.load %w[%zero] : {type}
  %next = arith.addi %used, %entry : i64
  memref.store %next, %w[%zero] : {type}
  %wanted = arith.index_cast %used : i64 to index
  %shifted = arith.addi %wanted, %one : index
  %at = arith.minsi %shifted, %last : index
  memref.store %site, %w[%at] : {type}
  %number = arith.addi %at, %one : index
  memref.store %nothing, %w[%number] : {type}
  %value = arith.addi %at, %two : index
  memref.store %nothing, %w[%value] : {type}
  return %at : index
}}
func.func private @df_round(%w: {type}, %at: index, %variable: index) {{
  %one = arith.constant 1 : index
  %more = arith.constant 1 : i64
  %two = arith.constant 2 : index
  %number = arith.addi %at, %one : index
  %rounds = memref.load %w[%number] : {type}
  %next = arith.addi %rounds, %more : i64
  memref.store %next, %w[%number] : {type}
  %place = arith.addi %at, %two : index
  %value = arith.index_cast %variable : index to i64
  memref.store %value, %w[%place] : {type}
  return
}}
func.func private @df_decide(%w: {type}, %site: i64, %holds: i1) {{
  %one = arith.constant 1 : index
  %at = func.call @df_enter(%w, %site) : ({type}, i64) -> index
  %number = arith.addi %at, %one : index
  %value = arith.extui %holds : i1 to i64
  memref.store %value, %w[%number] : {type}
  return
}}
"""


def observed(program: Program, sets: Sequence[Inputs] | None) -> Program:
    """Return the program with its decisions on each set of inputs; unchanged if its control is static.

    Without sets, the program is run once if its decisions are the same for all inputs, and stays unchanged otherwise.

    Raises:
        StudyError: for inputs that the program does not have.
        SimulationError: for a run that does not end well, or decides more than fits in memory.
    """
    classes = list(program.task_classes)
    nests = {task_class.body.symbol: read_nest(task_class.body.mlir) for task_class in classes}
    found = {name: frozenset(data_sites(nest.body)) for name, nest in nests.items() if nest.unsupported is None}
    asking = {name: sites for name, sites in found.items() if sites}
    if not asking or (sets is None and any(_asks_data(c.body.mlir) for c in classes if c.body.symbol in asking)):
        return program
    if sets is None:
        return replace(program, runs=(replace(_run(program, asking, {}), any_inputs=True),))
    return replace(program, runs=tuple(_run(program, asking, one) for one in sets))


def _asks_data(mlir: str) -> bool:
    """Return whether tensors or streams may decide on a body's loops or stream operations."""
    with text_context():
        module = ir.Module.parse(mlir)
        block = next(op for op in module.body.operations if op.operation.name == "func.func").regions[0].blocks[0]
        found: set[Value] = {argument for argument in block.arguments if isinstance(argument.type, ir.MemRefType)}
        while True:
            before = len(found)
            asks = _spread(block, found, under=False)
            if asks or len(found) == before:
                return asks


def _spread(block: ir.Block, found: set[Value], *, under: bool) -> bool:
    """Add the values and arrays of a block that may depend on found ones.

    Args:
        under: whether found values decide if the block runs.

    Returns:
        Whether loops or stream operations depend on them.
    """
    asks = False
    for op in (one.operation for one in block.operations):
        depends = under or op.name.startswith(_UNSEEN) or not found.isdisjoint((*op.operands, *op.results))
        if depends:
            found.update(op.results, (one for one in op.operands if isinstance(one.type, ir.MemRefType)))
            found.update(block.owner.results if op.name in ("scf.yield", "scf.condition") else ())
        blocks = [inner for region in op.regions for inner in region.blocks]
        decides = [*op.operands] if op.name != "scf.while" else [*[*blocks[0].operations][-1].operands][:1]
        inside = under or (bool(blocks) and not found.isdisjoint(decides))
        if inside and any(one.name in _LOOPS or one.name.startswith(_STREAMS) for one in nested_ops(op)):
            asks = True
        for inner in blocks:
            found.update(inner.arguments if inside else ())
            asks |= _spread(inner, found, under=inside)
    return asks


def _run(program: Program, asking: Mapping[str, frozenset[int]], inputs: Inputs) -> Decisions:
    vmg = program.vmg
    groups = [group for group in vmg.graph.class_tasks if group.task_class.body.symbol in asking]
    tasks = sum(len(group.tasks) for group in groups)
    entries = max(1, min(_MOST_ENTRIES, _MOST_WORDS // _ENTRY // max(1, tasks)))
    bodies = [_body(c, asking.get(c.body.symbol), entries) for c in program.task_classes]
    arguments, state = Arguments(program, arrays_of(program, inputs)), initial_state(program)
    words: dict[tuple[str, str], IntArray] = {}
    for group in groups:
        place = (group.task_class.kernel, group.task_class.name)
        words[place] = np.zeros((len(group.tasks), 1 + entries * _ENTRY), np.int64)
        state.variables[place].append(words[place])
    deep = max(2, min(_DEEP, _MOST_SLOTS // max(1, program.stream_count)))
    wiring = wiring_of(vmg, {stream.name: max(deep, stream.depth) for stream in program.streams})
    with compile_places(program):
        tensors = arguments.by_name | state.shared
        Run(vmg, compile_bodies(bodies), tensors, wiring, state, Externals(program)).finish()
    found: dict[tuple[str, str], dict[Pid, dict[int, IntArray]]] = {}
    for group in groups:
        place = (group.task_class.kernel, group.task_class.name)
        pids = np.stack(group.pid, axis=1).tolist() if group.pid else [[]] * len(group.tasks)
        found[place] = {tuple(pid): _decisions(own, entries) for pid, own in zip(pids, words[place], strict=True)}
    return Decisions(found)


def completed(program: CompiledProgram, inputs: list[str], sets: Sequence[Inputs], seed: int) -> list[dict[str, Array]]:
    """Return the arrays of sets of inputs, with random ones for inputs that a set lacks."""
    others = random_arrays(program, inputs, seed)
    given = (Arguments(program, arrays_of(program, one)).by_name for one in sets)
    own = {tensor.name: (tensor.dtype, numpy_dtype(tensor.dtype)) for tensor in program.tensors}
    return [
        others | {name: wrapped(arrays[name], *own[name]) for name in one}
        for one, arrays in zip(sets, given, strict=True)
    ]


def arrays_of(program: CompiledProgram, inputs: Inputs) -> list[object]:
    """Return the arguments of a run; missing ones are zero."""
    names = [tensor.name for tensor in program.tensors]
    for name in inputs:
        if name not in names:
            raise StudyError(f"inputs: {program.name} has no tensor {name!r}", hint=f"it has {', '.join(names)}")
    arrays: list[object] = []
    for tensor in program.tensors:
        given = inputs.get(tensor.name)
        if given is None:
            given = np.zeros(tensor.shape, numpy_dtype(tensor.dtype)) if tensor.shape else 0
        arrays.append(given.copy() if isinstance(given, np.ndarray) else given)
    return arrays


def _decisions(words: IntArray, entries: int) -> dict[int, IntArray]:
    """Return the recorded rows of a task, by site."""
    count = int(words[0]) // _ENTRY
    if count > entries:
        raise SimulationError(
            f"a task takes {count:,} decisions that depend on data; {entries:,} are kept", hint="give smaller inputs"
        )
    rows = words[1 : 1 + count * _ENTRY].reshape(count, _ENTRY)
    return {int(site): rows[rows[:, 0] == site, 1:].copy() for site in np.unique(rows[:, 0])}


def _body(task_class: TaskClass, sites: frozenset[int] | None, entries: int) -> Body:
    body = task_class.body
    if not sites:
        return Body(body.symbol, body.mlir)
    type_ = f"memref<{1 + entries * _ENTRY}xi64, strided<[?], offset: ?>>"
    with text_context():
        module = ir.Module.parse(body.with_own_words(type_))
        _Writer(next(op for op in module.body.operations if op.operation.name == "func.func").operation, type_).write(
            sites
        )
        helpers = _HELPERS.format(type=type_, entry=_ENTRY, last=1 + (entries - 1) * _ENTRY)
        for op in ir.Module.parse(helpers).body.operations:
            module.body.append(op.operation.clone())
        return Body(body.symbol, str(module))


class _Writer:
    """Makes a body record its decisions."""

    def __init__(self, function: Operation, type_: str) -> None:
        self._function = function
        arguments = function.regions[0].blocks[0].arguments
        self._words = next(a for a in arguments if str(a.type) == str(ir.Type.parse(type_)))
        self._i64, self._index = ir.IntegerType.get_signless(64), ir.IndexType.get()

    def write(self, wanted: frozenset[int]) -> None:
        """Record the decisions at these sites, numbered as in `compiler.ir.nest`."""
        site = 0
        for op in [op for op in nested_ops(self._function, parents_first=True) if op.name in CONTROL]:
            with op.location:
                if op.name == "scf.while":
                    self._while(op, site, wanted)
                    site += 1
                elif site in wanted and op.name == "scf.if":
                    self._decide(op, site, op.operands[0])
                elif site in wanted:
                    block = op.regions[0].blocks[0]
                    self._round(self._enter(op, site), block, block.arguments[0])
            site += 1

    def _while(self, op: Operation, site: int, wanted: frozenset[int]) -> None:
        block = op.regions[0].blocks[0]
        if site in wanted:
            self._round(self._enter(op, site), block, None)
        if site + 1 in wanted:
            last = list(block.operations)[-1].operation
            self._decide(last, site + 1, last.operands[0])

    def _call(self, name: str, results: list[ir.Type], *arguments: Value) -> Operation:
        return func.CallOp(results, ir.FlatSymbolRefAttr.get(name), [self._words, *arguments]).operation

    def _number(self, site: int) -> Value:
        return arith.ConstantOp(self._i64, ir.IntegerAttr.get(self._i64, site)).result

    def _enter(self, op: Operation, site: int) -> Value:
        with ir.InsertionPoint(op):
            return self._call("df_enter", [self._index], self._number(site)).results[0]

    def _decide(self, op: Operation, site: int, holds: Value) -> None:
        with ir.InsertionPoint(op):
            self._call("df_decide", [], self._number(site), holds)

    def _round(self, at: Value, block: ir.Block, variable: Value | None) -> None:
        with ir.InsertionPoint.at_block_begin(block):
            if variable is None:
                variable = arith.ConstantOp(self._index, ir.IntegerAttr.get(self._index, 0)).result
            self._call("df_round", [], at, variable)


def sets_of(given: object, program: CompiledProgram) -> list[Inputs]:
    """Return a program's sets of inputs from a study's `inputs`: one set, several, or a function of the parameters.

    Raises:
        StudyError: for anything else, and when the function fails.
    """
    with of_the_study("inputs", 'a function of the parameters: inputs=lambda p: [{"X": x(p.N)}]'):
        found = given(Assignment(program.params)) if callable(given) else given
    sets = [found] if isinstance(found, Mapping) else list(found) if isinstance(found, list | tuple) else []
    if not sets or not all(isinstance(one, Mapping) for one in sets):
        raise StudyError(
            "inputs: expected arrays by name, or a list of such sets",
            hint='inputs=lambda p: [{"X": x}, {"X": other}]',
        )
    return sets
