"""Programs with their graph."""

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.mapper.program import Program

from ..support.programs import gemm_program


def test_a_program_is_a_compiled_program_with_a_graph() -> None:
    compiled = gemm_program(64, 64, 64, Pm=2, Pn=2, Pk=2)
    program = Program.of(compiled)
    assert isinstance(program, CompiledProgram)
    assert (program.name, program.kernels, program.params) == (compiled.name, compiled.kernels, compiled.params)
    assert program.vmg.task_count == 8
    assert program.vmg is program.vmg
