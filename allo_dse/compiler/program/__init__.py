"""The compiled program: what the front end hands to everything else, described per task class.

Data only. `frontend` makes it; `mapper`, `backends`, `space` and `eval` read it. A module per thing
that is described: `source`, `index_maps`, `tensors`, `streams`, `tasks` (task classes), `kernel`, `directive`, and
`compiled` for the program as a whole. Nothing is exported twice: import from the module that describes it.

Imports: common, lang.
Imported by: backends, compiler, compiler.expressions, compiler.model, compiler.regions, compiler.schedule,
  compiler.statements, drawing, eval, mapper, networks, space.
"""
