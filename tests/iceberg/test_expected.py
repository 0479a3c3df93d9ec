"""What a caller knows of a table beforehand: a table that is otherwise is refused at load, and plaintext by default."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from ags1.cli import main
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.iceberg import (
    EncryptedFileIO,
    create_table,
    decrypt_table,
    expire_snapshots,
    load_table,
    open_table,
    rekey_table,
)
from ags1.iceberg.catalogs import CatalogTable
from ags1.iceberg.catalogs.file import FileTable
from ags1.iceberg.catalogs.glue import GlueTable
from ags1.iceberg.catalogs.hive import HiveTable
from ags1.iceberg.catalogs.rest import RestTable
from ags1.iceberg.catalogs.sql import SqlTable
from ags1.kms import MemoryKms
from tests.checks import every

KEYS = {"lake": bytes(range(16)), "next": bytes(range(16, 32))}
ROWS = pyarrow.table({"id": [1, 2, 3]})
OTHER_HASH = base64.b64encode(bytes(32)).decode()


class Silent(MemoryKms):
    """A KMS that must not be asked."""

    def __init__(self) -> None:
        super().__init__({})

    def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> Any:
        raise AssertionError("the KMS was asked")


@dataclass
class Lake:
    """A table in a catalog, and a copy of its metadata file in a directory that has nothing else."""

    directory: Path
    catalog: SqlCatalog
    bare: str

    def rows(self, kms: MemoryKms, **options: Any) -> int:
        return load_table(self.catalog, "db.t", kms=kms, **options).scan().count()


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr("ags1.kms.load", lambda url: Silent())
    catalog = SqlCatalog("sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("db")
    table = create_table(catalog, "db.t", ROWS.schema, kms=MemoryKms(KEYS), key_id="lake")
    table.append(ROWS)
    bare = tmp_path / "bare" / "metadata" / Path(table.metadata_location).name
    bare.parent.mkdir(parents=True)
    bare.write_bytes(Path(table.metadata_location.removeprefix("file://")).read_bytes())
    yield Lake(tmp_path, catalog, str(bare))
    catalog.engine.dispose()


def static(lake: Lake, **expected: str) -> object:
    properties = {f"ags1.{name.replace('_', '-')}": text for name, text in expected.items()}
    return StaticTable.from_metadata(lake.bare, {"py-io-impl": "ags1.iceberg.EncryptedFileIO", **properties})


def emptied(lake: Lake) -> Lake:
    for path in lake.directory.rglob("*"):
        if path.suffix in (".avro", ".parquet", ".puffin"):
            path.unlink()
    return lake


# Each has only the metadata file to read: another request would end in a FileNotFoundError.
ENTRIES: dict[str, Callable[..., object]] = {
    "open_table": lambda lake, **more: open_table(lake.bare, Silent(), **more),
    "load_table, a directory": lambda lake, **more: load_table(
        None, str(Path(lake.bare).parents[1]), kms=Silent(), **more
    ),
    "load_table, a file": lambda lake, **more: load_table(None, lake.bare, kms=Silent(), **more),
    "load_table, a catalog": lambda lake, **more: load_table(emptied(lake).catalog, "db.t", kms=Silent(), **more),
    "PyIceberg": static,
}
MISMATCHES: dict[str, tuple[dict[str, str], type[Exception], str]] = {
    "another master key": ({"table_key_id": "next"}, KeyAccessError, "under the master key 'lake', and 'next' is exp"),
    "another hash": ({"metadata_hash": OTHER_HASH}, AuthenticationError, "and AAAA.* is expected"),
}


@every("mismatch", MISMATCHES)
@every("entry", ENTRIES)
def test_a_table_that_is_not_as_expected_is_refused_at_load_and_nothing_else_is_read(
    lake: Lake, entry: str, mismatch: str
) -> None:
    expected, kind, message = MISMATCHES[mismatch]
    ENTRIES[entry](lake)
    with pytest.raises(kind, match=message):
        ENTRIES[entry](lake, **expected)


COMMANDS = ("scan", "files", "audit", "verify", "inspect")


@every("command", COMMANDS)
def test_every_command_refuses_what_is_not_expected_before_it_reads(
    lake: Lake, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option, value in (("--expected-key-id", "next"), ("--expected-metadata-hash", OTHER_HASH)):
        assert main(["iceberg", command, lake.bare, "--kms", "aws:", option, value]) in (1, 3)
        said = capsys.readouterr()
        assert f"{value}{'' if value == OTHER_HASH else chr(39)} is expected" in said.err
        assert said.out == ""


@every("kind", [FileTable, GlueTable, HiveTable, RestTable, SqlTable])
def test_every_catalog_checks_in_the_same_place(kind: type[CatalogTable]) -> None:
    assert kind.load is CatalogTable.load


def test_a_current_snapshot_under_another_master_key_is_refused_whatever_the_property_says(lake: Lake) -> None:
    path = Path(lake.bare)
    text = path.read_text()
    path.write_text(text.replace('"encryption.key-id":"lake"', '"encryption.key-id":"next"'))
    assert path.read_text() != text
    for entry in ("open_table", "load_table, a file", "PyIceberg"):
        with pytest.raises(KeyAccessError, match=r"key encryption key '.*': is under the master key 'lake'"):
            ENTRIES[entry](lake, table_key_id="next")


def test_own_commits_change_what_is_expected(lake: Lake) -> None:
    kms = MemoryKms(KEYS)
    table = load_table(lake.catalog, "db.t", kms=kms, table_key_id="lake")
    rekey_table(table, key_id="next")
    assert table.refresh().scan().count() == 3
    rekey_table(table, data_keys=True, expire=True)
    assert table.refresh().append(ROWS).added_rows == 3
    assert lake.rows(kms, table_key_id="next") == 6
    with pytest.raises(KeyAccessError, match="'lake' is expected"):
        lake.rows(kms, table_key_id="lake")


def test_a_master_key_expects_an_encrypted_table(lake: Lake) -> None:
    kms = MemoryKms(KEYS)
    decrypt_table(load_table(lake.catalog, "db.t", kms=kms), expire=True)
    with pytest.raises(KeyAccessError, match="has no master key, and 'lake' is expected"):
        load_table(lake.catalog, "db.t", kms=kms, table_key_id="lake")
    assert lake.rows(kms, table_key_id="lake", allow_plaintext=True) == 3


# -- plaintext -------------------------------------------------------------------------------------------------------

ROWS_OF: dict[str, Callable[[Any], int]] = {
    "to_arrow": lambda table: table.scan().to_arrow().num_rows,
    "to_record_batches": lambda table: table.scan().to_record_batches().read_all().num_rows,
    "Arrow's stream": lambda table: pyarrow.table(table.scan()).num_rows,
    "count": lambda table: table.scan().count(),
    "plan_files": lambda table: sum(each.file.record_count for each in table.scan().plan_files()),
    "a filter": lambda table: table.scan(row_filter="id > 0").count(),
    "appended rows": lambda table: table.scan(snapshot_id=table.snapshots()[-1].snapshot_id).count(),
    "PyIceberg's scan": lambda table: table.table.scan().to_arrow().num_rows,
    "a file": lambda table: pyarrow.parquet.read_table(table.io.new_input(data_file(table)).open()).num_rows,
}


def data_file(table: Any) -> str:
    files = table.files().to_pylist()
    return next(str(each["path"]) for each in files if each["kind"] == "data")


def test_rows_of_a_plaintext_table_come_out_only_where_plaintext_is_allowed(lake: Lake) -> None:
    kms = MemoryKms(KEYS)
    # First it still has snapshots that are encrypted.
    for change in (decrypt_table, expire_snapshots):
        change(load_table(lake.catalog, "db.t", kms=kms))
        loaded, allowed = (load_table(lake.catalog, "db.t", kms=kms, allow_plaintext=each) for each in (False, True))
        for refused in (loaded, open_table(loaded.metadata_location, kms)):
            for way, rows in ROWS_OF.items():
                with pytest.raises(KeyAccessError, match=r"is not encrypted.*`allow_plaintext=True`"):
                    pytest.fail(f"{way}: {rows(refused)} rows")
        assert {way: rows(allowed) for way, rows in ROWS_OF.items()} == dict.fromkeys(ROWS_OF, 3)


def test_commands_show_rows_of_a_plaintext_table_only_where_plaintext_is_allowed(
    lake: Lake, capfd: pytest.CaptureFixture[str]
) -> None:
    kms = MemoryKms(KEYS)
    table = load_table(lake.catalog, "db.t", kms=kms)
    decrypt_table(table, expire=True)
    table.refresh()
    name = data_file(table).rpartition("/")[2]
    for command in (["scan", table.metadata_location], ["cat", table.metadata_location, name]):
        assert main(["iceberg", *command]) == 3
        said = capfd.readouterr()
        assert (said.out, "--allow-plaintext" in said.err) == ("", True)
        # The bytes of a file go into no text of a test.
        if command[0] == "scan":
            assert main(["iceberg", *command, "--allow-plaintext"]) == 0
            assert capfd.readouterr().out.split() == ["id", "--", "1", "2", "3"]


def test_what_shows_no_rows_needs_no_permission(lake: Lake) -> None:
    kms = MemoryKms(KEYS)
    table = load_table(lake.catalog, "db.t", kms=kms)
    decrypt_table(table, expire=True)
    assert table.refresh().files().num_rows == 3
    assert [each.code for each in table.audit().findings] == ["table-not-encrypted"]
    assert table.verify().outcome == "not protected"
    with pytest.raises(KeyAccessError, match="is not encrypted"):
        EncryptedFileIO().new_input(data_file(table)).open()
