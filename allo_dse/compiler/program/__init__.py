"""The compiled program, described per task class: the result of the front end.

Data only. `compiler` makes it; `mapper`, `backends`, `space` and `eval` read it. `tensors` has source locations,
tensors and streams, `kernel` has task classes, and `compiled` the program as a whole.

Imports: common, compiler.ir, lang.
Imported by: backends, compiler, compiler.expressions, compiler.model, compiler.regions, compiler.schedule,
compiler.statements, drawing, eval, mapper, networks, space.
"""
