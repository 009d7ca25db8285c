"""Graphs of tasks, kernels and ports: schedule trees, names, axes of meshes, streams as arrays.

Imports `model`; every other folder of the mapper but `model` may import it.
"""
