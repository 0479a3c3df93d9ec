"""A source as a file object reads as a plain file does."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from ags1.storage import Location, StoredFile, open_regular, open_source


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_any_reads_are_those_of_a_plain_file(kind: str, tmp_path: Path) -> None:
    chance = random.Random(kind)
    data = chance.randbytes(10_000)
    path = tmp_path / "file"
    path.write_bytes(data)
    source = open_source(data) if kind == "memory" else open_regular(Location(path))
    plain = io.BytesIO(data)
    with StoredFile(source) as stored:
        for _ in range(2000):
            action = chance.choice(["read", "readinto", "seek", "pread", "rest"])
            size = chance.choice([0, 1, 100, 5000, 20_000])
            if action == "read":
                assert stored.read(size) == plain.read(size)
            elif action == "readinto":
                mine, wanted = bytearray(size), bytearray(size)
                assert stored.readinto(mine) == plain.readinto(wanted)
                assert mine == wanted
            elif action == "seek":
                offset, whence = chance.randrange(12_000), chance.choice([0, 0, 2])
                offset = -min(offset, len(data)) if whence == 2 else offset
                assert stored.seek(offset, whence) == plain.seek(offset, whence)
            elif action == "pread":
                offset = chance.randrange(12_000)
                assert bytes(memoryview(stored.pread(offset, size))) == data[offset : offset + size]
            elif chance.random() < 0.1:
                assert stored.read() == plain.read()
            assert stored.tell() == plain.tell()
        with pytest.raises(ValueError, match="must not be negative"):
            stored.seek(-1)
    assert stored.closed
