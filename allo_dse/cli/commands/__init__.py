"""One module per command, or per group of commands about one thing; each imports what it needs when it is called.

Imports: allo_dse, backends, cli, common, dashboard, device, eval, networks, simulator, tune.
Imported by: cli.
"""
