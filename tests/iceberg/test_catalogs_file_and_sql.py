"""Commits to tables without a catalog and to SQL catalogs: exactly one wins, and nothing is left of those that lose."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.errors import ConflictError, FormatError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, RefusedError, catalog_table, loaded
from ags1.iceberg.catalogs.file import newest_metadata
from ags1.iceberg.catalogs.successor import NewMetadata
from tests.iceberg.catalog_cases import (
    changed,
    check_conversions,
    check_log,
    create_in,
    fields_of,
    metadata_files,
    race,
    text_of,
    with_snapshot,
)
from tests.servers.s3 import S3Server

Open = Callable[[], CatalogTable]


@contextlib.contextmanager
def made(request: pytest.FixtureRequest, kind: str, directory: Path) -> Iterator[SqlCatalog]:
    """A SQL catalog with a namespace."""
    uri = f"sqlite:///{directory}/catalog.db"
    if kind == "postgresql":
        uri = request.getfixturevalue("postgres_server").make_database()
    found = SqlCatalog("sql", uri=uri, warehouse=str(directory))
    found.create_namespace("db")
    yield found
    found.engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlCatalog]:
    """A catalog in each database that PyIceberg knows."""
    with made(request, request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=["file", "sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A catalog or none, and the name of a new table."""
    with contextlib.ExitStack() as stack:
        arguments: tuple[Any, str] = (None, str(tmp_path / "t"))
        if request.param != "file":
            arguments = (stack.enter_context(made(request, request.param, tmp_path)), "db.t")
        create_in(*arguments, fields_of(str(tmp_path / "t")))
        yield arguments


@pytest.fixture
def table(place: tuple[Any, str]) -> Open:
    """What opens the table, again and again."""
    return lambda: catalog_table(*place)


def refuse_updates(catalog: SqlCatalog) -> None:
    """Have the catalog's database refuse every commit."""
    from sqlalchemy import text

    body = "BEGIN SELECT RAISE(ABORT, 'not today'); END"
    with catalog.engine.begin() as connection:
        if catalog.engine.dialect.name == "postgresql":
            raising = "BEGIN RAISE EXCEPTION 'not today'; END"
            connection.execute(text(f"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ {raising} $$"))
            body = "FOR EACH ROW EXECUTE FUNCTION no()"
        connection.execute(text(f"CREATE TRIGGER no BEFORE UPDATE ON iceberg_tables {body}"))


def test_a_commit_is_what_everybody_loads_next(table: Open) -> None:
    mine = table()
    start = mine.load()
    first = mine.commit(start, changed(start, a="1"))
    second = mine.commit(first, with_snapshot(first, "s3://lake/t"))
    loaded = table().load()
    assert loaded.metadata_location == second.metadata_location
    assert loaded.document.text == second.document.text
    assert text_of(loaded)["properties"]["a"] == "1"
    check_log(loaded, start, first)
    assert text_of(loaded)["last-updated-ms"] >= text_of(first)["last-updated-ms"] > 1_700_000_000_000


def test_keys_and_unknown_fields_survive(table: Open) -> None:
    mine = table()
    state = mine.load()
    fields = with_snapshot(state, "s3://lake/t") | {"of-tomorrow": [{"x": 1}]}
    found = text_of(mine.commit(state, fields))
    assert found["of-tomorrow"] == [{"x": 1}]
    assert found["snapshots"][0]["key-id"] == "list-key"
    assert [each["key-id"] for each in found["encryption-keys"]] == ["kek", "list-key"]


def test_a_state_that_is_not_the_newest_is_refused_and_leaves_nothing(table: Open, tmp_path: Path) -> None:
    mine, other = table(), table()
    state = mine.load()
    winner = other.commit(state, changed(state, who="other"))
    before = metadata_files(tmp_path / "t")
    with pytest.raises(ConflictError, match="another writer has committed"):
        mine.commit(state, changed(state, who="me"))
    assert metadata_files(tmp_path / "t") == before
    assert table().load().metadata_location == winner.metadata_location


def test_of_many_committers_at_once_exactly_one_wins(table: Open, tmp_path: Path) -> None:
    for number in range(5):
        before = metadata_files(tmp_path / "t")
        refused, made = race([table() for _ in range(6)], lambda state, who: changed(state, who=str(who)))
        assert (refused, len(made)) == (5, 1), number
        assert table().load().metadata_location == made[0].metadata_location
        assert len(metadata_files(tmp_path / "t") - before) == 1


