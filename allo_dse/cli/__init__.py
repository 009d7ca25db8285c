"""The command line: `allo-tune STUDY.py` runs studies, `allo-tune COMMAND` looks at runs.

One module per group of commands; each imports what it needs when it is called, so that help stays fast.
"""

from .main import main as main
