"""Disjoint sets of what belongs together (Galler and Fischer 1964)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Member = TypeVar("Member", bound=Hashable)


class DisjointSets(Generic[Member]):
    """Each member is a set of its own until it is joined to another; new ones are taken in when asked for."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self._parent = {member: member for member in members}

    def join(self, one: Member, other: Member) -> bool:
        """Make one set of two members'; whether they were in different ones."""
        a, b = self._root(one), self._root(other)
        self._parent[a] = b
        return a != b

    def groups(self) -> list[list[Member]]:
        """The sets, in the order of their first members; members in the order in which they came."""
        found: dict[Member, list[Member]] = {}
        for member in list(self._parent):
            found.setdefault(self._root(member), []).append(member)
        return list(found.values())

    def _root(self, member: Member) -> Member:
        parent = self._parent
        while parent.setdefault(member, member) != member:
            # Ways that are gone are halved, so that the next are short.
            parent[member] = member = parent[parent[member]]
        return member
