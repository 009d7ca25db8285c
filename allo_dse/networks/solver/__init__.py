"""Which operators share a launch, on which designs, and when each runs: a problem of numbers, and its solution.

`problem` says what is to be decided and knows nothing of networks; `solve` decides it, by `by_launches`, a shortest
path over launches, and `model`, all at once for CP-SAT.

Imports: common, device.
Imported by: networks.
"""
