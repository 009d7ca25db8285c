"""FIFO depths of networks: fronts of cycles against memory.

Imports: common, simulator.network, simulator.replay.
Imported by: backends, cli.
"""
