"""The largest memory of this process. Not ru_maxrss: a child begins with that of its parent."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["begin", "grown"]


def begin() -> int:
    """Forget the peak so far; return the memory that is held now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmHWM")


def grown(before: int) -> int:
    """How far the memory rose above `before` at its highest, in bytes."""
    return _status("VmHWM") - before


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10
