"""Whether two programs, or a program and its folds, compute the same function: at random points of a prime field.

`compare.equivalent` is the way in. `rewrite` puts words of a domain (`domains`) in place of a body's data, as far as
`data_values` and `widths` allow; `run` runs a graph of such bodies with the simulator's engine; `compare` decides.

Imports: common, compiler, eval.execute, lang, mapper, simulator, space.
Imported by: allo_dse, cli, eval, tune.
"""
