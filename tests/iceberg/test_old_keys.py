"""What other master keys than a table's own still open is tried, and said by `rekey` and `audit`."""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.cli import main
from ags1.errors import Ags1Error
from ags1.iceberg import (
    EncryptedTable,
    OldKeyReport,
    clean,
    create_table,
    expire_snapshots,
    load_table,
    open_table,
    rekey_table,
)
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.conversion.old_keys import what_old_keys_open
from ags1.kms import MemoryKms
from tests.iceberg.keys import keystore
from tests.iceberg.kills import Bomb, ended, in_child

OLD, NEW = {"old": bytes(16)}, {"new": bytes(range(16))}
BOTH = OLD | NEW


def rows(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number, number + 1], pa.int64()), "s": ["a", None]})


class Lake:
    """A SQL catalog in a directory, and tables with two snapshots each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def catalog(self) -> SqlCatalog:
        """One for each process."""
        return SqlCatalog(
            "lake", uri=f"sqlite:///{self.directory}/catalog.db", warehouse=(self.directory / "lake").as_uri()
        )

    def fill(self, tables: int) -> None:
        catalog, kms = self.catalog(), MemoryKms(BOTH)
        catalog.create_namespace("db")
        for number in range(tables):
            table = create_table(catalog, f"db.t{number}", rows(0).schema, kms=kms, key_id="old")
            table.append(rows(10 * number))
            table.append(rows(10 * number + 5))

    def table(self, number: int = 0, keys: dict[str, bytes] = BOTH) -> EncryptedTable:
        return load_table(self.catalog(), f"db.t{number}", kms=MemoryKms(keys))

    def old_keys(self, number: int = 0, keys: dict[str, bytes] = BOTH) -> OldKeyReport:
        found = self.table(number, keys).audit().facts["old_keys"]
        assert isinstance(found, OldKeyReport)
        return found

    def rekey_all(self) -> list[str]:
        """The loop of the guide; return the tables that it re-keyed."""
        catalog, done = self.catalog(), []
        for name in catalog.list_tables("db"):
            table = load_table(catalog, name, kms=MemoryKms(BOTH))
            if table.table.properties.get("encryption.key-id") != "new" or not table.audit().facts["old_keys"].ok:  # type: ignore[union-attr]
                report = rekey_table(table, key_id="new", data_keys=True, expire=True)
                assert report.ok, str(report)
                assert report.old_keys is not None
                if report.old_keys.removed:
                    # A run was killed amid its expiry. The report says what is left to do.
                    assert "`ags1 iceberg clean` removes them" in str(report.old_keys)
                    clean(load_table(catalog, name, kms=MemoryKms(BOTH)), older_than=datetime.timedelta(0))
                    assert what_old_keys_open(catalog_table(catalog, name), MemoryKms(BOTH)).ok
                else:
                    assert report.old_keys.ok
                done.append(".".join(name))
        return done

    def metadata_files(self) -> list[str]:
        return sorted(map(str, (self.directory / "lake").rglob("*.metadata.json")))

    def options(self, keys: dict[str, bytes]) -> list[str]:
        """The options of the command line for a table of this catalog."""
        catalog = ["--catalog", "lake", "--property", f"uri=sqlite:///{self.directory}/catalog.db"]
        return [*catalog, "--kms", keystore(self.directory, keys)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.fill(1)
    return made


def rekeyed(table: EncryptedTable, *, expire: bool = True) -> OldKeyReport:
    report = rekey_table(table, key_id="new", data_keys=True, expire=expire)
    assert report.ok, str(report)
    assert report.old_keys is not None
    return report.old_keys


def check_nothing_old(lake: Lake, tables: int) -> None:
    """What the old key opens, asked of every metadata file that is there, without the code that reports it."""
    for location in lake.metadata_files():
        opened = open_table(location, MemoryKms(OLD))
        if opened.snapshots():
            with pytest.raises((Ags1Error, OSError)):
                opened.scan().to_arrow()
    for number in range(tables):
        table = lake.table(number, NEW)
        found = sorted(table.scan().to_arrow()["id"].to_pylist())
        assert found == [10 * number, 10 * number + 1, 10 * number + 5, 10 * number + 6]
        assert table.verify().ok


def test_a_loop_over_tables_that_is_killed_and_run_again_leaves_nothing_to_the_old_key(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.fill(3)
    chance = random.Random(3)
    killed = 0
    for _ in range(3):
        killed += ended(in_child(lambda: Bomb(chance.randrange(1000, 300_000)).watch(lake.rekey_all))) != 0
    assert killed
    lake.rekey_all()
    check_nothing_old(lake, 3)
    before = lake.metadata_files()
    assert lake.rekey_all() == []
    assert lake.metadata_files() == before


def test_a_rekey_without_expiry_says_that_old_keys_open_the_old_snapshots(lake: Lake) -> None:
    found = rekeyed(lake.table(), expire=False)
    assert (found.ok, found.refs, found.files, len(found.snapshots)) == (False, [], 0, 2)
    assert "old keys open 2 snapshots: `expire_snapshots` removes" in str(found)
    assert str(found).endswith("do NOT delete the old master keys yet")
    expire_snapshots(lake.table())
    found = lake.old_keys()
    assert (found.ok, found.is_proved, found.opened) == (True, True, ["old"])
    assert str(found).startswith("as far as this table goes, the old master keys (old) may be disabled"), str(found)
    check_nothing_old(lake, 1)


def test_a_table_that_was_only_rewrapped_is_open_to_the_old_key(lake: Lake) -> None:
    """It is under the new master key, as after a re-key; but an old metadata file and the old key open it."""
    assert rekey_table(lake.table(), key_id="new").old_keys is None
    found = lake.old_keys()
    # Two manifest lists' manifests and files of the current snapshot.
    assert (found.refs, found.files) == (["main"], len(lake.table().files()))
    assert "STILL open" in str(found)
    # A snapshot that is younger than the last metadata file of the old key is opened by the same key encryption key.
    table = lake.table()
    table.append(rows(100))
    assert lake.old_keys().files == len(table.refresh().files())
    table.delete("id >= 100")
    assert rekeyed(lake.table()).ok
    check_nothing_old(lake, 1)


def test_a_property_that_somebody_has_changed_is_not_believed(lake: Lake) -> None:
    table = catalog_table(lake.catalog(), "db.t0")
    state = table.load()
    properties = {**state.document.fields["properties"], "encryption.key-id": "new"}
    table.commit(state, {**state.document.fields, "properties": properties})
    assert lake.rekey_all() == ["db.t0"]
    check_nothing_old(lake, 1)


def test_a_refusal_of_the_old_key_proves_nothing(lake: Lake) -> None:
    rekeyed(lake.table())
    found = lake.old_keys(keys=NEW)
    assert (found.ok, found.is_proved) == (True, False)
    assert "NOT tried, because the KMS refused the old master key old: if it was destroyed, it opens nothing" in str(
        found
    )
    assert str(found).endswith("do NOT delete the old master keys yet")
    assert lake.old_keys().is_proved


def test_a_table_that_was_never_rekeyed_has_nothing_to_say_of_other_keys(lake: Lake) -> None:
    assert str(lake.old_keys()) == "no other master key opens anything of the table"
    assert open_table(lake.table().metadata_location, MemoryKms(BOTH)).audit().facts["old_keys"] is None


def test_metadata_files_that_somebody_has_planted_are_named_or_are_of_no_table_here(tmp_path: Path) -> None:
    """One that cannot be read may have had a key of this table; that of another table has none."""
    lake = Lake(tmp_path)
    lake.fill(2)
    rekeyed(lake.table())
    files = lake.metadata_files()
    (own, *_), other = ([each for each in files if f"/t{number}/" in each] for number in (0, 1))
    directory = Path(own).parent
    (directory / "00099-other.metadata.json").write_bytes(Path(other[0]).read_bytes())
    assert lake.old_keys().is_proved
    (directory / "00098-damaged.metadata.json").write_bytes(b"{")
    os.symlink("/etc/hostname", directory / "00097-link.metadata.json")
    # Of this table, with something that no table has.
    for number, planted in enumerate(({"snapshots": [{}]}, {"snapshots": 5}, {"encryption-keys": [5]})):
        fields = json.loads(Path(own).read_text()) | planted
        (directory / f"0009{number}-planted.metadata.json").write_text(json.dumps(fields))
    found = lake.old_keys()
    assert (found.ok, found.is_proved) == (True, False)
    assert "NOT read: 5 metadata files" in str(found)


def test_a_journal_of_a_killed_run_under_the_old_key_is_named(lake: Lake) -> None:
    """What a killed run under the old master key has written down, the old key opens."""

    def rekey_again() -> None:
        def stop(_done: int, _total: int | None) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        rekey_table(lake.table(), data_keys=True, progress=stop)

    assert ended(in_child(rekey_again)) == -signal.SIGKILL
    found = rekeyed(lake.table())
    assert len(found.journals) == 1
    assert "old keys open 1 journal of a killed conversion: `ags1 iceberg clean` removes them" in str(found)


@pytest.mark.parametrize("data_keys", [False, True])
def test_a_rekey_says_whether_an_old_metadata_file_still_opens_the_table(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], data_keys: bool
) -> None:
    """The threat: the old key has leaked, and a re-key without new data keys sounds like the end of it."""
    before = lake.metadata_files()
    table = lake.table()
    report = rekey_table(table, key_id="new", data_keys=data_keys, expire=True)
    current = set(table.refresh().scan().to_arrow()["id"].to_pylist())

    def opens(location: str) -> bool:
        try:
            return set(open_table(location, MemoryKms(OLD)).scan().to_arrow()["id"].to_pylist()) == current
        except (Ags1Error, OSError):
            return False

    still = any(map(opens, before))
    assert still is not data_keys
    assert ("the old master key still open all of them" in str(report)) is still
    if still:
        kms, place = keystore(tmp_path, BOTH), table.metadata_location
        assert main(["iceberg", "rewrap", place, "--kms", kms, "--new-key-id", "old", "--dry-run"]) == 0
        assert "the old master key still open all of them" in capsys.readouterr().out


def test_the_commands_say_what_old_keys_open(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    options = lake.options(BOTH)

    def said(*arguments: str) -> Any:
        assert main(["iceberg", arguments[0], "db.t0", *arguments[1:], *options]) == 0
        return capsys.readouterr().out

    said("rewrap", "--new-key-id", "new", "--yes")
    assert "old keys STILL open 5 files of the branches and tags (main): `ags1 iceberg rekey` with new" in said("audit")
    found = json.loads(said("audit", "--json"))["facts"]["old_keys"]
    assert (found["ok"], found["opened"], found["refs"]) == (False, ["old"], ["main"])
    assert "the old master keys (old) may be disabled" in said("rekey", "--new-key-id", "new", "--expire", "--yes")
    assert "the old master keys (old) may be disabled" in said("audit")
    check_nothing_old(lake, 1)
