"""Processes and their wiring: task functions, folded programs, tensors' movers, the top function. Imports `task` and
`cpp`.
"""
