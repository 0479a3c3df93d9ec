"""Links and pipes at every place of a table where files are removed or records listed: nothing else is removed."""

from __future__ import annotations

import datetime
import itertools
import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from ags1 import iceberg, kms
from ags1.errors import Ags1Error
from ags1.iceberg import create_table, load_table
from ags1.iceberg.conversion import expiry
from tests.checks import every

KMS = kms.MemoryKms({"keyA": bytes(range(32)), "keyB": bytes(range(1, 33))})
NOW = datetime.timedelta(0)
RUN = str(uuid.UUID(int=7))
JOURNALS = "metadata/ags1-conversion"
PLACES = ("metadata", JOURNALS, f"{JOURNALS}/{RUN}", f"{JOURNALS}/{RUN}/run.json", "data")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with an orphan, an old snapshot, and the journal of a conversion that was given up."""
    directory = tmp_path_factory.mktemp("links") / "t"
    rows = pyarrow.table({"id": range(10)})
    table = create_table(None, str(directory), rows.schema, kms=KMS, key_id="keyA")
    table.append(rows)
    table.overwrite(rows)
    (directory / "data" / "orphan.parquet").write_bytes(b"orphan")
    (directory / JOURNALS / RUN).mkdir(parents=True)
    (directory / JOURNALS / RUN / "run.json").write_bytes(b'{"version": 1, "purpose": {}}')
    (directory / JOURNALS / RUN / "files-8.sealed").write_bytes(b"not authentic")
    return directory


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def expire(table: Any) -> None:
    iceberg.expire_snapshots(table)


def clean(table: Any) -> None:
    iceberg.clean(table, older_than=NOW)


def convert(table: Any) -> None:
    iceberg.decrypt_table(table)


@every("case", list(itertools.product(("link", "loop", "pipe"), PLACES, (expire, clean, convert))))
def test_nothing_outside_of_the_table_is_removed(case: tuple[str, str, Any], made: Path, tmp_path: Path) -> None:
    what, where, operate = case
    # The metadata of the table has its path: it has to stay where it was made.
    saved = Path(shutil.copytree(made, tmp_path / "saved"))
    outside = tmp_path / "outside"
    table = load_table(None, str(made), kms=KMS)
    try:
        place = made / where
        if what == "link":
            shutil.move(place, outside)
            place.symlink_to(outside)
        else:
            shutil.rmtree(place) if place.is_dir() else place.unlink()
            place.symlink_to(place) if what == "loop" else os.mkfifo(place)
        if outside.is_dir():
            # What looks like journals and orphans.
            (outside / RUN).mkdir(exist_ok=True)
            for each in (RUN, "."):
                (outside / each / "files-9.sealed").write_bytes(b"{}")
            (outside / "precious.parquet").write_bytes(b"precious")
        old = time.time() - 10_000
        for path in outside.rglob("*") if outside.is_dir() else ():
            os.utime(path, (old, old))
        before = files_of(outside)
        with suppress(Ags1Error, OSError):
            operate(table)
        after = files_of(outside)
        assert before.items() <= after.items()
    finally:
        shutil.rmtree(made)
        shutil.move(saved, made)
        if outside.is_dir():
            shutil.rmtree(outside)
        else:
            outside.unlink(missing_ok=True)


def test_a_directory_that_becomes_a_link_between_listing_and_removal_leads_nowhere(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = Path(shutil.copytree(made, tmp_path / "saved"))
    table = load_table(None, str(made), kms=KMS)
    remove, outside = expiry.remove, tmp_path / "outside"

    def exchanged(locations: Any) -> None:
        if not outside.exists():
            os.rename(made / "data", outside)
            (made / "data").symlink_to(outside)
        remove(locations)

    monkeypatch.setattr(expiry, "remove", exchanged)
    try:
        with pytest.raises(OSError, match="could not be removed"):
            clean(table)
        assert (outside / "orphan.parquet").read_bytes() == b"orphan"
    finally:
        shutil.rmtree(made)
        shutil.move(saved, made)


def test_clean_removes_what_is_its_own(made: Path) -> None:
    report = iceberg.clean(load_table(None, str(made), kms=KMS), older_than=NOW)
    assert [Path(each).name for each in report.paths] == ["orphan.parquet"]
    assert not (made / JOURNALS).exists()
    assert (made / "metadata").is_dir()


def changes(table: Any, rows: pyarrow.Table) -> dict[str, Any]:
    """Everything that writes files of a table; those that write metadata only come last."""
    return {
        "append": lambda: table.append(rows),
        "delete": lambda: table.delete("id < 3"),
        "upsert": lambda: table.upsert(pyarrow.table({"id": range(5, 15)}), on=["id"]),
        "rekey": lambda: iceberg.rekey_table(table, data_keys=True),
        "decrypt": lambda: iceberg.decrypt_table(table),
        "change the master key": lambda: iceberg.rekey_table(table, key_id="keyB"),
    }


def test_no_file_of_a_table_is_written_through_a_link(tmp_path: Path) -> None:
    rows = pyarrow.table({"id": range(10)})
    root, outside = tmp_path / "t", tmp_path / "outside"
    create_table(None, str(root), rows.schema, kms=KMS, key_id="keyA").append(rows)
    for place in (root / "metadata", root / "data"):
        # What the link leads to is allowed, so that no comparison of real paths refuses it.
        table = load_table(None, str(root), kms=KMS, allowed_locations=[str(outside)])
        place.rename(outside)
        place.symlink_to(outside)
        before = files_of(outside)
        for name, change in list(changes(table, rows).items())[: None if place.name == "metadata" else -1]:
            with pytest.raises(OSError, match=f"{place.name} is a link") as refused:
                change()
            assert refused.value.filename.startswith(str(root))
            assert files_of(outside) == before, name
        place.unlink()
        outside.rename(place)
    (root / "metadata").rename(outside)
    (root / "metadata").symlink_to(outside)
    before = files_of(outside)
    with pytest.raises((OSError, Ags1Error)):
        create_table(None, str(root), rows.schema, kms=KMS, key_id="keyA")
    assert files_of(outside) == before
    (root / "metadata").unlink()
    outside.rename(root / "metadata")
    table = load_table(None, str(root), kms=KMS)
    table.append(rows)
    assert table.scan().to_arrow().num_rows == 20


def test_the_directories_of_a_table_may_themselves_be_reached_through_links(tmp_path: Path) -> None:
    rows = pyarrow.table({"id": range(10)})
    for each in ("disk", "other"):
        (tmp_path / each).mkdir()
        (tmp_path / f"to-{each}").symlink_to(each)
    root, data = tmp_path / "to-disk" / "t", str(tmp_path / "to-other")
    properties = {"write.data.path": data}
    table = create_table(None, str(root), rows.schema, kms=KMS, key_id="keyA", properties=properties)
    table.append(rows)
    iceberg.rekey_table(table, data_keys=True)
    assert len(list((tmp_path / "other").iterdir())) == 2
    assert load_table(None, str(root), kms=KMS, allowed_locations=[data]).scan().to_arrow().num_rows == 10
