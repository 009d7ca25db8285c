"""The spaces of legal folds, and bounds that rule folds out before they are built.

Imports `fold`, `graph` and `model`; `space` imports it.
"""
