"""Everything that can be chosen, a kind per file: parameters, folds, buffer depths, schedules, kernel libraries.

Each file holds a `Choice` (`space/choice.py` says what that is). A choice imports the protocol and what is below
`space`; it does not know the others, `Space`, or a sampler. To add a kind, write one file like `output_depth.py`.

Imports: backends, common, compiler, device, lang, mapper, space.
Imported by: space, tune.
"""
