"""Many tables of a catalog: what is done is read from the tables, and what old keys open is tried."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from ags1.cli import main
from ags1.errors import Ags1Error, KeyAccessError
from ags1.iceberg import Fleet, create_table, decrypt_table, load_table, open_table, rekey_table
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.fleet import _ThrottledKms
from ags1.iceberg.keys._kek import unwrap_kek
from ags1.kms import KeyManagementClient, MemoryKms, ServiceRefusal
from tests.iceberg_tables.keys import keystore
from tests.iceberg_tables.kills import ended, in_child

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
            "fleet", uri=f"sqlite:///{self.directory}/catalog.db", warehouse=(self.directory / "lake").as_uri()
        )

    def fill(self, tables: int, namespace: str = "db") -> None:
        catalog, kms = self.catalog(), MemoryKms(BOTH)
        catalog.create_namespace(namespace)
        for number in range(tables):
            table = create_table(catalog, f"{namespace}.t{number}", rows(0).schema, kms=kms, key_id="old")
            table.append(rows(10 * number))
            table.append(rows(10 * number + 5))

    def fleet(self, kms: Any = None, pattern: str = "db.*", **options: Any) -> Fleet:
        return Fleet(self.catalog(), pattern, kms=MemoryKms(BOTH) if kms is None else kms, **options)

    def metadata_files(self) -> list[str]:
        return sorted(map(str, (self.directory / "lake").rglob("*.metadata.json")))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.fill(3)
    return made


class FailingKms(MemoryKms):
    """One call in five fails; successful calls are written down; SIGKILL ends the process at one of them."""

    def __init__(self, log: Path, kill_at: int | None = None) -> None:
        super().__init__(BOTH, sleep=lambda _: None)
        self._log_path, self._kill_at = log, kill_at
        self._count = 0
        self._counting = threading.Lock()

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        return self._noted("wrap", key, key_id, super()._wrap)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        return self._noted("unwrap", wrapped, key_id, super()._unwrap)

    def _noted(self, what: str, data: bytes, key_id: str, call: Callable[[bytes, str], bytes]) -> bytes:
        with self._counting:
            self._count += 1
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if self._count % 5 == 0:
                raise ConnectionError("the service is busy")
            made = call(data, key_id)
            with self._log_path.open("a") as log:
                log.write(json.dumps([os.getpid(), what, hashlib.sha256(data).hexdigest(), key_id]) + "\n")
            return made


def check_nothing_old(lake: Lake, tables: int) -> None:
    """What the old key opens, asked of every metadata file that is there, without the code that reports it."""
    for location in lake.metadata_files():
        opened = open_table(location, MemoryKms(OLD))
        if opened.snapshots():
            with pytest.raises((Ags1Error, OSError)):
                opened.scan().to_arrow()
    for number in range(tables):
        table = load_table(lake.catalog(), f"db.t{number}", kms=MemoryKms(NEW))
        found = sorted(table.scan().to_arrow()["id"].to_pylist())
        assert found == [10 * number, 10 * number + 1, 10 * number + 5, 10 * number + 6]
        assert table.verify().ok


def rekey_with_kills(lake: Lake, tables: int, kills: list[int], log: Path, watch: Any = None) -> None:
    """Begin the re-key again and again, each killed at a call of the KMS, and finish it."""

    def run(kill_at: int | None) -> None:
        kms = FailingKms(log, kill_at)
        report = lake.fleet(kms, at_once=3).rekey("new", expire=True)
        assert report.ok, str(report)

    for kill_at in kills:
        assert ended(in_child(lambda at=kill_at: run(at))) == -signal.SIGKILL  # type: ignore[misc]
    assert ended(in_child(lambda: run(None))) == 0
    calls = collections.Counter(map(tuple, map(json.loads, log.read_text().splitlines())))
    assert max(calls.values()) == 1, calls.most_common(3)
    check_nothing_old(lake, tables)


def test_a_fleet_is_rekeyed_by_a_failing_kms_and_killed_runs(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.fill(6)
    rekey_with_kills(lake, 6, [2, 9, 23], tmp_path / "calls")
    again = lake.fleet().rekey("new", expire=True)
    assert again.ok
    assert again.is_proved
    assert [each.outcome for each in again.tables] == ["already done"] * 6
    before = lake.metadata_files()
    assert lake.fleet().rekey("new", expire=True).ok
    assert lake.metadata_files() == before


def test_a_run_that_was_killed_between_its_commits_is_finished(lake: Lake) -> None:
    first = lake.fleet().rekey("new")
    assert first.ok
    assert all(each.old_keys is not None and len(each.old_keys.snapshots) == 2 for each in first.tables)
    assert "open 6 snapshots in 3 tables" in str(first)
    second = lake.fleet().rekey("new", expire=True)
    assert [each.outcome for each in second.tables] == ["done"] * 3
    assert all(each.old_keys is not None and not each.old_keys.snapshots for each in second.tables)
    (line,) = (
        each for each in str(second).splitlines() if each.startswith("old keys open ") and "nothing of" not in each
    )
    assert re.match(
        r"old keys open \d+ old metadata files in 3 tables: each has a key that an old master key unwraps", line
    )
    assert line.endswith(
        "If no other line names something that is open, that key opens nothing, and nothing has to be done"
    )
    check_nothing_old(lake, 3)


def test_a_table_that_was_only_rewrapped_is_not_rekeyed(lake: Lake) -> None:
    """It is under the new master key, as after a re-key; but an old metadata file and the old key open it."""
    report = lake.fleet().rewrap("new")
    assert report.ok
    for each in report.tables:
        table = load_table(lake.catalog(), each.table, kms=MemoryKms(NEW))
        assert each.outcome == "done"
        assert each.old_keys is not None
        # Two manifest lists' manifests and files of the current snapshot.
        assert each.old_keys.refs == ["main"]
        assert each.old_keys.files == len(table.files())
    assert "STILL open" in str(report)
    again = lake.fleet().rewrap("new")
    assert [each.outcome for each in again.tables] == ["already done"] * 3
    # A snapshot that is younger than the last metadata file of the old key is opened by the same key encryption key.
    table = load_table(lake.catalog(), "db.t0", kms=MemoryKms(BOTH))
    table.append(rows(100))
    found = lake.fleet(pattern="db.t0").audit().tables[0].old_keys
    assert found is not None
    assert found.files == len(table.refresh().files())
    table.delete("id >= 100")
    report = lake.fleet().rekey("new", expire=True)
    assert report.ok
    assert [each.outcome for each in report.tables] == ["done"] * 3
    check_nothing_old(lake, 3)


def test_a_property_that_somebody_has_changed_is_not_believed(lake: Lake) -> None:
    table = catalog_table(lake.catalog(), "db.t1")
    state = table.load()
    properties = {**state.document.fields["properties"], "encryption.key-id": "new"}
    table.commit(state, {**state.document.fields, "properties": properties})
    report = lake.fleet().rekey("new", expire=True)
    assert [each.outcome for each in report.tables] == ["done"] * 3
    check_nothing_old(lake, 3)


def test_a_refusal_of_the_old_key_proves_nothing(lake: Lake) -> None:
    assert lake.fleet().rekey("new").ok
    report = lake.fleet(MemoryKms(NEW)).rekey("new")
    assert [each.outcome for each in report.tables] == ["not proved"] * 3
    assert not report.is_proved
    assert "NOT tried, because the KMS refused it: old, of 3 tables. That proves nothing" in str(report)
    assert "If it was destroyed, say so with `destroyed_key_ids`" in str(report)
    assert lake.fleet().rekey("new").is_proved


def test_a_key_that_was_destroyed_is_not_asked_for_for_ever(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is noticed: what opens something was not destroyed, and another key is not excused."""
    assert lake.fleet().rekey("new", expire=True).ok
    options = ["--catalog", "fleet", "--kms", keystore(lake.directory, NEW)]
    options += ["--property", f"uri=sqlite:///{lake.directory}/catalog.db"]
    for action in (["audit"], ["rekey", "--new-key-id", "new", "--yes"], ["rewrap", "--new-key-id", "new", "--yes"]):
        command = ["iceberg", action[0], "db.*", *action[1:], *options]
        assert main(command) == 3
        assert "say so with --destroyed-key-id" in capsys.readouterr().out
        assert main([*command, "--destroyed-key-id", "other"]) == 3
        capsys.readouterr()
        assert main([*command, "--destroyed-key-id", "old"]) == 0
        said = capsys.readouterr().out.splitlines()
        assert any(line.startswith("destroyed, as you say: old, of 3 tables. The KMS refused it") for line in said)
        assert said[-1] == "so these tables need no other master key than their own"
    assert main(["iceberg", "audit", "db.t0", *options, "--destroyed-key-id", "old"]) == 2
    assert "--destroyed-key-id is for a pattern" in capsys.readouterr().err
    wrong = lake.fleet(destroyed_key_ids=["old"]).audit()
    assert str(wrong).splitlines()[-1].startswith("so the old master keys (old) may be disabled now"), str(wrong)


