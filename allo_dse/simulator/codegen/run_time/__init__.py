"""Code of FIFOs, the scheduler and table processes, and the records that it shares with NumPy."""