def test_the_name_of_a_new_table_is_taken_once(place: tuple[Any, str], tmp_path: Path) -> None:
    before = metadata_files(tmp_path / "t")
    with pytest.raises(FileExistsError, match="already"):
        create_in(*place, fields_of(str(tmp_path / "t")))
    assert metadata_files(tmp_path / "t") == before


# -- tables without a catalog ----------------------------------------------------------------------------------


def test_a_named_file_stands_for_what_was_committed_on_top_of_it(tmp_path: Path) -> None:
    start = create_in(None, str(tmp_path), fields_of(str(tmp_path))).load()
    by_name = catalog_table(None, start.metadata_location)
    after = by_name.commit(by_name.load(), changed(start, a="1"))
    assert by_name.load().metadata_location == after.metadata_location
    assert catalog_table(None, start.metadata_location).load().metadata_location == after.metadata_location


def test_a_file_with_a_higher_number_that_others_wrote_is_not_passed_over(tmp_path: Path) -> None:
    start = create_in(None, str(tmp_path), fields_of(str(tmp_path))).load()
    (tmp_path / "metadata" / "00007-of-a-catalog.metadata.json").write_text("{}")
    table = catalog_table(None, start.metadata_location)
    state = table.load()
    assert state.metadata_location == start.metadata_location
    with pytest.raises(ConflictError, match="00007-of-a-catalog"):
        table.commit(state, changed(state, a="1"))


def test_committers_that_differ_in_compression_want_the_same_file(tmp_path: Path) -> None:
    create_in(None, str(tmp_path), fields_of(str(tmp_path)))
    one, two = (catalog_table(None, str(tmp_path)) for _ in range(2))
    state = one.load()
    one.commit(state, changed(state, **{"write.metadata.compression-codec": "gzip"}))
    with pytest.raises(ConflictError):
        two.commit(state, changed(state, a="1"))


