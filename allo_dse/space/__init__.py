"""The design space of a study, and the sampler that searches it.

`choice` is the protocol of choices, `choices` has one file per kind of choice, and `space` puts them together. A
`Draft` (in `design`) is a design while it is decided; genes describe it for `sampler`. The package proposes and
describes designs; `eval` evaluates them, and `tune` runs the search.

Imports: common, compiler, device, mapper.
Imported by: allo_dse, backends, dashboard, eval, networks, tune.
"""
