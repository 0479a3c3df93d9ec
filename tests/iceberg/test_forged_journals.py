"""That a journal which an attacker has written moves nothing into a table, drops nothing of it and stops nobody."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from ags1 import iceberg
from ags1.errors import KeyAccessError
from ags1.iceberg import EncryptedTable, create_table, load_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.conversion.changes import DECRYPT, ENCRYPT, REKEY, ConversionGoal
from ags1.iceberg.conversion.engine import Conversion, OpenedState
from ags1.iceberg.conversion.expiry import parts_of
from ags1.iceberg.conversion.journal import DIRECTORY, Journal
from ags1.iceberg.conversion.work import FileResult
from ags1.iceberg.keys.wrapped_key import WrappedKey
from ags1.kms import MemoryKms
from ags1.storage import Location, identity_of
from tests.checks import every
from tests.iceberg.conversions import PLAINTEXT, beginning_with, killed_runs
from tests.iceberg.keys import MASTER_KEYS

KMS = MemoryKms(MASTER_KEYS)
NOW = datetime.timedelta(0)
ROWS = pyarrow.table({"amount": [10, 20, 30]})
EVIL = pyarrow.table({"amount": [666, 666, 666]})


def make(directory: Path, *, encrypted: bool) -> EncryptedTable:
    table = create_table(None, str(directory), ROWS.schema, kms=KMS, key_id="keyA")
    table.append(ROWS)
    if not encrypted:
        iceberg.decrypt_table(table, expire=True)
    return load_table(None, str(directory), kms=KMS, allow_plaintext=True, table_key_id="keyA" if encrypted else None)


def amounts(directory: Path) -> list[int]:
    opened = load_table(None, str(directory), kms=KMS, allow_plaintext=True)
    return sorted(opened.scan().to_arrow().column("amount").to_pylist())


class Attack:
    """What an attacker can know of a table that is about to be converted, and can write."""

    def __init__(self, table: EncryptedTable, directory: Path, change: ConversionGoal) -> None:
        catalog, client = parts_of(table, KMS)
        self.conversion = Conversion(catalog, client, change)
        self.view: OpenedState = self.conversion.look(catalog.load())
        (entry,) = self.view.contents.entries()
        task = self.conversion._task(self.view, entry)
        self.source, self.origin = task.source, task.origin
        self.directory = directory
        evil = directory / "data" / "evil.parquet"
        pyarrow.parquet.write_table(EVIL, evil)
        # As the table names its files.
        self.evil = self.source.rpartition("/")[0] + "/evil.parquet"
        self.length, self.identity = evil.stat().st_size, identity_of(Location(str(evil)))
        self.purpose = self.conversion.change.purpose(self.view.metadata)
        self.key_id = change.key_id or "keyA"
        self.uuid = str(self.view.metadata.fields["table-uuid"])

    @property
    def journals(self) -> Path:
        return self.directory / "metadata" / DIRECTORY

    def result(self, target: str | None = None, **other: Any) -> FileResult:
        fields = {"key": None, "split_offsets": (), "origin": self.origin, "identity": self.identity, **other}
        return FileResult(self.source, target or self.evil, self.length, **fields)

    def write(self, key_id: str, result: FileResult, owner: str | None = None) -> None:
        """A journal that is right in every way, but for what the attacker needs."""
        journal = Journal.create(Location(str(self.journals)), owner or self.uuid, WrappedKey(key_id).another(KMS))
        seal = journal.open(KMS)
        journal.begin(seal, self.purpose)
        records = journal.records(seal)
        records.add(result)
        records.flush()

    def without_a_key(self) -> None:
        """In the form of earlier versions, and in today's without what it lacks."""
        old = {**self.purpose, "table": self.uuid}
        fields = [self.source, self.evil, self.length, None, []]
        for name, run, record in (
            ("01d01d01d01d", {"version": 1, "purpose": old}, {"files": [fields]}),
            (
                "ed0ed0ed0ed0",
                {"format-version": 3, "kind": "table conversion", "owner": self.uuid, **self.purpose},
                [fields],
            ),
        ):
            (self.journals / name).mkdir(parents=True)
            (self.journals / name / "run.json").write_text(json.dumps(run))
            for ending in ("json", "sealed"):
                (self.journals / name / f"files-1.{ending}").write_text(json.dumps(record))


