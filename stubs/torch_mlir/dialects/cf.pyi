from collections.abc import Sequence

from ..ir import Attribute, Block, OpView, Value

class BranchOp(OpView):
    def __init__(self, dest_operands: Sequence[Value], dest: Block) -> None: ...

class CondBranchOp(OpView):
    def __init__(
        self,
        condition: Value,
        true_dest_operands: Sequence[Value],
        false_dest_operands: Sequence[Value],
        true_dest: Block,
        false_dest: Block,
        *,
        branch_weights: Sequence[int] | None = None,
    ) -> None: ...

class SwitchOp(OpView):
    def __init__(
        self,
        flag: Value,
        default_operands: Sequence[Value],
        case_operands: Sequence[Value],
        case_operand_segments: Sequence[int],
        default_destination: Block,
        case_destinations: Sequence[Block],
        *,
        case_values: Attribute | None = None,
    ) -> None: ...
