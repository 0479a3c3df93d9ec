"""Tables of results that stand in the documentation, between marks that a command finds again."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def write_section(page: str, name: str, text: str) -> None:
    """Replace what stands between ``<!-- NAME -->`` and ``<!-- end of NAME -->`` in a page."""
    path = ROOT / page
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})", re.DOTALL)
    old = path.read_text(encoding="utf-8")
    new, count = pattern.subn(lambda _: f"\n{text}\n\n", old)
    if count != 1:
        raise ValueError(f"{page} has {count} places for {name}, not one")
    path.write_text(new, encoding="utf-8")
