"""Ctrl-C at any moment of the writing of an object: nothing of it is left."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1.dataset import targets
from ags1.dataset.targets import LocalTarget

WHOLE = b"data"


def write_whole(target: LocalTarget) -> None:
    target.write_new("z.ags1", WHOLE)


def write_in_pieces(target: LocalTarget) -> None:
    with target.open_new("sub/z.ags1", 8) as output:
        output.write(b"two ")
        output.write(b"parts")
        raise KeyboardInterrupt


def interrupted_at(line: int, write: Callable[[LocalTarget], None], target: LocalTarget) -> bool:
    """Raise KeyboardInterrupt at a line of the module that is run; return whether there are so many."""
    seen = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != targets.__file__ or frame.f_code.co_name in ("_remove", "_abort", "_close"):
            return None
        # A signal is noticed between two lines.
        if event in ("line", "return"):
            seen += 1
            if seen == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        write(target)
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen >= line


@pytest.mark.parametrize("write", [write_whole, write_in_pieces])
def test_an_interrupt_leaves_no_part_of_an_object(write: Callable[[LocalTarget], None], tmp_path: Path) -> None:
    line, left = 0, []
    while True:
        line += 1
        directory = tmp_path / str(line)
        target = LocalTarget(str(directory))
        is_within = interrupted_at(line, write, target)
        target.close()
        gc.collect()
        if not is_within:
            break
        # Whole: it was complete before the interrupt.
        left += [path for path in directory.rglob("*.ags1") if path.read_bytes() != WHOLE]
    assert line > 8
    assert left == []
