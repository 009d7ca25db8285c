"""Evaluation of designs: in this process, in child processes, or by workers on this machine or a cluster.

Imports: common, eval, space, tune.declare, tune.search, tune.store.
Imported by: tune, tune.run.
"""
