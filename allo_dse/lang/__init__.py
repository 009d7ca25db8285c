"""The language that programs are written in.

`install()` makes `import allo` resolve to it when Allo is not installed, so that programs run unchanged.

Imports: common.
Imported by: backends, compiler, device, eval, networks, tune.
"""

from allo_dse.common.errors import ProgramError
from allo_dse.common.plugins import register_target

from .externals import define_external
from .install import install, is_installed
from .region import Region, as_region
from .rules import Rules, rules
from .schedule import builder_of, known_targets

__all__ = [
    "ProgramError",
    "Region",
    "Rules",
    "as_region",
    "builder_of",
    "define_external",
    "install",
    "is_installed",
    "known_targets",
    "register_target",
    "rules",
]
