"""Schedule trees: the tasks that a folded node executes, in their order.

    Task(kernel, cls)      one task of a class
    Seq(children)          the children one after the other (made by `chain`)
    Repeat(count, child)   `count` sets of tasks through the same tree, in turn (made by `bundle`)

A tree does not identify the tasks: nodes with equal trees share one tree and differ in their leaves. Trees are
immutable, hashable and canonical, so that equal schedules are equal trees: build them with `seq` and `repeat`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from msgspec import Struct


class Task(Struct, frozen=True):
    """One task of class `cls` of the kernel at position `kernel`."""

    kernel: int
    cls: int

    @property
    def leaf_count(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Seq:
    """Children one after the other: at least two, none of them a `Seq`."""

    children: tuple[Tree, ...]
    leaf_count: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.children) < 2 or any(isinstance(child, Seq) for child in self.children):
            raise ValueError("a Seq has two or more children and no Seq among them; build it with seq()")
        object.__setattr__(self, "leaf_count", sum(child.leaf_count for child in self.children))
        object.__setattr__(self, "_hash", hash(("Seq", self.children)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` >= 2 times the same tree for different tasks; the child is not a `Repeat`."""

    count: int
    child: Task | Seq

    def __post_init__(self) -> None:
        if self.count < 2 or isinstance(self.child, Repeat):
            raise ValueError("a Repeat has a count of two or more and no Repeat as child; build it with repeat()")

    @property
    def leaf_count(self) -> int:
        return self.count * self.child.leaf_count


Tree: TypeAlias = Task | Seq | Repeat


def seq(children: Iterable[Tree]) -> Tree:
    """The children one after the other; a `Seq` among them is spliced in, a single child is itself."""
    flat: list[Tree] = []
    for child in children:
        if isinstance(child, Seq):
            flat.extend(child.children)
        else:
            flat.append(child)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def repeat(count: int, child: Tree) -> Tree:
    """`count` times `child`; once is the child itself, and a repeated `Repeat` is one `Repeat`."""
    if count == 1:
        return child
    if isinstance(child, Repeat):
        return Repeat(count * child.count, child.child)
    return Repeat(count, child)


def leaf_tasks(tree: Tree) -> Iterator[Task]:
    """The task classes a node executes, in order; `tree.leaf_count` of them."""
    if isinstance(tree, Task):
        yield tree
    elif isinstance(tree, Seq):
        for child in tree.children:
            yield from leaf_tasks(child)
    else:
        for _ in range(tree.count):
            yield from leaf_tasks(tree.child)


def first_leaves(tree: Tree) -> dict[Task, int]:
    """Each task class that a node executes, with the position of its first leaf; repetitions are not walked through."""
    found: dict[Task, int] = {}

    def visit(part: Tree, start: int) -> None:
        if isinstance(part, Task):
            found.setdefault(part, start)
        elif isinstance(part, Repeat):
            visit(part.child, start)
        else:
            for child in part.children:
                visit(child, start)
                start += child.leaf_count

    visit(tree, 0)
    return found


def text(tree: Tree, names: dict[Task, str] | None = None) -> str:
    """One line, equal for equal trees: `64x[first; 30*middle; last]`, where `30*` is a run of equal children."""
    if isinstance(tree, Task):
        return names[tree] if names else f"{tree.kernel}.{tree.cls}"
    if isinstance(tree, Repeat):
        inner = text(tree.child, names)
        return f"{tree.count}x{inner}" if isinstance(tree.child, Seq) else f"{tree.count}x[{inner}]"
    runs = ((text(child, names), sum(1 for _ in run)) for child, run in groupby(tree.children))
    return "[" + "; ".join(name if count == 1 else f"{count}*{name}" for name, count in runs) + "]"
