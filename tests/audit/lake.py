"""A small lake with everything in it that an audit tells apart."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

import ags1
from ags1 import dataset, parquet
from ags1.iceberg import create_table
from ags1.kms import MemoryKms
from tests.checks import pattern

FOOTER_KEY, COLUMN_KEY, FILE_KEY = b"footer-key-12345", b"column-key-12345", b"a key of 32 bytes, for one file."
MASTER_KEYS = {"lake": b"master key 12345", "people": b"another key 1234"}
PEOPLE = pa.table(
    {"id": range(500), "name": [f"n{each}" for each in range(500)], "ssn": [str(each) for each in range(500)]}
)

PROTECTIONS = {
    "logs/a.csv": ("plaintext", "CSV"),
    "logs/b.json": ("plaintext", "JSON"),
    "logs/c.txt": ("plaintext", "text"),
    "logs/d.csv.gz": ("plaintext", "gzip"),
    "logs/e.arrow": ("plaintext", "Arrow IPC"),
    "logs/f.avro": ("plaintext", "Avro"),
    "logs/g.bin": ("unknown", ""),
    "logs/_SUCCESS": ("empty", ""),
    "streams/a.ags1": ("looks encrypted", "AGS1"),
    "streams/a.key-metadata": ("plaintext", "key metadata"),
    "streams/my.key": ("plaintext", "text"),
    "people/plain.parquet": ("plaintext", "Parquet"),
    "people/uniform.parquet": ("looks encrypted", "Parquet"),
    "people/signed.parquet": ("partly encrypted", "Parquet"),
    "people/kms.parquet": ("looks encrypted", "Parquet"),
}
"""Protection and format of each file that is in no dataset and no table."""


def client() -> MemoryKms:
    """A KMS with the lake's master keys."""
    return MemoryKms(MASTER_KEYS)


def make(lake: Path, kms: Any = None) -> Path:
    """Make it, under the master keys "lake" and "people" of a KMS."""
    kms = kms or client()
    for name in ("logs", "streams", "people"):
        (lake / name).mkdir(parents=True)
    _make_logs(lake / "logs")
    _make_streams(lake / "streams")
    _make_people(lake / "people", kms)
    raw = lake.parent / f"{lake.name}-raw"
    (raw / "day=1").mkdir(parents=True)
    (raw / "a.txt").write_bytes(b"a")
    (raw / "day=1" / "b.txt").write_bytes(pattern(5000))
    dataset.encrypt(raw, lake / "vault", kms, "lake").close()
    table = create_table(None, str(lake / "db" / "events"), PEOPLE.schema, kms=kms, key_id="lake")
    table.append(PEOPLE)
    return lake


def _make_logs(logs: Path) -> None:
    (logs / "a.csv").write_text("name,born\nAda,1815\n")
    (logs / "b.json").write_text('{"name": "Ada"}\n{"name": "Alan"}\n')
    (logs / "c.txt").write_text("Grüße aus Zürich\n")
    (logs / "d.csv.gz").write_bytes(gzip.compress(b"name,born\n" * 50))
    feather.write_feather(PEOPLE, str(logs / "e.arrow"))
    (logs / "f.avro").write_bytes(b"Obj\x01" + bytes(100))
    (logs / "g.bin").write_bytes(bytes(range(256)) * 16)
    (logs / "_SUCCESS").touch()


def _make_streams(streams: Path) -> None:
    plain = streams.parent / "streams.plain"
    plain.write_bytes(pattern(9000))
    known = ags1.encrypt_file(plain, streams / "a.ags1", FILE_KEY, aad_prefix=b"a")
    plain.unlink()
    (streams / "a.key-metadata").write_bytes(known.encode())
    (streams / "my.key").write_text(FILE_KEY.hex() + "\n")


def _make_people(people: Path, kms: Any) -> None:
    plain = people / "plain.parquet"
    pq.write_table(PEOPLE, plain)
    uniform = parquet.EncryptionConfig(FOOTER_KEY, footer_key_metadata=b"kf")
    parquet.encrypt_file(plain, people / "uniform.parquet", uniform)
    signed = parquet.EncryptionConfig(
        FOOTER_KEY, footer_key_metadata=b"kf", column_keys={"ssn": COLUMN_KEY}, plaintext_footer=True
    )
    parquet.encrypt_file(plain, people / "signed.parquet", signed)
    by_kms = parquet.EncryptionConfig.from_kms(kms, "people")
    parquet.encrypt_file(plain, people / "kms.parquet", by_kms)


def newest_metadata(table: Path) -> tuple[Path, dict[str, object]]:
    """The metadata file of a table, and its fields."""
    path = max((table / "metadata").glob("*.metadata.json"))
    fields: dict[str, object] = json.loads(path.read_text())
    return path, fields
