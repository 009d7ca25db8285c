from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.study import load_studies, load_study, parse_settings

from ..support.values import present

HEAD = "from allo_dse.tune.study import Study\nfrom tests.tune.fakes import fake_study\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Any]:
    def write(text: Any, name: str = "my_study.py") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_variables_and_functions_are_found_in_order(write: Any) -> None:
    path = write(
        HEAD + "b = fake_study('b')\ndef study(size: int = 2048, tag='x'):\n    return fake_study(f'{tag}{size}')\n"
    )
    studies = load_studies(path, {"size": "64"})
    assert [s.name for s in studies] == ["b", "x64"]
    assert present(studies[1].source).settings == {"size": "64"}
    assert load_study(present(studies[1].source)).name == "x64"


def test_functions_are_known_by_their_annotation_also_as_text(write: Any) -> None:
    path = write(
        "from __future__ import annotations\n"
        + HEAD
        + "def make(n: int = 3) -> Study:\n    return fake_study(f's{n + 1}')\n"
    )
    assert load_studies(path, {"n": "4"})[0].name == "s5"


def test_a_helper_with_an_underscore_is_left_alone(write: Any) -> None:
    helper = "def _make(name) -> Study:\n    return fake_study(name)\n"
    path = write(HEAD + helper + "def mine() -> Study:\n    return _make('s')\n")
    assert [study.name for study in load_studies(path)] == ["s"]


def test_truth_values_and_numbers_are_converted_by_default_or_annotation(write: Any) -> None:
    path = write(HEAD + "def study(flag=False, x=1.0):\n    return fake_study(f'{flag}_{x / 2}')\n")
    assert load_studies(path, {"flag": "yes", "x": "3"})[0].name == "True_1.5"
    with pytest.raises(StudyError, match="--set x=fast: not of type float"):
        load_studies(path, {"x": "fast"})
    with pytest.raises(StudyError, match="--set flag=perhaps: not of type bool"):
        load_studies(path, {"flag": "perhaps"})


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("x = 1\n", "defines no study", "assign a Study"),
        ("def f(:\n", "my_study.py:1: invalid syntax", ""),
        ("\nimport no_such_module_at_all\n", "my_study.py:2: ModuleNotFoundError", ""),
        ("a = 1\nb = a / 0\n", "my_study.py:2: ZeroDivisionError", ""),
        (HEAD + "a = fake_study('t')\nb = fake_study('t')\n", "two studies named 't'", "rename one"),
        (HEAD + "def study(n):\n    return fake_study()\n", "needs n", "--set n=VALUE, or begin"),
        (HEAD + "def study():\n    return 3\n", "returned int, not a Study", ""),
        (HEAD + "def study():\n    return {}['x']\n", "my_study.py:4: KeyError", ""),
        (HEAD + "a = fake_study(objectives=[])\n", "has no objective", "minimize"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(write: Any, text: str, message: str, hint: str) -> None:
    path = write(text)
    with pytest.raises(StudyError) as caught:
        load_studies(path)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_a_syntax_error_shows_the_line_and_a_caret(write: Any) -> None:
    path = write("ok = 1\nbad = = 2\n")
    with pytest.raises(StudyError) as caught:
        load_studies(path)
    assert "my_study.py:2: invalid syntax\n    bad = = 2\n          ^" in caught.value.message


def test_unknown_settings_are_refused_with_the_nearest_name(write: Any) -> None:
    path = write(HEAD + "def study(dtype='i16'):\n    return fake_study()\n")
    with pytest.raises(StudyError) as caught:
        load_studies(path, {"dtpe": "i8"})
    assert "did you mean dtype?" in caught.value.hint
    with pytest.raises(StudyError, match="take no settings"):
        load_studies(write(HEAD + "a = fake_study()\n", "plain.py"), {"dtype": "i8"})


def test_missing_files(tmp_path: Path, write: Any) -> None:
    path = write("", "gemm.py")
    with pytest.raises(StudyError) as caught:
        load_studies(tmp_path / "gem.py")
    assert str(path) in caught.value.hint
    with pytest.raises(StudyError, match="is a directory"):
        load_studies(tmp_path)


def test_settings() -> None:
    assert parse_settings(["a=1", "b = x=y "]) == {"a": "1", "b": "x=y"}
    for wrong in ("a", "=3"):
        with pytest.raises(StudyError, match="expected name=value"):
            parse_settings([wrong])


@pytest.mark.parametrize("indented", [False, True])
def test_whatever_a_file_raises_is_said_with_its_place(write: Any, indented: bool) -> None:
    raised = "class Own(BaseException): pass\n"
    raised += "def study():\n    raise Own('mine')\n" if indented else "raise Own('mine')\n"
    with pytest.raises(StudyError, match=rf":{3 if indented else 2}: Own: mine"):
        load_studies(write(raised))


def test_studies_import_the_files_beside_them_also_where_others_have_the_same_names(tmp_path: Path) -> None:
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "helper_of_a_study.py").write_text(HEAD + f"name = {folder!r}\nown = fake_study(name)\n")
        text = HEAD + "from helper_of_a_study import name\nstudy = fake_study(name)\n"
        (tmp_path / folder / "my_study.py").write_text(text)
    load_studies(tmp_path / "one" / "helper_of_a_study.py")
    for folder in ("two", "three", "two", "one"):
        assert [s.name for s in load_studies(tmp_path / folder / "my_study.py")] == [folder]