@pytest.mark.parametrize("name", ["v3.metadata.json", "v3.gz.metadata.json"])
def test_a_hadoop_catalogs_names_and_hint_go_on(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "metadata"
    directory.mkdir()
    (directory / name).write_bytes(NewMetadata(fields_of(str(tmp_path)), name).data)
    (directory / "version-hint.text").write_text("3")
    table = catalog_table(None, str(tmp_path))
    state = table.load()
    after = table.commit(state, changed(state, a="1"))
    assert after.metadata_location == str(directory / name.replace("3", "4"))
    assert (directory / "version-hint.text").read_text() == "4"
    assert table.load().document.text == after.document.text


def test_storage_without_create_if_absent_is_refused_before_anything_is_written() -> None:
    with pytest.raises(UnsupportedError, match="only if it is absent"):
        create_in(None, "memory://lake/t", fields_of("memory://lake/t"))
    with pytest.raises(UnsupportedError, match="use a catalog"):
        catalog_table(None, "memory://lake/t").check_can_encrypt()


def test_two_files_of_one_number_and_none_are_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such metadata file"):
        catalog_table(None, str(tmp_path / "none")).load()
    with pytest.raises(FileNotFoundError, match="no metadata files"):
        catalog_table(None, str(tmp_path)).load()
    (tmp_path / "metadata").mkdir()
    for name in ("a", "b"):
        (tmp_path / "metadata" / f"00003-{name}.metadata.json").write_text("{}")
    with pytest.raises(FormatError, match=r"00003-a.metadata.json or 00003-b"):
        catalog_table(None, str(tmp_path)).load()


def test_of_many_committers_to_an_object_store_exactly_one_wins(s3_server: S3Server, s3_bucket: str) -> None:
    if not s3_server.atomic_create:
        pytest.skip("this server's conditional writes are not atomic")
    properties = {
        "s3.endpoint": s3_server.endpoint,
        "s3.access-key-id": s3_server.access_key,
        "s3.secret-access-key": s3_server.secret_key,
        "s3.region": s3_server.region,
    }
    url = f"s3://{s3_bucket}/t"
    create_in(None, url, fields_of(url), storage_options=properties)
    for _ in range(3):
        tables = [catalog_table(None, url, storage_options=properties) for _ in range(4)]
        refused, made = race(tables, lambda state, who: changed(state, who=secrets.token_hex(4)))
        assert (refused, len(made)) == (3, 1)
        assert tables[0].load().metadata_location == made[0].metadata_location


# -- SQL -------------------------------------------------------------------------------------------------------


def test_pyiceberg_finds_the_table_where_it_is(catalog: SqlCatalog, tmp_path: Path) -> None:
    fields = fields_of(str(tmp_path / "t")) | {"format-version": 2}
    del fields["next-row-id"]
    state = create_in(catalog, "db.t", fields).load()
    table = catalog_table(catalog, ("db", "t"))
    after = table.commit(state, changed(state, a="1"))
    assert catalog.load_table("db.t").metadata_location == after.metadata_location
    assert catalog.load_table("db.t").properties["a"] == "1"


def test_a_table_is_made_written_and_converted(catalog: SqlCatalog, tmp_path: Path) -> None:
    check_conversions(catalog, ("db.rows", "db.copy"), tmp_path / "rows")


def test_what_a_lost_connection_leaves_open_is_looked_up(
    catalog: SqlCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sqlalchemy.engine import Connection

    table = create_in(catalog, "db.t", fields_of(str(tmp_path / "t")))
    state = table.load()
    real = Connection.commit

    def committed_and_cut(self: Connection) -> None:
        real(self)
        raise ConnectionResetError("cut")

    def cut(self: Connection) -> None:
        raise ConnectionResetError("cut")

    monkeypatch.setattr(Connection, "commit", committed_and_cut)
    after = table.commit(state, changed(state, a="1"))
    assert table.load().metadata_location == after.metadata_location
    monkeypatch.setattr(Connection, "commit", cut)
    with pytest.raises(OSError, match=r"not known whether the commit of .* is made.*the table does not have it"):
        table.commit(after, changed(after, a="2"))
    assert table.load().metadata_location == after.metadata_location


def test_a_database_that_refuses_leaves_nothing(catalog: SqlCatalog, tmp_path: Path) -> None:
    table = create_in(catalog, "db.t", fields_of(str(tmp_path / "t")))
    state = table.load()
    before = metadata_files(tmp_path / "t")
    refuse_updates(catalog)
    with pytest.raises(OSError, match="not today"):
        table.commit(state, changed(state, a="1"))
    assert metadata_files(tmp_path / "t") == before


def test_rows_for_a_database_that_refuses_leave_no_file(catalog: SqlCatalog, tmp_path: Path) -> None:
    import pyarrow as pa

    from ags1.iceberg import create_table
    from ags1.kms import MemoryKms

    kms = MemoryKms({"lake": bytes(16)})
    table = create_table(catalog, "db.refused", pa.schema([("id", pa.int64())]), kms=kms, key_id="lake")
    before = sorted(tmp_path.rglob("*.*"))
    refuse_updates(catalog)
    with pytest.raises(RefusedError, match="refused"):
        table.append(pa.table({"id": [1, 2, 3]}))
    assert sorted(tmp_path.rglob("*.*")) == before


def test_tables_and_catalogs_that_are_not_there_are_told(catalog: SqlCatalog, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such table.*db\.none"):
        catalog_table(catalog, "db.none").load()
    with pytest.raises(OSError, match="no such namespace"):
        create_in(catalog, "nowhere.t", fields_of(str(tmp_path / "t")))
    assert not (tmp_path / "t" / "metadata").exists() or not metadata_files(tmp_path / "t")
    with pytest.raises(UnsupportedError, match="object is no catalog"):
        catalog_table(object(), "db.t")
    with pytest.raises(ValueError, match=r"NAMESPACE\.TABLE"):
        catalog_table(catalog, "t")


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["00002-a.metadata.json", "00010-b.metadata.json", "00009-c.metadata.json"], "00010-b.metadata.json"),
        (["v2.metadata.json", "v10.metadata.json", "version-hint.text"], "v10.metadata.json"),
        (["00001-a.metadata.json", "snap-1-x.avro", "v.metadata.json"], "00001-a.metadata.json"),
    ],
)
def test_the_newest_metadata_has_the_highest_number(tmp_path: Path, names: list[str], newest: str) -> None:
    (tmp_path / "metadata").mkdir()
    for name in names:
        (tmp_path / "metadata" / name).touch()
    assert newest_metadata(str(tmp_path)) == f"{tmp_path}/metadata/{newest}"


def test_a_catalog_that_lacks_a_package_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg import catalog
    from pyiceberg.exceptions import NotInstalledError

    def load(name: str, **properties: str) -> None:
        raise NotInstalledError("SQLAlchemy support not installed: pip install 'pyiceberg[sql-sqlite]'")

    monkeypatch.setattr(catalog, "load_catalog", load)
    with pytest.raises(ImportError, match=r"the catalog 'prod' needs one more package: SQLAlchemy.* pip install"):
        loaded("prod")
