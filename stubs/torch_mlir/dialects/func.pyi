from collections.abc import Sequence

from ..ir import Block, BlockArgument, FlatSymbolRefAttr, OpView, Type, Value, _List

class FuncOp(OpView):
    arguments: _List[BlockArgument]
    entry_block: Block
    def __init__(
        self, name: str, type: tuple[Sequence[Type], Sequence[Type]], *, visibility: str | None = None
    ) -> None: ...
    def add_entry_block(self) -> Block: ...

class CallOp(OpView):
    def __init__(self, results: Sequence[Type], callee: FlatSymbolRefAttr, arguments: Sequence[Value]) -> None: ...

class CallIndirectOp(OpView):
    def __init__(self, results: Sequence[Type], callee: Value, arguments: Sequence[Value]) -> None: ...

class ReturnOp(OpView):
    def __init__(self, operands: Sequence[Value]) -> None: ...
