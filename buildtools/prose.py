"""Spelling, doubled words and "it's" in the prose of Markdown pages: ``python -m buildtools.prose README.md docs``.

Code and addresses are left out. ``words.txt`` has the words of this project that a dictionary lacks, one a line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Container, Iterator
from pathlib import Path

WORDS = Path(__file__).with_name("words.txt")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"<!--.*?-->|``.+?``|`[^`]*`|\]\([^)]*\)|https?://\S+|<[^>\n]+>|^:::.*$", re.MULTILINE)
_WORD = re.compile(r"(?<![\w./_-])[A-Za-z]+(?:'[a-z]+)?(?![\w/_]|\.\w)")
_DOUBLED = re.compile(r"\b([A-Za-z]+)[ \n] *\1\b", re.IGNORECASE)


def prose(text: str) -> str:
    """Return a page without its code: NUL stands for each character that is left out, and lines stay lines."""
    for pattern in (_FENCE, _CODE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", "\0", found[0]), text)
    return text


def faults(text: str, known: Container[str]) -> Iterator[tuple[int, str]]:
    """Give the lines with faults, and what is wrong there; `known` has words in lower case."""
    plain = prose(text)
    for found in _WORD.finditer(plain):
        word = found[0].lower()
        if word == "it's":
            yield plain.count("\n", 0, found.start()) + 1, "write `it is`, or `its` for a possession"
        elif word.removesuffix("'s") not in known:
            yield plain.count("\n", 0, found.start()) + 1, f"unknown word: {found[0]}"
    for found in _DOUBLED.finditer(plain):
        yield plain.count("\n", 0, found.start()) + 1, f"a word twice: {found[1]}"


def main(places: list[str]) -> int:
    """Check pages and directories of pages."""
    from spellchecker import SpellChecker

    known = {*SpellChecker().word_frequency.words(), *WORDS.read_text(encoding="utf-8").split()}
    code = 0
    for place in map(Path, places):
        for page in sorted(place.rglob("*.md")) if place.is_dir() else [place]:
            for line, fault in faults(page.read_text(encoding="utf-8"), known):
                print(f"{page}:{line}: {fault}", file=sys.stderr)
                code = 1
    if code:
        print(f"words of this project belong into {WORDS}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