def _elsewhere(attack: Attack) -> FileResult:
    evil = attack.directory.parent / "evil.parquet"
    pyarrow.parquet.write_table(EVIL, evil)
    return attack.result(str(evil), identity=identity_of(Location(str(evil))))


# What is forged, and which of it an attacker could write without the right master key: none.
FORGERIES: dict[str, Callable[[Attack], object]] = {
    "no key": Attack.without_a_key,
    "another master key": lambda attack: attack.write("key256", attack.result()),
    "another table": lambda attack: attack.write(attack.key_id, attack.result(), "another table"),
    # From here on the key is the right one, and still:
    "source to itself": lambda attack: attack.write(attack.key_id, attack.result(attack.source)),
    "outside": lambda attack: attack.write(attack.key_id, _elsewhere(attack)),
    "through ..": lambda attack: attack.write(
        attack.key_id, attack.result(attack.evil.replace("/evil", "/../data/evil"))
    ),
    "another origin": lambda attack: attack.write(attack.key_id, attack.result(origin="0" * 64)),
    "changed since": lambda attack: attack.write(attack.key_id, attack.result(identity=attack.identity + "1")),
    "no identity": lambda attack: attack.write(attack.key_id, attack.result(identity="")),
}


def _forged(table: EncryptedTable, directory: Path, change: ConversionGoal, forgery: str) -> None:
    FORGERIES[forgery](Attack(table, directory, change))


@every("forgery", FORGERIES)
def test_decryption_takes_nothing_over_that_others_have_written(forgery: str, tmp_path: Path) -> None:
    place = tmp_path / forgery.replace(" ", "-")
    table = make(place, encrypted=True)
    _forged(table, place, ConversionGoal(DECRYPT, None), forgery)
    report = iceberg.decrypt_table(table)
    assert (report.reused, report.files) == (0, 1)
    assert amounts(place) == [10, 20, 30]


@pytest.mark.parametrize("encrypted", [False, True])
def test_encryption_and_new_keys_take_no_file_of_others_as_moved(encrypted: bool, tmp_path: Path) -> None:
    for forgery in ("no key", "another master key", "another table", "source to itself", "outside"):
        if not (encrypted and forgery == "another master key"):
            _move_beside(forgery, encrypted, tmp_path / forgery.replace(" ", "-"))


def _move_beside(forgery: str, encrypted: bool, place: Path) -> None:
    table = make(place, encrypted=encrypted)
    _forged(table, place, ConversionGoal(REKEY, "keyB") if encrypted else ConversionGoal(ENCRYPT, "keyA"), forgery)
    (place / "data" / "evil.parquet").rename(place.with_name("not a file of the table"))
    if encrypted:
        report = iceberg.rekey_table(table, key_id="keyB", data_keys=True, expire=True)
    else:
        report = iceberg.encrypt_table(table, key_id="keyA", steps=("convert", "expire"))
    assert (report.reused, report.files) == (0, 1)
    assert amounts(place) == [10, 20, 30]
    assert not beginning_with(place, PLAINTEXT)


def test_a_decryption_that_was_killed_is_resumed_and_not_with_a_file_that_was_changed_since(tmp_path: Path) -> None:
    table = make(tmp_path / "t", encrypted=True)
    table.append(ROWS)
    table.append(ROWS)

    def stop(done: int, total: int | None) -> None:
        if done == total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        iceberg.decrypt_table(table, progress=stop, threads=1)
    (killed,) = killed_runs(tmp_path / "t", "keyA", KMS)
    first, *others = [Path(each.target.removeprefix("file://")) for each in killed]
    assert others
    first.write_bytes(first.read_bytes())
    report = iceberg.decrypt_table(table)
    assert (report.reused, report.files) == (len(others), 3 - len(others))
    assert amounts(tmp_path / "t") == [10, 10, 10, 20, 20, 20, 30, 30, 30]


