"""Equivalence of two programs, or of a program and its folds, checked at random points of a prime field.

`compare.equivalent` is the entry point. `data_values` and `widths` analyse a task body. `rewrite` replaces its data by
words of a domain (`domains`), and `run` executes a graph of rewritten bodies on the simulator's engine.

Imports: common, compiler, eval.execute, lang, mapper, simulator, space.
Imported by: backends, cli, eval, tune.
"""
