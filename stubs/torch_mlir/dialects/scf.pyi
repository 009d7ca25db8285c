from collections.abc import Sequence

from ..ir import Block, OpResult, OpView, Value

class ForOp(OpView):
    body: Block
    induction_variable: OpResult
    def __init__(self, lower_bound: Value, upper_bound: Value, step: Value) -> None: ...

class IfOp(OpView):
    then_block: Block
    else_block: Block
    def __init__(self, cond: Value, *, has_else: bool = False) -> None: ...

class YieldOp(OpView):
    def __init__(self, operands: Sequence[Value]) -> None: ...