def test_journals_that_nobody_can_read_stop_neither_a_conversion_nor_clean(tmp_path: Path) -> None:
    table = make(tmp_path / "t", encrypted=True)
    attack = Attack(table, tmp_path / "t", ConversionGoal(DECRYPT, None))
    attack.without_a_key()
    attack.write("keyB", attack.result())
    for number, text in enumerate(("", "[", "{}", "null", "\0")):
        run = attack.journals / f"{number:012x}"
        run.mkdir()
        (run / "run.json").write_text(text)
    (attack.journals / "abcdefabcdef").mkdir()
    (attack.journals / "abcdefabcdef" / "files-1.sealed").write_bytes(b"x")
    report = iceberg.decrypt_table(table)
    assert report.files == 1
    assert len(report.notes) >= 7
    assert "is not believed" in str(report)
    again = load_table(None, str(tmp_path / "t"), kms=KMS, allow_plaintext=True)
    assert iceberg.clean(again, older_than=NOW).paths
    # What has no name of ours stays.
    assert {each.name for each in attack.journals.rglob("*.*")} == {"files-1.json"}
    assert amounts(tmp_path / "t") == [10, 20, 30]


def test_clean_keeps_what_a_conversion_under_way_may_have_written_whoever_can_read_its_journal(tmp_path: Path) -> None:
    import os
    import time

    table = make(tmp_path / "t", encrypted=True)
    before, since = tmp_path / "t" / "data" / "before.parquet", tmp_path / "t" / "data" / "since.parquet"
    journal = tmp_path / "t" / "metadata" / DIRECTORY / f"{0:012x}"
    journal.mkdir(parents=True)
    days = 24 * 3600
    now = time.time()
    for path, age in (
        (before, 9 * days), (journal / "run.json", 8 * days), (since, 7 * days), (journal / "files-1.sealed", days),
    ):  # fmt: skip
        path.write_bytes(b"x")
        os.utime(path, (now - age, now - age))
    for of_days in (8, 3):
        assert iceberg.clean(table, older_than=datetime.timedelta(days=of_days), dry_run=True).paths == [str(before)]
    assert iceberg.clean(table).paths == [str(before)]
    assert since.exists()
    # A time that never comes keeps nothing for ever.
    os.utime(journal / "files-1.sealed", (now + 1000 * days, now + 1000 * days))
    assert iceberg.clean(table).paths == [str(since)]
    assert not journal.exists()


def test_only_the_right_master_key_opens_a_journal(tmp_path: Path) -> None:
    table = make(tmp_path / "t", encrypted=True)
    Attack(table, tmp_path / "t", ConversionGoal(DECRYPT, None)).without_a_key()
    with pytest.raises(KeyAccessError):
        iceberg.decrypt_table(table, kms=MemoryKms({"other": bytes(16)}))


@every("change", ["decrypt", "rekey", "relocate"])
def test_a_master_key_in_changed_metadata_is_not_that_of_the_table_that_was_opened(change: str, tmp_path: Path) -> None:
    """Whoever has another master key names it in metadata.json, and has a journal under it."""
    place = tmp_path / change
    table = make(place, encrypted=True)
    forger = catalog_table(None, str(place))
    state = forger.load()
    fields = json.loads(json.dumps(dict(state.document.fields)))
    fields["properties"]["encryption.key-id"] = "key256"
    forger.commit(state, fields)
    attack = Attack(load_table(None, str(place), kms=KMS), place, ConversionGoal(DECRYPT, None))
    attack.write("key256", attack.result())
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    changes: dict[str, Callable[[], Any]] = {
        "decrypt": lambda: iceberg.decrypt_table(table),
        "rekey": lambda: iceberg.rekey_table(table, data_keys=True),
        "relocate": lambda: iceberg.relocate_table(table, str(tmp_path / "new")),
    }
    with pytest.raises(KeyAccessError, match="is under the master key 'key256', and 'keyA' is expected"):
        changes[change]()
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before
