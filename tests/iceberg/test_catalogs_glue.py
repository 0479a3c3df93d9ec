"""Commits to AWS Glue, as moto has it: exactly one of several wins, and nothing is left of those that lose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.glue import GlueCatalog

from ags1.errors import ConflictError, UnsupportedError
from ags1.expected import Expected
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from tests.iceberg.catalog_cases import (
    changed,
    check_conversions,
    check_log,
    check_rekeys,
    create_in,
    fields_of,
    metadata_files,
    race,
    with_snapshot,
)
from tests.iceberg.glue import KEYS, glue_server


@pytest.fixture(scope="module")
def glue_url() -> Iterator[str]:
    with glue_server() as url:
        yield url


class GlueCase:
    """A catalog with a database, and a table in it."""

    def __init__(self, url: str, directory: Path) -> None:
        self._url = url
        self.directory = directory / "t"
        self.database = f"db_{abs(hash(str(directory)))}"
        self.catalog().create_namespace(self.database)
        create_in(self.catalog(), (self.database, "t"), fields_of(str(self.directory)))

    def catalog(self) -> GlueCatalog:
        return GlueCatalog("glue", **{"glue.endpoint": self._url, **KEYS})

    def open(self) -> CatalogTable:
        return catalog_table(self.catalog(), (self.database, "t"))

    @property
    def table(self) -> dict[str, Any]:
        found: dict[str, Any] = self.catalog().glue.get_table(DatabaseName=self.database, Name="t")["Table"]
        return found


@pytest.fixture
def case(glue_url: str, tmp_path: Path) -> GlueCase:
    return GlueCase(glue_url, tmp_path)


def test_a_commit_is_what_everybody_loads_next(case: GlueCase) -> None:
    table = case.open()
    state = table.load()
    after = table.commit(state, with_snapshot(state, str(case.directory)))
    fields = changed(after, a="1", owner=None)
    schema = {**fields["schemas"][0], "schema-id": 1}
    schema["fields"] = [*schema["fields"], {"id": 3, "name": "more", "required": False, "type": "timestamptz"}]
    fields["schemas"], fields["current-schema-id"], fields["last-column-id"] = [*fields["schemas"], schema], 1, 3
    last = table.commit(after, fields)
    loaded = case.open().load()
    assert loaded.document.text == last.document.text
    assert loaded.document.fields["snapshots"][0]["key-id"] == "list-key"
    check_log(loaded, state, after)
    found = case.table
    assert found["Parameters"]["metadata_location"] == last.metadata_location
    assert found["Parameters"]["previous_metadata_location"] == after.metadata_location
    assert found["Parameters"]["a"] == "1"
    assert "owner" not in found["Parameters"]
    assert [each["Type"] for each in found["StorageDescriptor"]["Columns"]] == ["bigint", "string", "timestamp"]


def test_the_catalog_vouches_for_no_location_that_only_the_metadata_file_names(case: GlueCase, tmp_path: Path) -> None:
    victim = str(tmp_path / "victim")
    for name in ("location", "write.data.path", "write.metadata.path"):
        path = Path(case.table["Parameters"]["metadata_location"])
        text = path.read_text()
        fields = json.loads(text)
        (fields if name == "location" else fields["properties"])[name] = victim
        path.write_text(json.dumps(fields))
        before, table = case.table, case.open()
        state = table.load()
        with pytest.raises(UnsupportedError, match=f"{victim}/.*only the table's own files name it"):
            table.commit(state, changed(state, a="1"))
        assert case.table == before
        assert list((case.directory / "metadata").iterdir()) == [path]
        assert not Path(victim).exists()
        path.write_text(text)
    allowed = catalog_table(case.catalog(), (case.database, "t"), expected=Expected(allowed_locations=[victim]))
    state = allowed.load()
    allowed.commit(state, changed(state, **{"write.data.path": victim}))
    assert victim in case.open().load().locations


def test_of_many_committers_at_once_exactly_one_wins(case: GlueCase) -> None:
    for _ in range(3):
        before = metadata_files(case.directory)
        refused, made = race([case.open() for _ in range(4)], lambda state, who: changed(state, who=str(who)))
        assert (refused, len(made)) == (3, 1)
        assert case.open().load().metadata_location == made[0].metadata_location
        assert len(metadata_files(case.directory) - before) == 1


def test_a_state_that_is_not_the_newest_is_refused_and_leaves_nothing(case: GlueCase) -> None:
    mine, other = case.open(), case.open()
    state = mine.load()
    other.commit(state, changed(state, who="other"))
    before = metadata_files(case.directory)
    with pytest.raises(ConflictError, match="another writer has committed"):
        mine.commit(state, changed(state, who="me"))
    with pytest.raises(FileExistsError, match="already"):
        create_in(case.catalog(), (case.database, "t"), fields_of(str(case.directory)))
    assert metadata_files(case.directory) == before


def test_a_request_that_is_repeated_after_its_reply_was_lost_is_no_conflict(case: GlueCase) -> None:
    table = case.open()
    state = table.load()
    glue: Any = table._glue  # type: ignore[attr-defined]

    def twice(params: Any, **_: Any) -> None:
        # As the client does it: the first request arrives, and the reply to it does not.
        glue.meta.events.unregister("before-call.glue.UpdateTable", twice)
        glue.update_table(**json.loads(params["body"]))

    glue.meta.events.register("before-call.glue.UpdateTable", twice)
    after = table.commit(state, changed(state, a="1"))
    assert case.table["Parameters"]["metadata_location"] == after.metadata_location


def test_what_is_not_there_is_told(case: GlueCase) -> None:
    with pytest.raises(FileNotFoundError, match="no such table"):
        catalog_table(case.catalog(), (case.database, "none")).load()
    with pytest.raises(OSError, match="Glue refused"):
        create_in(case.catalog(), ("nowhere", "t"), fields_of(str(case.directory)))
    assert len(metadata_files(case.directory)) == 1


def test_a_table_is_made_written_and_converted(case: GlueCase) -> None:
    names = ((case.database, "rows"), (case.database, "copy"))
    check_conversions(case.catalog(), names, case.directory.with_name("rows"))
    found = case.catalog().glue.get_table(DatabaseName=case.database, Name="rows")["Table"]
    assert found["Parameters"]["encryption.key-id"] == "keyB"


def test_tables_are_rekeyed_and_maintained(case: GlueCase, tmp_path: Path) -> None:
    check_rekeys(case.catalog(), case.database, tmp_path)
