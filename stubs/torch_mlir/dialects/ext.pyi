from types import ModuleType
from typing import Generic, TypeVar

from ..ir import Attribute, Module, OpResult, OpView, Type, Value

_T = TypeVar("_T")
irdl: ModuleType

class Operand(Generic[_T]):
    def __get__(self, operation: object, owner: type, /) -> Value: ...

class Result(Generic[_T]):
    def __get__(self, operation: object, owner: type, /) -> OpResult: ...

class Operation(OpView):
    def __init__(self, *fields: Type | Value | Attribute) -> None: ...
    def __init_subclass__(cls, *, name: str = ...) -> None: ...

class Dialect:
    def __init_subclass__(cls, *, name: str) -> None: ...
    @classmethod
    def load(cls) -> None: ...
    _mlir_module: Module
