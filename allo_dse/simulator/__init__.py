"""Networks of processes and bounded FIFOs, exactly timed: a product of its own.

It knows streams, tasks, operation tables and shared resources, and nothing of programs, mappings or devices: it
imports `ir` and `errors` only. Floors, each importing those before it: `codegen` (machine code of task bodies and of
the scheduler), `network` (what a run executes, as data), `engine` (runs, deadlocks, timelines), `steady` (exact times
of long regular runs), `trace` (recorded operations), `replay` (their times at other depths). `docs/timing.md` defines
when an operation happens.
"""
