"""A coarse-grained reconfigurable array as a kind of device; importing the package makes it known."""

from allo_dse.backends import register_backend

from .backend import CgraBackend

register_backend(CgraBackend())
