"""Hostile names through every way out."""

import csv
import io
import json
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.text import Text

from allo_dse.common.quoting import (
    csv_lines,
    file_name,
    html_text,
    markup,
    printable,
    script_json,
    shell_command,
    shell_completion,
    tcl_word,
    unquoted,
)

PIECES = st.sampled_from(
    [
        "$(touch x)", "`x`", "${IFS}", ";", "|", "&", "\\", "'", '"', "*", "~", "!", "#", " ", "=cmd()", "+1", "-O2",
        "@a", "\t", "\r", "\n", "\x1b[31m", "\x07", "\x9b", "\u202e", "\u2066", "[red]", "[/]", "[link=x]", "<script>",
        "</script>", "<!--", "]]>", "&lt;", "a", "é", "汉", "../", "\0", "\ud800",
    ]
)  # fmt: skip
NAMES = st.lists(st.one_of(PIECES, st.text(max_size=4)), max_size=6).map("".join)
BASH = shutil.which("bash") or ""


def split_by_bash(command: str) -> list[str]:
    found = subprocess.run(
        [BASH, "-c", f"printf '%s\\0' {command}"], capture_output=True, check=True, cwd="/", env={"LC_ALL": "C.UTF-8"}
    )
    return found.stdout.decode(errors="surrogateescape").split("\0")[:-1]


@given(NAMES)
@example("\x1b]0;x\x07")
def test_a_terminal_is_given_nothing_to_obey(name: str) -> None:
    shown = printable(name)
    assert all(c.isprintable() or c in "\n\t" for c in shown)
    text = Text.from_markup(f"[bold]{markup(name)}[/]")
    assert text.plain == shown
    assert {span.style for span in text.spans} <= {"bold"}


@pytest.mark.skipif(not BASH, reason="needs bash")
@settings(max_examples=60, deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=3))
@example(["a\nb", "\x1b[31m", "-n"])
def test_a_printed_command_has_these_words(words: list[str]) -> None:
    words = [word.replace("\0", "").encode(errors="replace").decode() for word in words]
    command = shell_command(words)
    assert command.isprintable()
    assert split_by_bash(command) == words
    if all(word.isprintable() for word in words):
        assert shlex.split(command) == words


@pytest.mark.skipif(not BASH, reason="needs bash")
@settings(max_examples=60, deadline=None)
@given(NAMES, st.sampled_from(["", "'", '"']))
@example("a$(touch x)b", "")
@example("a'$(touch x)'b", "'")
def test_a_completed_word_is_that_name_and_nothing_is_expanded(name: str, quote: str) -> None:
    made = shell_completion(f"runs/{name}", quote)
    if made is None:
        assert not name.isprintable() or (quote == '"' and "!" in name)
        return
    assert split_by_bash(f"{quote}{made}{quote}") == [f"runs/{name}"]
    if quote != "'":
        assert unquoted(f"{quote}{made}") == f"runs/{name}"


@given(NAMES, st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()))
@example("=HYPERLINK(1)", -3)
@example("  =1+1", -0.5)
def test_no_cell_is_a_formula_and_numbers_stay_numbers(name: str, number: float) -> None:
    text = "".join(csv_lines([name, "n"], [[name, number], [name, np.int64(-3)], [f"{-2.5}", None]]))
    cells = list(csv.reader(io.StringIO(text, newline="")))
    for cell in (cells[0][0], cells[1][0]):
        assert cell.lstrip(" ")[:1] not in ("=", "+", "-", "@", "\t", "\r", "\n", "＝") or float(cell) is not None
        spelt_out = name.replace("\0", "\\0").replace("\r", "\\r")
        assert cell in (spelt_out, f"'{spelt_out}")
    assert [row[1] for row in cells[1:]] == [str(number), "-3", ""]
    assert cells[3][0] == "-2.5"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, [name for name, _ in attrs]))


@given(NAMES)
@example('"><script>alert(1)</script>')
def test_a_page_and_a_picture_have_no_other_elements(name: str) -> None:
    page = f'<p title="{html_text(name)}">{html_text(name)}</p>'
    parser = Tags()
    parser.feed(page)
    parser.close()
    assert parser.found == [("p", ["title"])]
    ElementTree.fromstring(page)
    assert not set("\u202e\u2066\x1b") & set(page)


@given(NAMES)
@example("</script><script>")
def test_a_script_element_holds_the_json(name: str) -> None:
    text = script_json({name: name})
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == {name: name}


@given(NAMES)
def test_a_file_name_is_in_its_folder(name: str) -> None:
    made = file_name(name)
    assert made
    assert not made.startswith(".")
    assert "/" not in made
    assert "\0" not in made


@pytest.mark.skipif(shutil.which("tclsh") is None, reason="needs tclsh")
@given(st.lists(NAMES, min_size=1, max_size=20))
@example(["a} ; exec touch x ; {", "a\\", "[exit]", "$env(HOME)", "", "a\nputs b"])
@settings(max_examples=20, deadline=None)
def test_a_word_of_tcl_is_the_text(names: list[str]) -> None:
    names = [name for name in names if all(ord(c) < 0xD800 for c in name)]  # Tcl 8.6 has 16 bits for a character
    script = (
        "foreach one [list "
        + " ".join(map(tcl_word, names))
        + "] {puts [binary encode hex [encoding convertto utf-8 $one]]}"
    )
    done = subprocess.run(["tclsh"], input=script + "\n", capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [name.encode().hex() for name in names]
