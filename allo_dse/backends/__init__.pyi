"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from allo_dse.eval.backend import Artifacts as Artifacts
from allo_dse.eval.backend import Asked as Asked
from allo_dse.eval.backend import Backend as Backend
from allo_dse.eval.backend import Choices as Choices
from allo_dse.eval.backend import Placement as Placement
from allo_dse.eval.backend import Sources as Sources
from allo_dse.eval.backend import Words as Words
from allo_dse.eval.backend import backend_of as backend_of
from allo_dse.eval.backend import register_backend as register_backend
from allo_dse.eval.evaluator import Metrics as Metrics
from allo_dse.eval.recording import Recorded as Recorded
from allo_dse.eval.target import Target as Target

__all__: list[str]
