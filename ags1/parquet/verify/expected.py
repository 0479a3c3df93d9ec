"""The files that a caller expects in a set, and the missing ones.

A file does not contain the number of files in its set. So only a caller who knows the set can detect a file that was
removed or added. Source: Parquet encryption specification, 4.4.1: "the reader should also know the number of table
partitions and verify availability of all partition files (prefixes) from 0 to N-1".
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from typing import TypeAlias

from ags1.errors import FormatError
from ags1.support.arguments import spelled

Expected: TypeAlias = str | bytes | os.PathLike[str] | Iterable[str | bytes]

_RANGE = re.compile(r"\{([0-9]{1,18})\.\.([0-9]{1,18})\}")
_MOST = 1_000_000
_SHOWN = 10


class ExpectedFiles:
    """Names and AAD prefixes of the files of a set; each must exist once.

    A str is the name of a file, bytes are its AAD prefix. In both, ``{0..99}`` stands for the numbers from 0 to 99, and
    ``{00..99}`` for two digits each. A path is a text file with one name in each line.
    `by_prefix` is whether there are AAD prefixes.
    """

    def __init__(self, given: Expected) -> None:
        if isinstance(given, os.PathLike):
            found: list[str | bytes] = list(_lines(given))
        else:
            items = [given] if isinstance(given, (str, bytes)) else list(given)
            found = [each for item in items for each in _expanded(item)]
        if not found:
            raise ValueError(f"{spelled('expected')} names no file")
        self.by_prefix = any(isinstance(each, bytes) for each in found)
        self._by_name = any(isinstance(each, str) for each in found)
        self._missing: dict[str | bytes, None] = dict.fromkeys(found)
        self._there: set[str | bytes] = set()

    def take(self, name: str, aad_prefix: bytes | None, *, checked: bool = True) -> str | None:
        """Record an existing file; return None, or the reason why it does not belong to the set.

        `aad_prefix` is the one that its footer was authenticated with, if `checked`.
        """
        if self._by_name:
            text = self._take(name, f"the name {name!r}")
            if text is not None:
                return text
        if self.by_prefix and checked:
            if aad_prefix is None:
                return "it has no AAD prefix that was authenticated"
            return self._take(aad_prefix, f"the AAD prefix {_shown(aad_prefix)}")
        return None

    def _take(self, key: str | bytes, what: str) -> str | None:
        if key in self._missing:
            del self._missing[key]
            self._there.add(key)
            return None
        return f"{what} is there twice" if key in self._there else f"no file with {what} is expected"

    def missing(self) -> list[str]:
        """The files expected but not recorded: names, and prefixes as ``AAD prefix ...``."""
        return [each if isinstance(each, str) else f"AAD prefix {_shown(each)}" for each in self._missing]


def refuse_other_set(missing: list[str], unexpected: list[tuple[str, str]], where: str) -> None:
    """Raise FormatError if files are missing, or there are some (with the reasons) that are not expected."""
    found = [f"{each} is missing" for each in missing] + [f"{name} is not expected: {why}" for name, why in unexpected]
    if found:
        more = f"; and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else ""
        raise FormatError(f"{where} does not have the expected files: {'; '.join(found[:_SHOWN])}{more}")


def _lines(path: os.PathLike[str]) -> list[str]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return [line for line in file.read().splitlines() if line]


def _expanded(item: object) -> list[str | bytes]:
    if isinstance(item, bytes):
        return [each.encode("utf-8", "surrogateescape") for each in _ranges(item.decode("utf-8", "surrogateescape"))]
    if not isinstance(item, str):
        raise TypeError(f"expected must have names (str) and AAD prefixes (bytes), not {type(item).__name__}")
    return list(_ranges(item))


def _ranges(text: str) -> list[str]:
    """Expand the ranges of numbers in a text."""
    pieces = _RANGE.split(text)
    choices: list[list[str]] = []
    count = 1
    for first, last in zip(pieces[1::3], pieces[2::3], strict=True):
        length = int(last) - int(first) + 1
        count *= length
        if length < 1 or count > _MOST:
            raise ValueError(
                f"{spelled('expected')}: {text!r} names {'no file' if length < 1 else 'more than a million files'}"
            )
        width = len(first) if first.startswith("0") else 0
        choices.append([f"{number:0{width}d}" for number in range(int(first), int(last) + 1)])
    literals = pieces[0::3]
    return [
        "".join(itertools.chain.from_iterable(itertools.zip_longest(literals, chosen, fillvalue="")))
        for chosen in itertools.product(*choices)
    ]


def _shown(prefix: bytes) -> str:
    text = prefix.decode("utf-8", "replace")
    return repr(text) if text.isprintable() and "\ufffd" not in text else f"hex:{prefix.hex()}"
