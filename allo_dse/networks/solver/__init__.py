"""Assignment of operators to launches, with their designs and start times: a problem of numbers, and its solver.

`problem` states it and knows nothing of networks. `solve` solves it with `by_launches`, a shortest path over launches,
and with a model of the whole for CP-SAT.

Imports: common, device.
Imported by: networks.
"""
