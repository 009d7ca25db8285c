"""Names of files that would end a comment of generated code, or go on behind it, do not."""

from pathlib import Path

from allo_dse.backends.fpga.hls.task.pragmas import place
from allo_dse.compiler.program.tensors import SourceLocation

HOSTILE = ["a\n#error b.py", "c\\", "d*/ x.py", "e\r`f`.py", "g\u2028h.py", "$(id) <b>.py"]


def test_names_of_files_stay_in_their_comments() -> None:
    for name in HOSTILE:
        text = place(SourceLocation(str(Path("/folder") / name.replace("/", "_")), 3, 1))
        assert text.endswith(":3")
        assert not set(text) & set("\n\r\\*/`$<>\u2028\"'")
    assert place(SourceLocation("/folder/gemm npu-1.py", 3, 1)) == "gemm npu-1.py:3"
