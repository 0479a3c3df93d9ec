"""Count the words of each part of the documentation: ``python -m buildtools.wordcount``.

Blocks of code and generated text do not count. The exit status is 1 if a part has more words than its limit.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"README": 900, "Start here": 3500, "How to": 9000, "Reference": 10_000, "Explanation": 4000}
GENERATED = ("api/", "results/")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_GENERATED = re.compile(r"<!-- (\w+) -->.*?<!-- end of \1 -->", re.DOTALL)
_TARGET = re.compile(r"(?<=\])\([^)]*\)")
_ENTRY = re.compile(r"^( *)- (.+?):(?: (\S+\.md))?$", re.MULTILINE)


def words(text: str) -> int:
    """Return how many words a page has for its reader."""
    for pattern in (_FENCE, _GENERATED, _TARGET):
        text = pattern.sub("", text)
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def parts() -> dict[str, dict[str, int]]:
    """Return the words of each page of each part that mkdocs.yml names, and those of README.md."""
    found = {"README": {"README.md": words((ROOT / "README.md").read_text(encoding="utf-8"))}}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    for indent, title, page in _ENTRY.findall(navigation):
        if len(indent) == 2:
            found[title] = pages = {}
        elif page and not page.startswith(GENERATED):
            pages[page] = words((ROOT / "docs" / page).read_text(encoding="utf-8"))
    return found


def main() -> int:
    """Print the counts."""
    counted = parts()
    for part, pages in counted.items():
        print(f"{sum(pages.values()):6,} of {LIMITS[part]:6,}  {part}")
        for page, count in pages.items():
            print(f"{count:16,}    {page}")
    return int(any(sum(pages.values()) > LIMITS[part] for part, pages in counted.items()))


if __name__ == "__main__":
    sys.exit(main())
