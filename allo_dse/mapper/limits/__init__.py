"""Whether a folded graph fits a device: every limit that it exceeds, as values.

Imports all of the mapper but `search` and `place`.
"""
