from collections.abc import Sequence

from .ir import Module

class ExecutionEngine:
    def __init__(
        self, module: Module, opt_level: int = 2, shared_libs: Sequence[str] = (), enable_object_dump: bool = True
    ) -> None: ...
    def raw_lookup(self, name: str) -> int: ...
    def invoke(self, name: str, *arguments: object) -> None: ...
