"""The sampler: evolution, the models that choose among children, and the interface of Optuna.

It knows genes, not designs. `optuna_sampler` is for Optuna's studies, `evolution` for proposals without trials.

Imports: common, space.
Imported by: dashboard, tune.
"""