def test_metadata_files_that_somebody_has_planted_are_named_or_are_of_no_table_here(lake: Lake) -> None:
    """One that cannot be read may have had a key of this table; that of another table has none."""
    assert lake.fleet().rekey("new", expire=True).ok
    files = lake.metadata_files()
    (own, *_), other = ([each for each in files if f"/t{number}/" in each] for number in (0, 1))
    directory = Path(own).parent
    (directory / "00099-other.metadata.json").write_bytes(Path(other[0]).read_bytes())
    assert lake.fleet(pattern="db.t0").rekey("new", expire=True).is_proved
    (directory / "00098-damaged.metadata.json").write_bytes(b"{")
    os.symlink("/etc/hostname", directory / "00097-link.metadata.json")
    # Of this table, with something that no table has.
    for number, planted in enumerate(({"snapshots": [{}]}, {"snapshots": 5}, {"encryption-keys": [5]})):
        fields = json.loads(Path(own).read_text()) | planted
        (directory / f"0009{number}-planted.metadata.json").write_text(json.dumps(fields))
    report = lake.fleet(pattern="db.t0").rekey("new", expire=True)
    assert (report.ok, report.is_proved) == (True, False)
    assert "NOT read: 5 metadata files" in str(report)


def test_a_journal_of_a_killed_run_under_the_old_key_is_named(lake: Lake) -> None:
    """What a killed run under the old master key has written down, the old key opens."""

    def encrypt_more() -> None:
        from ags1.iceberg import rekey_table

        def stop(_done: int, _total: int | None) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        table = load_table(lake.catalog(), "db.t0", kms=MemoryKms(BOTH))
        rekey_table(table, data_keys=True, progress=stop)

    assert ended(in_child(encrypt_more)) == -signal.SIGKILL
    report = lake.fleet().rekey("new", expire=True)
    found = {each.table: each.old_keys.journals for each in report.tables if each.old_keys is not None}
    assert {name: len(each) for name, each in found.items()} == {"db.t0": 1, "db.t1": 0, "db.t2": 0}
    assert "1 journal of a killed conversion in 1 table" in str(report)


