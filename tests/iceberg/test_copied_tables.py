"""A copy of a table at another place: its own bytes are read, and never those of the table that it was copied from."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1 import iceberg
from ags1.cli import main
from ags1.errors import UnsupportedError
from ags1.iceberg import EncryptedTable, create_table, load_table, open_table
from ags1.iceberg.metadata.locations import TableLocations, moved, moving
from ags1.keys import Key
from ags1.kms import LocalKms, MemoryKms
from ags1.support.exit_codes import describe
from tests.checks import every

KMS = MemoryKms({"lake": bytes(range(16)), "next": bytes(range(16, 32))})
ROWS = pyarrow.table({"id": [1, 2, 3]})
Copied = tuple[Path, Path]


@pytest.fixture
def copied(tmp_path: Path) -> Copied:
    """A table of two snapshots, with a deletion vector, and its copy."""
    table = create_table(None, str(tmp_path / "lake" / "events"), ROWS.schema, kms=KMS, key_id="lake")
    table.append(ROWS)
    table.delete("id = 2")
    return tmp_path / "lake" / "events", Path(shutil.copytree(tmp_path / "lake" / "events", tmp_path / "offsite"))


def opened(copied: Copied) -> EncryptedTable:
    return load_table(None, str(copied[1]), kms=KMS, moved_from=str(copied[0]))


def damage(directory: Path) -> None:
    """Flip one bit of every data file."""
    for path in directory.glob("data/*.parquet"):
        data = bytearray(path.read_bytes())
        data[len(data) // 3] ^= 1
        path.write_bytes(data)


def contents(directory: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted(directory.rglob("*")) if each.is_file()}


def test_a_backup_is_verified_by_its_own_bytes(copied: Copied) -> None:
    original, copy = copied
    damage(original)
    assert not load_table(None, str(original), kms=KMS).verify().ok
    report = opened(copied).verify()
    assert report.ok
    assert "file-of-original" not in report.counts
    assert opened(copied).scan().to_arrow()["id"].to_pylist() == [1, 3]
    shutil.rmtree(original)
    newest = str(max(copy.glob("metadata/*.metadata.json")))
    for table in (opened(copied), open_table(newest, KMS, moved_from=original.as_uri())):
        assert table.verify().ok
        assert table.audit().ok
        assert table.scan().to_arrow()["id"].to_pylist() == [1, 3]
        assert table.files().num_rows > 2


def test_damage_of_a_backup_is_found_and_named_beside_an_intact_table(copied: Copied) -> None:
    damage(copied[1])
    report = opened(copied).verify()
    assert not report.ok
    assert [each.subject for each in report.having("damaged")] == [
        str(each) for each in copied[1].glob("data/*.parquet")
    ]
    assert str(copied[0]) not in str(report)


def test_the_remedy_for_a_copy_is_not_to_read_the_original(copied: Copied) -> None:
    original, copy = copied
    report = load_table(None, str(copy), kms=KMS).verify()
    assert report.outcome == "not checked"
    assert f"`moved_from='{original.as_uri()}'`" in str(report)
    assert "allowed_locations" not in str(report)
    allowed = load_table(None, str(copy), kms=KMS, allowed_locations=[str(original)]).verify()
    assert allowed.counts["file-of-original"] == allowed.facts["files"]


def test_a_copy_that_is_not_read_is_not_checked_and_a_missing_file_is_damage(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Key.generate().save(str(tmp_path / "k"))
    kms = f"local:{tmp_path}/keys.json?key_file={tmp_path}/k"
    with LocalKms.create(tmp_path / "keys.json", {"lake": bytes(range(16))}, key_file=tmp_path / "k"):
        assert main(["iceberg", "verify", str(copied[1]), "--kms", kms]) == 2
    said = capsys.readouterr()
    assert "NOT CHECKED (2 errors)" in said.out
    assert "DAMAGED" not in said.out
    gone = min(copied[0].glob("data/*.parquet"))
    gone.unlink()
    report = load_table(None, str(copied[0]), kms=KMS).verify()
    assert report.outcome == "damaged"
    assert [each.message for each in report.findings] == [
        f"{gone.as_uri()}: is missing: the table names it, and there is no such file"
    ]
    assert main(["iceberg", "verify", str(copied[0]), "--kms", kms]) == 1
    assert "DAMAGED (1 error)" in capsys.readouterr().out


COMMANDS = {
    "encrypt": ["--key-id", "lake", "--yes"],
    "decrypt": ["--yes"],
    "rekey": ["--yes"],
    "rewrap": ["--new-key-id", "next"],
    "expire": ["--yes"],
    "clean": ["--yes"],
    "compact": ["--yes"],
    "maintain": ["--yes"],
    "delete": ["--filter", "id = 1"],
    "prune": [],
}


@every("command", COMMANDS)
def test_a_command_that_changes_a_copy_names_the_one_that_makes_a_table_of_it(
    copied: Copied, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    before = [contents(each) for each in copied]
    arguments = ["iceberg", command, str(copied[1]), *COMMANDS[command]]
    if command != "prune":
        Key.generate().save(str(key := tmp_path / f"{command}-k"))
        LocalKms.create(tmp_path / command, {"lake": bytes(range(16))}, key_file=key).close()
        arguments += ["--kms", f"local:{tmp_path}/{command}?key_file={key}"]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert (
        f"it is a copy; in Python, relocate_table(load_table(..., moved_from={copied[0].as_uri()!r}), ...) makes"
        in said
    )
    assert [contents(each) for each in copied] == before


def test_a_commit_to_a_copy_is_refused(copied: Copied) -> None:
    copy = load_table(None, str(copied[1]), kms=KMS)
    for change in (CHANGES["properties"], CHANGES["clean"]):
        with pytest.raises(UnsupportedError, match="it is a copy; in Python, relocate_table"):
            change(copy)


def test_a_table_of_a_relative_warehouse_is_read_from_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    create_table(None, "lake/t", ROWS.schema, kms=KMS, key_id="lake", location="lake/t").append(ROWS)
    place, elsewhere = tmp_path / "lake" / "t", tmp_path / "elsewhere"
    newest = str(max(place.glob("metadata/*.metadata.json")))
    assert json.loads(Path(newest).read_bytes())["location"] == "lake/t"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(UnsupportedError, match=r"relative to another directory.*give `moved_from='lake/t'`"):
        load_table(None, str(place), kms=KMS).scan().to_arrow()
    table = load_table(None, str(place), kms=KMS, moved_from="lake/t")
    assert table.verify().ok
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 2, 3]


def test_a_copy_is_restored_as_a_table(copied: Copied, tmp_path: Path) -> None:
    original, copy = copied
    before = contents(copy)
    shutil.rmtree(original)
    for place in (tmp_path / "restored", original):
        assert not iceberg.plan_conversion(opened(copied), target_location=str(place)).problems
        iceberg.relocate_table(opened(copied), str(place))
        table = load_table(None, str(place), kms=KMS)
        assert table.verify().ok
        table.append(ROWS)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 3, 3]
    assert contents(copy) == before
    with pytest.raises(ValueError, match="is the directory of the table itself"):
        iceberg.relocate_table(opened(copied), str(copy))


def test_a_table_is_not_relocated_onto_another_one_and_nothing_is_copied_there(copied: Copied, tmp_path: Path) -> None:
    original, _ = copied
    other = tmp_path / "other"
    create_table(None, str(other), ROWS.schema, kms=KMS, key_id="lake").append(ROWS)
    before = contents(other)
    table = load_table(None, str(original), kms=KMS)
    for call in (iceberg.plan_conversion, iceberg.relocate_table):
        with pytest.raises(FileExistsError, match="there is a table already: choose another directory"):
            call(table, target_location=str(other))
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    catalog.create_namespace("db")
    create_table(catalog, "db.taken", ROWS.schema, kms=KMS, key_id="lake")
    for call in (iceberg.plan_conversion, iceberg.relocate_table):
        with pytest.raises(FileExistsError, match="has something of this name already"):
            call(table, target_location=str(tmp_path / "new"), catalog=catalog, identifier="db.taken")
    for call in (iceberg.plan_conversion, iceberg.relocate_table):
        with pytest.raises(FileExistsError, match="there is a table already"):
            call(table, target_location=str(other), catalog=catalog, identifier="db.second")
    assert contents(other) == before
    assert not (tmp_path / "new").exists()


CHANGES: dict[str, Callable[[EncryptedTable], Any]] = {
    "append": lambda table: table.append(ROWS),
    "delete": lambda table: table.delete("id = 1"),
    "compact": lambda table: table.compact(rewrite_all=True),
    "rekey": lambda table: iceberg.rekey_table(table, key_id="next"),
    "encrypt": lambda table: iceberg.encrypt_table(table, key_id="lake"),
    "decrypt": iceberg.decrypt_table,
    "expire": iceberg.expire_snapshots,
    "clean": iceberg.clean,
    "properties": lambda table: table.table.transaction().set_properties({"a": "b"}).commit_transaction(),
}


@every("change", CHANGES)
def test_no_change_of_a_copy_reaches_the_original_or_half_of_the_copy(copied: Copied, change: str) -> None:
    before = [contents(each) for each in copied]
    with pytest.raises(UnsupportedError, match="is the copy of a table"):
        CHANGES[change](opened(copied))
    assert [contents(each) for each in copied] == before


def test_no_path_of_the_metadata_leads_out_of_a_copy(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    (copy / "metadata").mkdir(parents=True)
    (copy / "link").symlink_to("/etc")
    pair = moving("s3://lake/t", str(copy))
    places = TableLocations((), pair)
    places.add(f"{copy}/metadata/00001-a.metadata.json")
    assert moved("s3a://lake/t/data/x", pair) == f"{copy}/data/x"
    places.check("s3://lake/t/data/x")
    for path in ("link/passwd", "../secret", "data/../../secret"):
        with pytest.raises(UnsupportedError, match="lies outside"):
            places.check(f"s3://lake/t/{path}")
    assert moved("s3://lake/t2/x", pair) == "s3://lake/t2/x"


def test_a_copy_is_given_by_its_path() -> None:
    with pytest.raises(ValueError, match="without a catalog"):
        load_table(object(), "db.events", kms=KMS, moved_from="/lake/t")


def test_a_relative_location_of_a_catalog_is_said_with_what_it_means_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/lake.db", warehouse="warehouse")
    catalog.create_namespace("db")
    create_table(catalog, "db.two", ROWS.schema, kms=KMS, key_id="lake")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError) as refused:
        load_table(catalog, "db.two", kms=KMS)
    said = describe(refused.value)
    assert f"the location is relative, and means {tmp_path}/elsewhere/warehouse/db/two/metadata/" in said
    assert "make it first" not in said


def test_a_directory_is_opened_with_load_table(copied: Copied) -> None:
    place = str(copied[0])
    with pytest.raises(IsADirectoryError, match=re.escape(f"open it with `load_table(None, {place!r}, kms=...)`")):
        open_table(place, KMS)
    assert load_table(None, place, kms=KMS).scan().count() == 2
