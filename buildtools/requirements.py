"""Print what extras of the package need, without the package: ``python -m buildtools.requirements all test``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

_PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def requirements(extras: Iterable[str]) -> list[str]:
    """Return the requirements of extras, and of the extras that these name."""
    known: dict[str, list[str]] = tomllib.loads(_PROJECT.read_text())["project"]["optional-dependencies"]
    found: dict[str, None] = {}
    left = list(extras)
    while left:
        for requirement in known[left.pop()]:
            if own := re.fullmatch(r"ags1\[(.*)\]", requirement):
                left += own[1].split(",")
            else:
                found[requirement] = None
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1:])))