def test_a_table_that_fails_stops_no_other(lake: Lake) -> None:
    plain = lake.catalog().create_table("db.plain", rows(0).schema)
    plain.append(rows(0))
    damaged = load_table(lake.catalog(), "db.t1", kms=MemoryKms(BOTH))
    data = next(path for path in damaged.files()["path"].to_pylist() if path.endswith(".parquet"))
    local = Path(data.removeprefix("file://"))
    local.write_bytes(bytes(reversed(local.read_bytes())))
    report = lake.fleet().rekey("new", expire=True)
    outcomes = {each.table: each.outcome for each in report.tables}
    assert outcomes == {"db.plain": "skipped", "db.t0": "done", "db.t1": "failed", "db.t2": "done"}
    assert not report.ok
    assert "failed: db.t1: " in str(report)
    assert "skipped: db.plain: it is not encrypted" in str(report)
    verified = lake.fleet(pattern="db.t*").verify()
    assert [each.ok for each in verified.tables] == [True, False, True]
    assert "NOT ok: " in str(verified)
    json.dumps(report.to_dict())


def test_a_table_of_two_names_does_not_lose_the_files_of_the_other(lake: Lake) -> None:
    catalog, first = lake.catalog(), load_table(lake.catalog(), "db.t0", kms=MemoryKms(BOTH))
    catalog.register_table("db.second", first.metadata_location)
    for dry_run in (True, False):
        report = lake.fleet().rekey("new", expire=True, dry_run=dry_run)
        failed = {each.table: each.error for each in report.having("failed")}
        assert set(failed) == {"db.second", "db.t0"}
        assert all(error is not None and "db.second and db.t0 are one table" in error for error in failed.values())
    assert len(report.having("done")) == 2
    for name in failed:
        assert load_table(catalog, name, kms=MemoryKms(OLD)).verify("all").ok
    # Without expiry, no file is removed that another name needs.
    assert lake.fleet().rekey("new").ok
    catalog.drop_table("db.second")
    assert lake.fleet().rekey("new", expire=True).ok
    check_nothing_old(lake, 3)


