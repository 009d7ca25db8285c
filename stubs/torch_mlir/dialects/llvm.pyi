from collections.abc import Sequence

from ..ir import Attribute, OpView, Type, Value

class AllocaOp(OpView):
    def __init__(self, res: Type, array_size: Value, elem_type: Type) -> None: ...

class CoroDestroyOp(OpView):
    def __init__(self, handle: Value) -> None: ...

class CoroResumeOp(OpView):
    def __init__(self, handle: Value) -> None: ...

class GEPOp(OpView):
    def __init__(
        self,
        res: Type,
        base: Value,
        dynamic_indices: Sequence[Value],
        raw_constant_indices: Sequence[int],
        elem_type: Type,
        no_wrap_flags: Attribute | None,
    ) -> None: ...

class ICmpOp(OpView):
    def __init__(self, predicate: int, lhs: Value, rhs: Value) -> None: ...

class InsertValueOp(OpView):
    def __init__(self, container: Value, value: Value, position: Sequence[int]) -> None: ...

class IntToPtrOp(OpView):
    def __init__(self, res: Type, arg: Value) -> None: ...

class LoadOp(OpView):
    def __init__(self, res: Type, addr: Value) -> None: ...

class Prefetch(OpView):
    def __init__(self, addr: Value, rw: int, hint: int, cache: int) -> None: ...

class PtrToIntOp(OpView):
    def __init__(self, res: Type, arg: Value) -> None: ...

class StoreOp(OpView):
    def __init__(self, value: Value, addr: Value) -> None: ...

class UndefOp(OpView):
    def __init__(self, res: Type) -> None: ...
