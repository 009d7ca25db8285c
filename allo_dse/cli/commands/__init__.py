"""One module per command, or per group of commands about one thing; each imports what it needs when it is called.

Imports: allo_dse, cli, common, dashboard, device, dnn, eval, mapper, simulator, tune.
Imported by: cli.
"""
