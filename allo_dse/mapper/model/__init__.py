"""Plain data and small algorithms without a graph: axis rules, buffering, sequences, orders, violations.

The lowest folder of the mapper.
"""
