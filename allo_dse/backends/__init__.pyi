"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from allo_dse.eval.backend import (
    Artifacts as Artifacts,
    Asked as Asked,
    Backend as Backend,
    Choices as Choices,
    Placement as Placement,
    Sources as Sources,
    Words as Words,
    backend_of as backend_of,
    register_backend as register_backend,
)
from allo_dse.eval.evaluator import Metrics as Metrics
from allo_dse.eval.recording import Recorded as Recorded
from allo_dse.eval.target import Target as Target

__all__: list[str]
