from allo_dse.lang import memory as _memory

globals().update({name: value for name, value in vars(_memory).items() if not name.startswith("_")})
