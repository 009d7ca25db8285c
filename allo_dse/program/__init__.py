"""The compiled program: what the front end hands to everything else, described per task class.

Data only; imports `lang`. `frontend` makes it; `mapper`, `backends`, `space` and `eval` read it.
"""
