"""Allo as a target: designs that its AIE backend builds, up to the vendor's tools."""

from __future__ import annotations

from allo_dse.eval.target import Target

from .program_rules import MOST_TASKS
from .respell import with_fewer_transfers
from .rule import Subject
from .rules import ALLO_RULES, FIFO_DEPTH

ALLO = Target("allo", ALLO_RULES, frozenset({"host_buffers"}), MOST_TASKS, FIFO_DEPTH, with_fewer_transfers, Subject)
