from collections.abc import Sequence

from ..ir import OpView, Value

def copy(source: Value, *, outs: Sequence[Value]) -> OpView: ...
