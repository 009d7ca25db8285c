"""What shall build the winner of a study, and the rules it builds by.

Imports: backends.npu, backends.npu.movement, common, compiler, device, mapper.
Imported by: eval.
"""
