"""What may be chosen: a kind of choice per file in `choices`, put together by `Space`; designs as genes; the sampler.

`choice` is the protocol, `draft` a design while it is decided, `sampler` proposes. The package proposes and describes
designs; `eval` says what they are worth, `tune` runs the search.

Imports: backends, common, compiler, device, lang, mapper.
Imported by: allo_dse, backends, dashboard, eval, networks, tune.
"""