def test_names_match_by_their_parts(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.fill(2, "db")
    lake.fill(1, "other")
    lake.fill(1, "db.inner")
    for pattern, expected in (
        ("db.*", ["db.t0", "db.t1"]),
        ("*.t0", ["db.t0", "other.t0"]),
        ("d?.t[1-9]", ["db.t1"]),
        ("db.*.*", ["db.inner.t0"]),
        ("other.t0", ["other.t0"]),
        ("db.none*", []),
        ("none.*", []),
        ("none.*.*", []),
    ):
        assert lake.fleet(pattern=pattern).tables() == expected
    for pattern in ("*", "db.", ".t", ""):
        with pytest.raises(ValueError, match=r"'db\.\*'"):
            lake.fleet(pattern=pattern)


def test_a_pattern_that_no_table_matches_is_not_ok(lake: Lake) -> None:
    for pattern in ("db.none*", "none.*"):
        report = lake.fleet(pattern=pattern).rekey("new")
        assert not report.ok
        assert not report.to_dict()["ok"]
        assert "NOT ok, because the catalog has no table of such a name" in str(report)


def test_a_dry_run_writes_nothing(lake: Lake) -> None:
    before = lake.metadata_files()
    fleet = lake.fleet()
    for report in (fleet.rekey("new", dry_run=True), fleet.rewrap("new", dry_run=True)):
        assert [each.outcome for each in report.tables] == ["would be done"] * 3
    assert [each.outcome for each in fleet.encrypt("old", dry_run=True).tables] == ["already done"] * 3
    assert lake.metadata_files() == before


def test_plaintext_tables_are_encrypted_verified_and_audited(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    catalog = lake.catalog()
    catalog.create_namespace("db")
    for number in range(2):
        catalog.create_table(f"db.t{number}", rows(0).schema).append(rows(number))
    # New files of it are encrypted from now on.
    catalog.create_table("db.t2", rows(0).schema)
    seen: list[tuple[int, int]] = []
    report = lake.fleet().encrypt("new", expire=True, progress=lambda done, total: seen.append((done, total)))
    assert [each.outcome for each in report.tables] == ["done"] * 3
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [each.outcome for each in lake.fleet().encrypt("new", expire=True).tables] == ["already done"] * 3
    assert lake.fleet(MemoryKms(NEW)).verify().ok
    assert lake.fleet(MemoryKms(NEW)).audit().ok
    assert not lake.fleet(MemoryKms(OLD)).verify().ok


def test_a_kms_that_is_down_is_not_asked_for_every_table(tmp_path: Path) -> None:
    class Down(KeyManagementClient):
        def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
            raise ConnectionError("no route")

    lake = Lake(tmp_path)
    lake.fill(6)
    report = lake.fleet(Down(sleep=lambda _: None), at_once=1).rekey("new")
    assert [each.outcome for each in report.tables] == ["failed"] * 3 + ["not begun"] * 3
    assert not report.ok


def test_the_kms_is_called_no_more_often_than_wanted_and_once_for_each_key() -> None:
    waits: list[float] = []
    kms = _ThrottledKms(MemoryKms(BOTH), 10, sleep=waits.append, clock=lambda: 100.0)
    wrapped = [kms.wrap_key(bytes([number]) * 16, "old") for number in range(3)]
    assert kms.wrap_key(bytes(16), "old") == wrapped[0]
    for each in (*wrapped, *wrapped):
        kms.unwrap_key(each, "old")
    assert kms.calls == 6
    assert [round(each, 6) for each in waits] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]
    with pytest.raises(KeyAccessError):
        kms.unwrap_key(wrapped[0], "new")
    with pytest.raises(KeyAccessError, match="MemoryKms did not unwrap"):
        unwrap_kek(kms, wrapped[0], "none", "kek")
    with pytest.raises(ValueError, match="kms_calls_per_second"):
        _ThrottledKms(MemoryKms(BOTH), 0)
    assert issubclass(ServiceRefusal, KeyAccessError)


def test_a_fleet_is_not_said_to_be_encrypted_while_old_snapshots_are_plaintext(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.fill(2)
    for number in range(2):
        decrypt_table(load_table(lake.catalog(), f"db.t{number}", kms=MemoryKms(BOTH)), expire=True)
    left = "NOT all encrypted yet: 2 old snapshots of 2 tables"
    assert left in str(lake.fleet().encrypt("new"))
    report = lake.fleet().encrypt("new")
    assert [each.outcome for each in report.tables] == ["already done"] * 2
    assert left in str(report)
    report = lake.fleet().encrypt("new", expire=True, dry_run=True)
    assert [each.outcome for each in report.tables] == ["would be done"] * 2
    assert "NOT all" not in str(lake.fleet().encrypt("new", expire=True))
    report = lake.fleet().encrypt("new", expire=True, dry_run=True)
    assert [each.outcome for each in report.tables] == ["already done"] * 2
    assert "NOT all" not in str(report)


@pytest.mark.parametrize("data_keys", [False, True])
def test_a_rekey_says_whether_an_old_metadata_file_still_opens_the_table(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str], data_keys: bool
) -> None:
    """The threat: the old key has leaked, and a re-key without new data keys sounds like the end of it."""
    before = lake.metadata_files()
    table = load_table(lake.catalog(), "db.t0", kms=MemoryKms(BOTH))
    report = rekey_table(table, key_id="new", data_keys=data_keys, expire=True)
    current = set(table.refresh().scan().to_arrow()["id"].to_pylist())

    def opens(location: str) -> bool:
        try:
            return set(open_table(location, MemoryKms(OLD)).scan().to_arrow()["id"].to_pylist()) == current
        except (Ags1Error, OSError):
            return False

    still = any(map(opens, (each for each in before if "/t0/" in each)))
    assert still is not data_keys
    assert ("the old master key still open all of them" in str(report)) is still
    if still:
        kms, place = keystore(tmp_path, BOTH), table.metadata_location
        assert main(["iceberg", "rewrap", place, "--kms", kms, "--new-key-id", "old", "--dry-run"]) == 0
        assert "the old master key still open all of them" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["verify", "audit"])
