"""What programs reach as `allo.<name>`: loops, compile-time conditions and operations on whole tiles."""

from __future__ import annotations

from ..intrinsics import INTRINSICS

grid = INTRINSICS["grid"]
reduction = INTRINSICS["reduction"]
get_pid = INTRINSICS["get_pid"]
meta_if = INTRINSICS["meta_if"]
meta_elif = INTRINSICS["meta_elif"]
meta_else = INTRINSICS["meta_else"]
meta_for = INTRINSICS["meta_for"]

matmul = INTRINSICS["matmul"]
bmm = INTRINSICS["bmm"]
linear = INTRINSICS["linear"]
conv2d = INTRINSICS["conv2d"]
maxpool = INTRINSICS["maxpool"]
sumpool = INTRINSICS["sumpool"]

add = INTRINSICS["add"]
sub = INTRINSICS["sub"]
mul = INTRINSICS["mul"]
div = INTRINSICS["div"]

abs = INTRINSICS["abs"]
exp = INTRINSICS["exp"]
log = INTRINSICS["log"]
log2 = INTRINSICS["log2"]
log10 = INTRINSICS["log10"]
sqrt = INTRINSICS["sqrt"]
sin = INTRINSICS["sin"]
cos = INTRINSICS["cos"]
tan = INTRINSICS["tan"]
tanh = INTRINSICS["tanh"]
power = INTRINSICS["power"]
relu = INTRINSICS["relu"]
gelu = INTRINSICS["gelu"]
softmax = INTRINSICS["softmax"]
layernorm = INTRINSICS["layernorm"]

copy = INTRINSICS["copy"]
transpose = INTRINSICS["transpose"]
view = INTRINSICS["view"]
concat = INTRINSICS["concat"]
ones = INTRINSICS["ones"]
zeros = INTRINSICS["zeros"]
tril = INTRINSICS["tril"]
