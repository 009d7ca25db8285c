"""Allo as the builder of a study's winner, and its rules.

Imports: backends.npu, backends.npu.movement, common, compiler, device, eval, mapper.
Imported by: backends.npu, backends.npu.board.
"""
