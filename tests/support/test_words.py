"""Words that every report shows to people."""

from __future__ import annotations

import pytest

from ags1.support.words import counted, duration_text, printable, size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (1_100_000_000, "1.1 GB"),
        (5 * 10**12, "5.0 TB"),
        (5 * 10**15, "5000.0 TB"),
    ],
)
def test_bytes_are_shown_in_powers_of_1000(count: int, text: str) -> None:
    assert size_text(count) == text


def test_a_number_of_things_has_its_plural() -> None:
    assert [counted(count, "file") for count in (0, 1, 2, 1234)] == ["0 files", "1 file", "2 files", "1,234 files"]
    assert [counted(count, "entry", "entries") for count in (1, 2)] == ["1 entry", "2 entries"]


def test_text_of_strangers_stays_on_its_line_and_in_its_order() -> None:
    assert printable("a b \u00e9") == "a b \u00e9"
    assert printable("new\nline\x1b[31m\u202e\x7f\x9b") == r"new\nline\x1b[31m\u202e\x7f\x9b"
    assert printable("no\udcffname") == r"no\udcffname"
    assert printable("no\udcffname\n", undecodable=True) == "no\udcffname\\n"


def test_durations_are_shown_in_words() -> None:
    assert [duration_text(seconds) for seconds in (5, 120, 7200)] == ["5 s", "2 min", "2.0 h"]
