import enum
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import ClassVar, Generic, Protocol, Self, TypeVar

_A = TypeVar("_A", covariant=True)

class MLIRError(Exception): ...

class _Scope:
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

class Context(_Scope):
    current: ClassVar[Context]
    allow_unregistered_dialects: bool
    def __init__(self, load_on_create_dialects: Sequence[str] | None = None) -> None: ...
    def get_dialect_descriptor(self, dialect_name: str) -> object: ...

class Location(_Scope):
    @staticmethod
    def unknown(context: Context | None = None) -> Location: ...

class InsertionPoint(_Scope):
    def __init__(self, at: Block | _OperationBase) -> None: ...
    @staticmethod
    def at_block_begin(block: Block) -> InsertionPoint: ...
    @staticmethod
    def at_block_terminator(block: Block) -> InsertionPoint: ...

class WalkOrder(enum.Enum):
    PRE_ORDER = 0
    POST_ORDER = 1

class WalkResult(enum.Enum):
    ADVANCE = 0
    INTERRUPT = 1
    SKIP = 2

# -- the structure of a program ----------------------------------------------------------------------------------------

class _List(Protocol[_A]):
    """The bindings' lists: read by number from either end, and by iteration."""
    def __getitem__(self, index: int, /) -> _A: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_A]: ...

class _Blocks(_List[Block], Protocol):
    def append(self, *arguments: Type) -> Block: ...

class _Operands(_List[Value], Protocol):
    def __setitem__(self, index: int, value: Value, /) -> None: ...
    def __contains__(self, value: object, /) -> bool: ...

class _Attributes(Protocol):
    def __getitem__(self, name: str, /) -> Attribute: ...
    def __setitem__(self, name: str, value: Attribute, /) -> None: ...
    def __delitem__(self, name: str, /) -> None: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...

class Module:
    body: Block
    operation: Operation
    context: Context
    @staticmethod
    def parse(text: str, context: Context | None = None) -> Module: ...
    @staticmethod
    def create(loc: Location | None = None) -> Module: ...

class _OperationBase:
    name: str
    attributes: _Attributes
    block: Block
    location: Location
    operands: _Operands
    operation: Operation
    parent: Operation | None
    regions: _List[Region]
    result: OpResult
    results: _List[OpResult]
    successors: _List[Block]
    def clone(self, ip: InsertionPoint | None = None) -> OpView: ...
    def get_asm(self, *, use_local_scope: bool = False) -> str: ...
    def erase(self) -> None: ...
    def is_before_in_block(self, other: _OperationBase) -> bool: ...
    def move_after(self, other: _OperationBase) -> None: ...
    def move_before(self, other: _OperationBase) -> None: ...
    def replace_uses_of_with(self, of: Value, with_: Value) -> None: ...
    def verify(self) -> bool: ...
    def walk(self, callback: Callable[[Operation], WalkResult], walk_order: WalkOrder = ...) -> None: ...

class Operation(_OperationBase):
    opview: OpView
    context: Context
    @staticmethod
    def create(
        name: str,
        results: Sequence[Type] | None = None,
        operands: Sequence[Value] | None = None,
        attributes: dict[str, Attribute] | None = None,
        *,
        regions: int = 0,
    ) -> Operation: ...

class OpView(_OperationBase):
    OPERATION_NAME: str

class OpOperand:
    owner: OpView
    operand_number: int

class Value:
    type: Type
    location: Location
    @property
    def owner(self) -> Operation:
        """What computes the value; a `BlockArgument`, to be told first, has a block."""
    @property
    def uses(self) -> Iterator[OpOperand]: ...
    def get_name(self) -> str: ...
    def replace_all_uses_with(self, other: Value) -> None: ...
    def set_type(self, type: Type) -> None: ...

class OpResult(Value):
    result_number: int

class BlockArgument(Value):
    def __init__(self, value: Value) -> None: ...
    arg_number: int
    @property
    def owner(self) -> Block: ...  # type: ignore[override]

class Block:
    arguments: _List[BlockArgument]
    operations: _List[OpView]
    owner: OpView
    region: Region
    def add_argument(self, type: Type, loc: Location) -> BlockArgument: ...
    def append(self, operation: _OperationBase) -> None: ...
    def create_after(self, *types: Type) -> Block: ...

class Region:
    blocks: _Blocks
    owner: OpView

