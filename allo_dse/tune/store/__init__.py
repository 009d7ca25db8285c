"""The log of a run, its records, and the run directory."""
