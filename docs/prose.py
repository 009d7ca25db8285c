"""Count words and sentence lengths of README.md and the manual's pages.

python docs/prose.py                    # a line per page
python docs/prose.py --long             # also the sentences above 40 words
python docs/prose.py docs/tuning.md     # these pages only
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LONGEST = 40
"""Words that a sentence may have."""

_CODE_BLOCK = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
_INDENTED = re.compile(r"(?:(?<=\n\n)|^)(?:(?: {4}|\t).*\n|\n(?= {4}|\t))+", re.MULTILINE)
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_BLOCK_START = re.compile(r"^ *(?:[*+-] |\d+[.)] |#+ |> |\||={3,}|-{3,})")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*_]*\s+(?=[\"'(*_]*[A-Z0-9`])")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|Fig|No)\.")
_WORD = re.compile(r"\w")


class Prose(NamedTuple):
    """Sentences of a page, each as its words, and the number of all words, those of code blocks too."""

    sentences: tuple[tuple[str, ...], ...]
    words: int

    @property
    def average(self) -> float:
        """Words per sentence, without titles and cells of tables: both have few."""
        whole = [
            sentence for sentence in self.sentences if sentence[-1].rstrip("\"')*_").endswith((".", "!", "?", ":"))
        ]
        return sum(map(len, whole)) / max(1, len(whole))

    @property
    def longest(self) -> int:
        return max(map(len, self.sentences), default=0)

    def above(self, words: int = LONGEST) -> list[str]:
        """Sentences of more words."""
        return [" ".join(sentence) for sentence in self.sentences if len(sentence) > words]


def prose(text: str) -> Prose:
    """Split Markdown into sentences.

    Words are counted as `wc -w` does.

    A sentence ends at its full stop, at the end of its paragraph or list item, and at the border of its table cell.
    Code blocks have none; an inline code counts as one word, and a link as its text.
    """
    words = len(text.split())
    text = _INDENTED.sub("\n", _CODE_BLOCK.sub("", text))
    text = _CODE.sub("`code`", _LINK.sub(r"\1", _IMAGE.sub(r"\1", text)))
    text = _ABBREVIATIONS.sub(r"\1", text)
    found = (tuple(word for word in part.split() if _WORD.search(word)) for part in _parts(text))
    return Prose(tuple(sentence for sentence in found if sentence), words)


def _parts(text: str) -> list[str]:
    blocks: list[str] = []
    joins = False
    for line in text.splitlines():
        if line.lstrip().startswith("|"):
            blocks += line.split("|")
            joins = False
        elif not line.strip() or _BLOCK_START.match(line) or not joins:
            blocks.append(_BLOCK_START.sub("", line))
            joins = bool(line.strip()) and not line.startswith("#")
        else:
            blocks[-1] += f" {line.strip()}"
    return [sentence for block in blocks for sentence in _SENTENCE_END.split(block.strip())]


def pages() -> list[Path]:
    """README.md and what is in docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def report(paths: Sequence[Path], *, long: bool = False) -> str:
    """A line for each page, and a line for all."""
    lines = [f"{'page':<24} {'words':>6} {'average':>8} {'longest':>8} {f'above {LONGEST}':>9}"]
    read = {path.name: prose(path.read_text(encoding="utf-8")) for path in paths}
    together = tuple(sentence for page in read.values() for sentence in page.sentences)
    everything = Prose(together, sum(page.words for page in read.values()))
    for name, page in {**read, "all": everything}.items():
        above = page.above()
        lines.append(f"{name:<24} {page.words:>6,} {page.average:>8.1f} {page.longest:>8} {len(above):>9}")
        if long and name != "all":
            lines += [f"    {len(sentence.split())}: {sentence}" for sentence in above]
    return "\n".join(lines)


if __name__ == "__main__":
    given = [Path(word).resolve() for word in sys.argv[1:] if not word.startswith("-")]
    print(report(given or pages(), long="--long" in sys.argv))
