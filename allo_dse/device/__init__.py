"""Devices: the files that describe them, how they are read and validated, and the limits and costs they state.

A device is data. Everything above `ir` and `lang` may import this package; it imports `lang` (types) and `errors`
only. To add a device, add a file to `files/`.
"""
