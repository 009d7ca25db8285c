"""Exact times of long regular runs: states that repeat are found, the rest is arithmetic.

Imports `network`.
"""
