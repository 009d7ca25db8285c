"""Processes that evaluators start: run under a limit, ended with all that they have started.

Imports: nothing of allo_dse.
Imported by: eval.hardware, eval.hls, tune.
"""
