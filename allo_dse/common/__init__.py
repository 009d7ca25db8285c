"""What every package may import, and what imports nothing of allo-dse.

Exceptions with a hint (`errors`), type aliases (`aliases`), and public names that are imported when first used
(`exports`).

Imports: nothing of allo_dse.
Imported by: allo_dse, backends, cli, compiler, dashboard, device, drawing, eval, lang, mapper, networks, simulator,
  space, tune.
"""