def test_a_pattern_judges_a_table_as_its_name_does(lake: Lake, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = lake.catalog().create_table("db.plain", rows(0).schema)
    plain.append(rows(0))
    kms = keystore(lake.directory, OLD)
    options = ["--catalog", "fleet", "--kms", kms, "--property", f"uri=sqlite:///{lake.directory}/catalog.db"]
    codes, said = [], []
    for name in ("db.plain", "db.p*", "db.*"):
        codes.append(main(["iceberg", action, name, *options]))
        said.append("".join(capsys.readouterr()))
    assert codes == [5, 5, 5]
    assert all("the table is not encrypted" in each for each in said)
    assert "1 not ok" in said[1]
    assert main(["iceberg", action, "db.*", *options, "--json"]) == 5
    assert "the table is not encrypted" in json.loads(capsys.readouterr().out)["error"]
    damaged = next((lake.directory / "lake").rglob("*-m0.avro"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert main(["iceberg", action, "db.*", *options]) == 1


def test_a_key_that_is_old_to_one_table_and_current_to_another_is_not_to_be_deleted(lake: Lake) -> None:
    lake.fleet(pattern="db.t[01]").rekey("new", expire=True)
    said = str(lake.fleet().audit()).splitlines()[-1]
    assert said == "so do NOT delete them: old is the master key of 1 table (db.t2) now", said


def test_after_a_rewrap_the_report_names_what_ends_that_old_keys_open_files(lake: Lake) -> None:
    report = lake.fleet().rewrap("new")
    assert "only new keys of the files end that: `ags1 iceberg rekey`, with another master key" in str(report)
    # What is only planned has not failed.
    planned = lake.fleet().rekey("new", dry_run=True)
    assert planned.ok, str(planned)
    assert [each.outcome for each in planned.tables] == ["would be done"] * 3


def test_a_table_of_a_pattern_under_another_key_has_the_exit_code_that_it_has_alone(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    kms = keystore(lake.directory, BOTH)
    options = ["--catalog", "fleet", "--kms", kms, "--property", f"uri=sqlite:///{lake.directory}/catalog.db", "--yes"]
    codes = [main(["iceberg", "encrypt", name, "--key-id", "new", *options]) for name in ("db.t0", "db.t*")]
    assert codes == [9, 9], capsys.readouterr()


def test_a_pattern_for_a_command_of_one_table_is_refused_by_name(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--catalog", "fleet", "--property", f"uri=sqlite:///{lake.directory}/catalog.db"]
    assert main(["iceberg", "expire", "db.*", *options, "--dry-run"]) == 2
    assert "db.* is a pattern, and this command is for one table" in capsys.readouterr().err


def test_the_last_line_says_what_may_be_done_with_the_old_keys(lake: Lake) -> None:
    def last(report: Any) -> str:
        return str(report).splitlines()[-1]

    assert "do NOT delete the old keys yet: do what" in last(lake.fleet().rewrap("new"))
    assert "do NOT delete the old keys yet: do what" in last(lake.fleet().rekey("new"))
    assert "do NOT delete the old keys yet: not every" in last(lake.fleet(MemoryKms(NEW)).rekey("new"))
    done = last(lake.fleet().rekey("new", expire=True))
    assert done.startswith("so the old master keys (old) may be disabled now"), done
    for name in ("db.t0", "db.t1", "db.t2"):
        assert load_table(lake.catalog(), name, kms=MemoryKms(NEW)).verify().ok
