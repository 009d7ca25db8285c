"""The kinds of choices, one per file: parameters, folds, buffer depths, schedules, kernel libraries.

Each file holds a `Choice` (see `space/choice.py`). A choice imports the protocol and packages below `space`; it does
not know the other choices, `Space`, or a sampler. To add a kind, write one file.

Imports: common, compiler, device, mapper, space.
Imported by: backends, networks, space, tune.
"""