class SymbolTable:
    def __init__(self, operation: _OperationBase) -> None: ...
    def __contains__(self, name: str) -> bool: ...
    @staticmethod
    def set_symbol_name(symbol: _OperationBase, name: str) -> None: ...
    @staticmethod
    def replace_all_symbol_uses(old_symbol: str, new_symbol: str, from_op: _OperationBase) -> None: ...

# -- types -------------------------------------------------------------------------------------------------------------

class Type:
    def __init__(self, cast_from_type: Type) -> None: ...
    @staticmethod
    def parse(text: str, context: Context | None = None) -> Type: ...

class IndexType(Type):
    @staticmethod
    def get() -> IndexType: ...

class IntegerType(Type):
    width: int
    is_signless: bool
    is_signed: bool
    is_unsigned: bool
    @staticmethod
    def get_signless(width: int) -> IntegerType: ...

class FloatType(Type):
    width: int

class BF16Type(FloatType): ...
class F16Type(FloatType): ...
class F32Type(FloatType): ...

class F64Type(FloatType):
    @staticmethod
    def get() -> F64Type: ...

class ShapedType(Type):
    element_type: Type
    has_static_shape: bool
    rank: int
    shape: list[int]
    @staticmethod
    def get_dynamic_size() -> int: ...
    @staticmethod
    def get_dynamic_stride_or_offset() -> int: ...

class MemRefType(ShapedType):
    layout: Attribute
    memory_space: Attribute | None
    @staticmethod
    def get(
        shape: Sequence[int], element_type: Type, layout: Attribute | None = None, memory_space: Attribute | None = None
    ) -> MemRefType: ...
    def get_strides_and_offset(self) -> tuple[list[int], int]: ...

class FunctionType(Type):
    inputs: list[Type]
    results: list[Type]
    @staticmethod
    def get(inputs: Sequence[Type], results: Sequence[Type]) -> FunctionType: ...

# -- attributes --------------------------------------------------------------------------------------------------------

class Attribute:
    def __init__(self, cast_from_attr: Attribute) -> None: ...
    @staticmethod
    def parse(text: str, context: Context | None = None) -> Attribute: ...

class UnitAttr(Attribute):
    @staticmethod
    def get() -> UnitAttr: ...

class BoolAttr(Attribute):
    value: bool

class IntegerAttr(Attribute):
    type: Type
    value: int
    @staticmethod
    def get(type: Type, value: int) -> IntegerAttr: ...

class FloatAttr(Attribute):
    type: Type
    value: float
    @staticmethod
    def get(type: Type, value: float) -> FloatAttr: ...

class StringAttr(Attribute):
    value: str
    @staticmethod
    def get(value: str, context: Context | None = None) -> StringAttr: ...

class AffineExpr: ...

class AffineConstantExpr(AffineExpr):
    value: int

class AffineDimExpr(AffineExpr):
    position: int

class AffineSymbolExpr(AffineExpr):
    position: int

class AffineBinaryExpr(AffineExpr):
    lhs: AffineExpr
    rhs: AffineExpr

class AffineAddExpr(AffineBinaryExpr): ...
class AffineModExpr(AffineBinaryExpr): ...
class AffineFloorDivExpr(AffineBinaryExpr): ...
class AffineCeilDivExpr(AffineBinaryExpr): ...

class AffineMulExpr(AffineExpr):
    lhs: AffineExpr
    rhs: AffineExpr

class AffineMap:
    n_dims: int
    n_inputs: int
    results: _List[AffineExpr]

class AffineMapAttr(Attribute):
    value: AffineMap

class TypeAttr(Attribute):
    value: Type
    @staticmethod
    def get(value: Type) -> TypeAttr: ...

class FlatSymbolRefAttr(Attribute):
    value: str
    @staticmethod
    def get(value: str) -> FlatSymbolRefAttr: ...

class _Items(Attribute, Generic[_A]):
    def __getitem__(self, index: int, /) -> _A: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_A]: ...

class ArrayAttr(_Items[Attribute]):
    @staticmethod
    def get(attributes: Sequence[Attribute]) -> ArrayAttr: ...

class DenseI32ArrayAttr(_Items[int]): ...
class DenseI64ArrayAttr(_Items[int]): ...

class DenseElementsAttr(Attribute):
    type: Type
    is_splat: bool
    def get_splat_value(self) -> Attribute: ...
    def __len__(self) -> int: ...

class DenseIntElementsAttr(DenseElementsAttr):
    def __iter__(self) -> Iterator[int]: ...
    def __getitem__(self, index: int, /) -> int: ...
