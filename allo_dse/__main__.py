"""`python -m allo_dse` is `allo-tune`."""

from allo_dse.cli import main

main()
