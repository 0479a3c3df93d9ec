"""Commits of tables: how often they are tried, what is logged of them, and the hash that names their result."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1.errors import ConflictError
from ags1.iceberg import (
    EncryptedTable,
    clean,
    create_table,
    encrypt_table,
    expire_snapshots,
    load_table,
    open_table,
    rekey_table,
)
from ags1.iceberg.catalogs import TableState
from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.metadata.locations import TableLocations
from ags1.iceberg.writing.commit import PATIENT, Retries, commit
from ags1.kms import MemoryKms
from ags1.storage import Location

KMS = MemoryKms({"lake": bytes(range(16)), "next": bytes(range(16, 32))})
ROWS = pyarrow.table({"id": [1, 2, 3]})
RETRY = "commit.retry."


def new_table(place: Path, **properties: str) -> EncryptedTable:
    return create_table(None, str(place), ROWS.schema, kms=KMS, key_id="lake", properties=properties)


class Contended:
    """A table whose commits are lost a number of times, and a clock that only its waits move."""

    def __init__(self, table: EncryptedTable, losses: int) -> None:
        assert table.catalog_table is not None
        self._inner, self.losses, self.waits = table.catalog_table, losses, list[float]()
        self.name = self._inner.name

    def load(self) -> TableState:
        return self._inner.load()

    def places(self, state: TableState) -> TableLocations:
        return self._inner.places(state)

    def commit(self, base: TableState, fields: Any) -> TableState:
        if self.losses:
            self.losses -= 1
            raise ConflictError("somebody else was faster")
        return self._inner.commit(base, fields)

    def run(self, **settings: Any) -> TableState | None:
        def attempt(state: TableState, metadata: Any, files: Any) -> bool:
            metadata.properties["a"] = "b"
            return True

        return commit(
            self,
            Location,
            attempt,
            wait=self.waits.append,
            clock=lambda: sum(self.waits),
            **settings,  # type: ignore[arg-type]
        )


def test_a_commit_is_tried_as_the_table_says(tmp_path: Path) -> None:
    cases = [
        # properties, losses, whether it is made, waits in milliseconds
        ({}, 4, True, [100, 200, 400, 800]),
        ({}, 5, False, [100, 200, 400, 800]),
        ({"num-retries": "0"}, 1, False, []),
        ({"num-retries": "7", "max-wait-ms": "300"}, 7, True, [100, 200, 300, 300, 300, 300, 300]),
        ({"num-retries": "20", "max-wait-ms": "1000"}, 20, True, None),
        ({"num-retries": "2", "min-wait-ms": "0"}, 2, True, [0, 0]),
        ({"total-timeout-ms": "500"}, 4, False, None),
    ]
    for number, (properties, losses, is_made, waits) in enumerate(cases):
        table = new_table(tmp_path / str(number), **{RETRY + name: text for name, text in properties.items()})
        contended = Contended(table, losses)
        if is_made:
            state = contended.run()
            assert state is not None
            assert state.document.fields["properties"]["a"] == "b"
        else:
            with pytest.raises(ConflictError, match=rf"attempts\. Nothing was committed.*{RETRY}num-retries"):
                contended.run()
        if waits is None:
            assert sum(contended.waits) < 1800
        else:
            assert len(contended.waits) == len(waits)
            for found, wanted in zip(contended.waits, waits, strict=True):
                assert 0.5 * wanted <= 1000 * found <= min(1.5 * wanted, 60_000)
                assert 1000 * found <= int(properties.get("max-wait-ms", 60_000))


def test_work_that_is_long_is_not_given_up_soon_unless_the_table_says_so(tmp_path: Path) -> None:
    assert Contended(new_table(tmp_path / "a"), 60).run(retries=PATIENT) is not None
    with pytest.raises(ConflictError, match="each of 2 attempts"):
        Contended(new_table(tmp_path / "b", **{f"{RETRY}num-retries": "1"}), 60).run(retries=PATIENT)


def test_writers_that_met_do_not_wait_equally_long() -> None:
    assert len({Retries().wait(3) for _ in range(20)}) > 10
    assert Retries().wait(100_000) == 60


@pytest.mark.parametrize("name", ["num-retries", "min-wait-ms", "max-wait-ms", "total-timeout-ms"])
def test_a_wrong_property_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    for number, text in enumerate(("-1", "soon", "1.5", "9" * 40)):
        table = new_table(tmp_path / str(number), **{RETRY + name: text})
        with pytest.raises(ValueError, match=f"{RETRY}{name} is '{text}'"):
            table.append(ROWS)


def test_conversions_try_again_as_the_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table(tmp_path / "t", **{f"{RETRY}num-retries": "0"})
    for _ in range(2):
        table.append(ROWS)
    catalog_table = table.catalog_table
    assert catalog_table is not None

    def lose(base: TableState, fields: Any) -> TableState:
        raise ConflictError("somebody else was faster")

    monkeypatch.setattr(catalog_table, "commit", lose)
    for change in (
        lambda: rekey_table(table, key_id="next"),
        lambda: rekey_table(table, data_keys=True),
        lambda: table.append(ROWS),
        lambda: expire_snapshots(table),
    ):
        with pytest.raises(ConflictError, match="each of 1 attempts"):
            change()
    with pytest.raises(ConflictError):
        encrypt_table(table, key_id="lake", steps=["expire"], kms=KMS)


def test_each_commit_is_logged_and_named_by_its_hash(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ags1.iceberg"):
        table = new_table(tmp_path / "t")
        hashes = [table.metadata_hash]
        for change in (
            lambda: table.append(ROWS),
            lambda: table.delete("id = 1"),
            lambda: table.upsert(pyarrow.table({"id": [2]}), ["id"]),
            lambda: rekey_table(table, key_id="next"),
            lambda: rekey_table(table, data_keys=True),
            lambda: expire_snapshots(table),
        ):
            hashes.append(change().metadata_hash)
            table.refresh()
            assert table.metadata_hash == hashes[-1]
            assert open_table(table.metadata_location, KMS, metadata_hash=hashes[-1]).scan().count() in (2, 3)
    assert len(set(hashes)) == 7
    lines = [each.getMessage() for each in caplog.records if each.name.startswith("ags1.iceberg")]
    assert [line for line in lines if "committed" in line] == lines
    for line, metadata_hash in zip(lines, hashes, strict=True):
        assert metadata_hash in line
    for key in (bytes(range(16)), bytes(range(16, 32))):
        assert key.hex() not in caplog.text


def expired_meanwhile(place: Path, monkeypatch: pytest.MonkeyPatch, calls: int = 1) -> list[bool]:
    """Have others change the table, and expire what was read, at so many readings of a manifest list; what is left."""
    waiting, usual = [True] * calls, SnapshotFiles.manifests

    def read(self: SnapshotFiles, snapshot: Any) -> Any:
        if waiting:
            waiting.pop()
            left, waiting[:] = list(waiting), []
            other = load_table(None, str(place), kms=KMS)
            other.upsert(pyarrow.table({"id": [1]}), ["id"])
            expire_snapshots(other)
            waiting[:] = left
        return usual(self, snapshot)

    monkeypatch.setattr(SnapshotFiles, "manifests", read)
    return waiting


@pytest.mark.parametrize(
    ("change", "ids"),
    [
        (lambda table: table.append(ROWS), [1, 1, 2, 2, 3, 3]),
        (lambda table: table.delete("id = 2"), [1, 3]),
        (lambda table: table.upsert(pyarrow.table({"id": [2, 4]}), ["id"]), [1, 2, 3, 4]),
        (lambda table: table.rewrite_manifests(), [1, 2, 3]),
        (expire_snapshots, [1, 2, 3]),
        (lambda table: clean(table, older_than=datetime.timedelta(0)), [1, 2, 3]),
    ],
    ids=["append", "delete", "upsert", "rewrite_manifests", "expire", "clean"],
)
def test_a_change_goes_on_when_the_snapshot_that_it_read_is_expired_meanwhile(
    change: Any, ids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "t"
    table = new_table(place, **{f"{RETRY}min-wait-ms": "0"})
    table.append(ROWS)
    waiting = expired_meanwhile(place, monkeypatch)
    change(table)
    assert not waiting
    assert sorted(load_table(None, str(place), kms=KMS).scan().to_arrow()["id"].to_pylist()) == ids


def test_what_cannot_go_on_says_that_others_have_expired_the_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "t"
    table = new_table(place, **{f"{RETRY}min-wait-ms": "0", f"{RETRY}num-retries": "2"})
    for _ in range(2):
        table.append(ROWS)
    with monkeypatch.context() as patch:
        expired_meanwhile(place, patch)
        with pytest.raises(ConflictError, match=r"expired the snapshot that was read.*compact the table again"):
            table.compact(min_input_files=2, rewrite_all=True)
    with monkeypatch.context() as patch:
        expired_meanwhile(place, patch, 3)
        with pytest.raises(ConflictError, match="each of 3 attempts"):
            table.append(ROWS)
    # A file that is missing, though the snapshot is there, is no race.
    paths = [each.manifest_list for each in table.refresh().snapshots()]
    Path(paths[-1].removeprefix("file://")).unlink()
    for change in (lambda: table.append(ROWS), lambda: table.compact(rewrite_all=True)):
        with pytest.raises(FileNotFoundError):
            change()
