"""What may be chosen: a kind of choice per file in `choices`, put together by `Space`; designs as genes; the sampler.

`choice.py` is the protocol, `draft.py` a design while it is decided, `evolution.py` the search and `samplers.py` the
same for Optuna. Imports `mapper` and what is below it. It proposes and describes designs; `eval` says what they are
worth, `tune` runs the search.
"""
