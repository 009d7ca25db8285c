"""`python -m allo_dse` is `allo-tune`."""

from .cli import main

main()
