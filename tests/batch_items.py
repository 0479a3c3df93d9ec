"""Items for batches, and what opens each stream of a batch without ags1."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.checks import KEY, pattern

ITEMS: list[bytes] = [b"one", b"", b"a much longer item than views keep inline", b"four" * 100, b"", b"x"]
NULLS: list[bytes | None] = [b"one", None, b"", b"a much longer item than views keep inline", None, b"last"]
SAME: list[bytes] = [pattern(16, seed) for seed in range(7)]


def pair_of(items: Sequence[bytes], kind: Any = np.int64) -> tuple[bytes, Any]:
    """Items as (data, offsets)."""
    return b"".join(items), np.array([0, *itertools.accumulate(map(len, items))], kind)


def texts(results: Any) -> list[bytes | None]:
    """Items of a batch as bytes."""
    return [None if item is None else bytes(item) for item in results]


def opened(streams: Any, key: bytes = KEY, prefixes: Sequence[bytes] | None = None) -> list[bytes | None]:
    """Every stream, opened by AESGCM of `cryptography`, which knows nothing of ags1."""
    found: list[bytes | None] = []
    for index, stream in enumerate(streams):
        prefix = prefixes[index] if prefixes is not None else b""
        if stream is None:
            found.append(None)
            continue
        content = bytes(stream)
        assert content[:8] == b"AGS1" + (1 << 20).to_bytes(4, "little")
        found.append(AESGCM(key).decrypt(content[8:20], content[20:], prefix + bytes(4)))
    return found
