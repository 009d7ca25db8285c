"""Devices: the files that describe them, how they are read and validated, and the limits and costs they state.

A device is data. To add a device, add a file to `files/`.

Imports: common, lang.
Imported by: allo_dse, backends, cli, dashboard, eval, networks, space, tune.
"""
