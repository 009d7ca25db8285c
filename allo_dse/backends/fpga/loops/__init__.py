"""Pipelined loops: effects and recurrences, intervals and depths, rounds, what they are built of.

Imports `body`, the plan of a task class, memories and operators; `task` imports it.
"""
