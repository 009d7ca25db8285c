"""Designs measured outside this package: folders of files that other tools read, any command, and the NPU itself.

Imports: backends.npu.allo, backends.npu.movement, common, device, eval, lang, space.
Imported by: backends.npu, networks.
"""
