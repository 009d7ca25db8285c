"""The operators of networks as dataflow programs: one file per kind, each with its program, what may vary in it, and
what it computes in NumPy.

`work` is what a kind hands over, and `execute` runs it on numbers. A program's tensors are those of the operator, in
another shape at most.

Imports: common, compiler, eval, lang, mapper, space.
Imported by: networks, networks.export, networks.onnx.
"""

from allo_dse.common.imports import lazy_exports
from allo_dse.lang import install

install()  # programs import `allo`: its stand-in if Allo is not installed

__all__, __getattr__ = lazy_exports(__name__, __file__)
