"""What may be chosen: parameters, folds, buffering, schedules; designs, their encoding for Optuna, and samplers.

Imports `mapper` and what is below it. It proposes and describes designs; `eval` says what they are worth, `tune` runs
the search.
"""
