"""A stand-in for Allo: its names, and a `df.build` that enforces its published checks.

It runs designs in the simulator. `STAND_IN_ALLO` in the environment says how it misbehaves.
"""

from allo_dse.lang.allo import dsl as _dsl

globals().update({name: value for name, value in vars(_dsl).items() if not name.startswith("_")})
