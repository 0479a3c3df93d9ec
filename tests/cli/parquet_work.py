"""What the tests of ``ags1 parquet`` share: a directory with a Parquet file, keys, a keystore and a tree."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ags1.kms import LocalKms
from tests.checks import KEY, OTHER_KEY
from tests.cli.conftest import write_key
from tests.parquet import corpus

GIVEN = ("--footer-key", "file:k", "--column-key", "name,real=file:s")
READ = GIVEN
# A key file costs no key derivation, which would be most of the time of these tests.
KMS = ("--kms", "local:keys.json?key_file=kek")
NAMES = ("b.parquet", "p=1/a.parquet")
ROWS = 500


def prepare(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`in.parquet`, the keys `k` and `s`, the keystore `keys.json` (kf, kc, next) and the tree `lake`."""
    data = corpus.written(corpus.flat(ROWS), row_group_size=200, write_page_index=True)
    (root / "in.parquet").write_bytes(data)
    write_key(root / "s", OTHER_KEY[:16])
    write_key(root / "kek", bytes(range(200, 232)))
    monkeypatch.delenv("AGS1_KMS", raising=False)
    keys = {"kf": bytes(range(32)), "kc": bytes(range(32, 64)), "next": bytes(range(64, 96))}
    LocalKms.create(root / "keys.json", keys, key_file=root / "kek").close()
    for name in NAMES:
        path = root / "lake" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    return root


def table(path: str | Path) -> Any:
    """The rows of a plaintext file."""
    return pq.read_table(io.BytesIO(Path(path).read_bytes()), use_threads=False)


__all__ = ["GIVEN", "KEY", "KMS", "NAMES", "READ", "ROWS", "prepare", "table"]
