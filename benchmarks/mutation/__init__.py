"""What `mutants.py` runs: the mutants, and the tests that reach them."""
