"""Module of a module that an exported program imports."""

UNIT: int = 32
