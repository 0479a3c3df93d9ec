"""The check of the pages' prose finds its faults, and reads no code."""

from __future__ import annotations

import pytest

from buildtools.prose import WORDS, faults

KNOWN = {"the", "key", "of", "a", "file", "is", "lost", "and", "found"}


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("The key of a fiel is lost", [(1, "unknown word: fiel")]),
        ("The key\n\nof the\nthe file", [(3, "a word twice: the")]),
        ("The key is lost\nand it's found", [(2, "write `it is`, or `its` for a possession")]),
        ("A file's key: `teh`, ``teh `x` ``, [file](teh.md#teh), https://teh.example/teh, teh.py, docs/teh", []),
        ("The key\n\n```sh\nteh teh\n```\n\n- the\n  ```\n  teh\n  ```\n", []),
        ("| `teh` | file |\n| file | file |\n\n## Key\n\nKey of a file", []),
    ],
)
def test_what_it_finds(page: str, found: list[tuple[int, str]]) -> None:
    assert list(faults(page, KNOWN)) == found


def test_the_words_are_sorted_each_once() -> None:
    words = WORDS.read_text().split("\n")[:-1]
    assert words == sorted({each.lower() for each in words})
