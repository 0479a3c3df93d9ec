"""The metadata file that follows another one: its name, its text, its history."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from itertools import product
from pathlib import Path

import pytest

from ags1.errors import ConflictError, FormatError
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.catalogs.file import newest_metadata, next_name
from ags1.iceberg.catalogs.successor import NewMetadata, first, javas_hash, successor
from ags1.iceberg.metadata.metadata_document import version_of
from ags1.iceberg.writing.metadata import TableMetadata
from tests.iceberg.catalog_cases import changed, fields_of


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("00011-a23ed31f.metadata.json", 11),
        ("s3://b/t/metadata/00007-x.gz.metadata.json", 7),
        ("v12.metadata.json", 12),
        ("v12.gz.metadata.json", 12),
        ("v12.gzip.metadata.json", 12),
        ("v12.metadata.json.gz", 12),
        ("00012-a.gz.metadata.json", 12),
        ("s3://b/t/metadata/00012-a.metadata.json.gz", 12),
        ("12345678-1234-1234-1234-123456789012.metadata.json", None),
        ("v12.zstd.metadata.json", None),
        ("v12.metadata.json.zst", None),
        ("metadata.json", None),
        ("00011-x.json", None),
        ("snap-11.avro", None),
    ],
)
def test_the_number_of_a_metadata_file_is_in_its_name(name: str, version: int | None) -> None:
    assert version_of(name) == version


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("00009-a.metadata.json", "00010-", ".metadata.json"),
        ("99999-a.gz.metadata.json", "100000-", ".gz.metadata.json"),
        ("v9.metadata.json", "v10.metadata.json", ".metadata.json"),
        ("v9.metadata.json.gz", "v10.gz.metadata.json", ".gz.metadata.json"),
        ("00009-a.gzip.metadata.json", "00010-", ".gz.metadata.json"),
    ],
)
def test_the_next_file_has_the_next_number_and_one_name(name: str, begin: str, end: str) -> None:
    following = next_name(f"s3://lake/t/metadata/{name}")
    assert following == next_name(name)
    assert following.startswith(begin)
    assert following.endswith(end)


def test_a_file_without_a_number_has_no_next_one() -> None:
    with pytest.raises(FormatError, match="has no number"):
        next_name("final.metadata.json")


def test_the_text_is_javas() -> None:
    made = first(fields_of("file:/lake/t"))
    text = made.document.text
    assert text.startswith('{"format-version":3,"table-uuid":"')
    assert '"current-snapshot-id":null,"next-row-id":0,"refs":{},"snapshots":[]' in text
    assert "größe" in text
    assert r"so \u001F it is" in text
    assert made.metadata_hash == base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_metadata_of_any_writer_gets_the_text_that_java_makes_of_it() -> None:
    """Otherwise its hash is one that Java does not compute, and Java refuses the table."""
    lists = {"snapshots": [], "statistics": [], "partition-statistics": [], "snapshot-log": [], "metadata-log": []}
    maps = {"properties": {}, "refs": {}}
    branch = {"side": {"snapshot-id": 7, "type": "branch"}}
    for version, said, refs in product(
        (2, 3), ({"current-snapshot-id": -1}, {"current-snapshot-id": None}, {}), ({}, branch)
    ):
        java = fields_of("file:/lake/t") | lists | maps | {"format-version": version, "refs": refs}
        if version == 2:
            del java["next-row-id"]
        java["current-snapshot-id"] = None if version == 3 else -1
        expected = first(java)
        assert f'"current-snapshot-id":{"null" if version == 3 else -1},' in expected.document.text
        empty = [name for name, value in java.items() if value in ([], {})]
        for left_out in (empty[:1], empty[1:], empty):
            foreign = {name: value for name, value in java.items() if name not in ("current-snapshot-id", *left_out)}
            made = first(foreign | said)
            assert made.document.text == expected.document.text
            assert javas_hash(foreign | said) == made.metadata_hash == expected.metadata_hash


def test_a_table_without_a_current_snapshot_is_upgraded_as_java_does_it() -> None:
    for current in (-1, None):
        fields = fields_of("file:/lake/t") | {"format-version": 2, "current-snapshot-id": current}
        del fields["next-row-id"]
        metadata = TableMetadata(fields)
        metadata.set_encryption("keyA")
        made = successor("file:/lake/t/metadata/00000-x.metadata.json", fields, metadata.fields)
        assert '"current-snapshot-id":null,"next-row-id":0,' in made.document.text
        assert made.metadata_hash is not None


def test_what_java_would_write_otherwise_has_no_hash() -> None:
    fields = fields_of("file:/lake/t")
    assert javas_hash(fields | {"of-tomorrow": 1}) is None
    assert javas_hash(fields | {"snapshots": [{"snapshot-id": 1, "sequence-number": 0}]}) is None
    fields["schemas"][0]["fields"][0]["write-default"] = 1.5
    assert javas_hash(fields) is None


def test_the_log_keeps_as_many_files_as_the_table_says() -> None:
    fields = fields_of("file:/lake/t", **{"write.metadata.previous-versions-max": "2"})
    for number in range(5):
        fields = dict(successor(f"file:/lake/t/metadata/{number:05d}-x.metadata.json", fields, fields).document.fields)
    assert [each["metadata-file"][-21:] for each in fields["metadata-log"]] == [
        "00003-x.metadata.json",
        "00004-x.metadata.json",
    ]


def test_times_never_run_backwards() -> None:
    fields = fields_of("file:/lake/t")
    made = successor("file:/lake/t/metadata/00000-x.metadata.json", fields, fields, clock=lambda: 1.0)
    assert made.document.fields["last-updated-ms"] == fields["last-updated-ms"]


def test_metadata_is_compressed_where_the_table_says_so_and_hashed_as_text() -> None:
    made = first(fields_of("file:/lake/t", **{"write.metadata.compression-codec": "gzip"}))
    assert made.name.endswith(".gz.metadata.json")
    assert json.loads(gzip.decompress(made.data))["location"] == "file:/lake/t"
    text = gzip.decompress(made.data)
    assert made.metadata_hash == base64.b64encode(hashlib.sha256(text).digest()).decode()


@pytest.mark.parametrize("value", ["5", None, True])
def test_metadata_without_a_time_is_refused(value: object) -> None:
    fields = fields_of("file:/lake/t") | {"last-updated-ms": value}
    with pytest.raises(FormatError, match="last-updated-ms must be a whole number"):
        successor("file:/lake/t/metadata/00000-x.metadata.json", fields, fields)


def test_a_number_that_would_be_another_one_is_refused() -> None:
    with pytest.raises(FormatError, match="a number that cannot be written"):
        first(fields_of("file:/lake/t") | {"of-version-9": float("inf")})


def test_locations_are_spelled_as_the_table_spells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("t/metadata/00001-a.metadata.json")
    path.parent.mkdir(parents=True)
    path.write_bytes(NewMetadata(fields_of(f"file:{tmp_path}/t"), path.name).data)
    table = catalog_table(None, "t/metadata/00001-a.metadata.json")
    state = table.load()
    after = table.commit(state, changed(state, a="1"))
    assert after.metadata_location.startswith(f"file:{tmp_path}/t/metadata/00002-")
    log = after.document.fields["metadata-log"]
    assert [each["metadata-file"] for each in log] == [f"file:{tmp_path}/{path}"]
    assert len(list(path.parent.iterdir())) == 2


def test_a_file_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "v9.metadata.json").write_bytes(NewMetadata(fields_of(str(tmp_path)), "v9.metadata.json").data)
    table = catalog_table(None, str(tmp_path / "v9.metadata.json"))
    state = table.load()
    (tmp_path / "v10.metadata.json").write_text("another's commit")
    with pytest.raises(ConflictError, match="another writer has committed"):
        table.commit(state, changed(state, a="1"))
    assert (tmp_path / "v10.metadata.json").read_text() == "another's commit"
    assert {each.name for each in tmp_path.iterdir()} == {"v9.metadata.json", "v10.metadata.json"}


def test_the_newest_file_is_found_in_any_storage() -> None:
    import fsspec

    store = fsspec.filesystem("memory")
    for name in ("00003-a", "00020-b", "00007-c"):
        store.pipe(f"memory://lake/t/metadata/{name}.metadata.json", b"{}")
    try:
        for place in ("memory://lake/t/metadata", "memory://lake/t", "memory://lake/t/"):
            assert newest_metadata(place) == "memory://lake/t/metadata/00020-b.metadata.json"
        with pytest.raises(FileNotFoundError, match="no metadata files"):
            newest_metadata("memory://lake/nothing")
    finally:
        store.rm("memory://lake", recursive=True)
