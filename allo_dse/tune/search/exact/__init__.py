"""Searches that go by bounds, and end with a proof that no design of the space is better.

Imports: common, space, tune.search, tune.store.
Imported by: tune.run, tune.search.
"""
