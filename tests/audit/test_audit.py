"""What an audit says of a lake: of each file, of datasets and tables, of what leaks, and of what cannot be read."""

from __future__ import annotations

import datetime
import json
import os
import random
import shutil
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset
from ags1.audit import AuditReport, audit
from ags1.kms import MemoryKms
from ags1.storage import TEMPORARY_SUFFIX
from ags1.support.words import share_text
from tests.audit.lake import FILE_KEY, PEOPLE, PROTECTIONS, client, newest_metadata
from tests.checks import KEY, pattern


def codes(report: AuditReport, *severities: str) -> Counter[str]:
    return Counter(each.code for each in report.findings if not severities or each.severity in severities)


def by_name(report: AuditReport) -> dict[str, Any]:
    return {each.name: each for each in report.files}


# -- each file -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_kms", [False, True])
def test_every_file_is_what_its_bytes_say(lake: Path, with_kms: bool) -> None:
    report = audit(lake, kms=client() if with_kms else None)
    found = {each.name: (each.protection, each.format) for each in report.files if not each.group}
    assert found == PROTECTIONS
    assert {each.name for each in report.files} == {
        str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()
    }
    assert report.size == sum(path.stat().st_size for path in lake.rglob("*") if path.is_file())
    assert (report.exit_code, report.ok) == (5, False)


def test_names_prove_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.ags1").write_text("name,born\nAda,1815\n")
    (tmp_path / "notes.txt").write_bytes(ags1.encrypt(b"x", FILE_KEY))
    found = by_name(audit(tmp_path))
    assert (found["secret.ags1"].protection, found["notes.txt"].protection) == ("plaintext", "looks encrypted")


def test_columns_and_keys_of_parquet_are_named(lake: Path) -> None:
    found = by_name(audit(lake))
    signed, uniform = found["people/signed.parquet"], found["people/uniform.parquet"]
    assert (signed.encrypted_columns, signed.plaintext_columns) == (("ssn",), ("id", "name"))
    assert signed.keys == uniform.keys == ("kf",)
    assert not uniform.columns_known
    assert found["people/plain.parquet"].plaintext_columns == ("id", "name", "ssn")
    assert found["people/kms.parquet"].keys == ("people",)


def test_a_kms_opens_the_footers_of_its_files(lake: Path) -> None:
    found = by_name(audit(lake, kms=client()))
    assert found["people/kms.parquet"].columns_known
    assert found["people/kms.parquet"].encrypted_columns == ("id", "name", "ssn")
    assert not found["people/uniform.parquet"].columns_known


def test_what_leaks_is_said(lake: Path) -> None:
    leaks = {leak: {each.name for each in files} for leak, files in audit(lake).leaks.items()}
    assert "people/plain.parquet" in leaks["values"]
    assert {"people/plain.parquet", "people/signed.parquet"} <= leaks["statistics"] & leaks["column names"]
    assert leaks["values of some columns"] == {"people/signed.parquet"}
    assert all(name.startswith("vault/day=1/") for name in leaks["partition values in names"])
    assert leaks["partition values in names"]


def test_keys_that_lie_in_plaintext_are_named(lake: Path) -> None:
    report = audit(lake)
    found = {each.subject for each in report.findings if each.code == "key-in-plaintext"}
    assert found == {"streams/a.key-metadata", "streams/my.key"}
    for shown in (str(report), json.dumps(report.to_dict())):
        assert FILE_KEY.hex() not in shown


def test_a_stream_that_is_none_is_damaged(tmp_path: Path) -> None:
    stream = ags1.encrypt(pattern(5000), FILE_KEY)
    (tmp_path / "cut.ags1").write_bytes(stream[:30])
    (tmp_path / "fake.ags1").write_bytes(stream[:8] + b"name,born\n" * 500)
    (tmp_path / "good.ags1").write_bytes(stream)
    report = audit(tmp_path)
    assert codes(report, "error") == {"damaged": 2}
    assert report.exit_code == 1
    assert [each.protection for each in report.files] == ["unknown", "unknown", "looks encrypted"]


@pytest.mark.parametrize("cut", [12, 40, 2000])
def test_parquet_without_its_end_is_damaged(lake: Path, tmp_path: Path, cut: int) -> None:
    for name in ("plain", "uniform"):
        data = (lake / "people" / f"{name}.parquet").read_bytes()
        (tmp_path / f"{name}.parquet").write_bytes(data[:-cut])
    report = audit(tmp_path)
    assert (report.exit_code, codes(report, "error")) == (1, {"damaged": 2})


def test_one_file_can_be_audited(lake: Path) -> None:
    (found,) = audit(lake / "logs" / "a.csv").files
    assert (found.name, found.protection) == ("a.csv", "plaintext")


def test_a_place_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        audit(tmp_path / "nothing")


def test_progress_ends_with_all_bytes_and_can_stop_the_audit(lake: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    report = audit(lake, progress=lambda done, total: seen.append((done, total)), threads=1)
    assert seen[-1] == (report.size, report.size)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)

    def stop(done: int, total: int | None) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        audit(lake, progress=stop)


# -- what may be plaintext -----------------------------------------------------------------------------------------


def test_a_file_that_is_not_encrypted_is_a_violation_unless_a_pattern_allows_it(lake: Path) -> None:
    bare = {
        name
        for name, (protection, _) in PROTECTIONS.items()
        if protection in ("plaintext", "partly encrypted", "unknown")
    }
    for allow, rest in (
        ((), bare),
        ("logs/*", {each for each in bare if not each.startswith("logs/")}),
        (["logs", "*.key*", "people/signed.*"], {"people/plain.parquet"}),
        ("*", set()),
    ):
        report = audit(lake, allow=allow)
        assert {each.subject for each in report.findings if each.code == "not-encrypted"} == rest
        assert (report.exit_code, report.ok) == ((5, False) if rest else (0, True))
        assert report.verdict.startswith("NOT OK" if rest else "ok")
    with pytest.raises(TypeError, match="allow must be a glob pattern"):
        audit(lake, allow=[b"*"])


def test_metadata_that_a_format_has_only_in_plaintext_is_no_violation(lake: Path) -> None:
    for place in ("vault", "db/events"):
        assert audit(lake / place).ok


def test_damage_goes_before_plaintext(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes((lake / "people" / "plain.parquet").read_bytes()[:-9])
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    assert audit(tmp_path).exit_code == 1
    assert "NOT OK: something is damaged" in str(audit(tmp_path, allow="*"))


def test_a_report_says_when_and_by_what_it_was_made(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"1")
    before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    report = audit(tmp_path)
    found = json.loads(json.dumps(report.to_dict()))
    assert (found["ags1"], found["exit_code"], found["ok"]) == (ags1.__version__, 5, False)
    assert before <= datetime.datetime.fromisoformat(found["created"]) <= datetime.datetime.now(datetime.timezone.utc)
    assert f"{found['created']}, ags1 {ags1.__version__}" in str(report)


def test_nothing_but_all_is_a_hundred_percent_and_nothing_but_nothing_is_none(tmp_path: Path) -> None:
    for part, whole, said in (
        (0, 7, "0.0 %"), (7, 7, "100.0 %"), (1, 10**6, "< 0.1 %"), (10**6 - 1, 10**6, "99.9 %"), (0, 0, "0.0 %"),
        (10**30 - 1, 10**30, "99.9 %"), (1, 3, "33.3 %"), (2, 3, "66.6 %"), (1, 1000, "0.1 %"),
    ):  # fmt: skip
        assert share_text(part, whole) == said
    (tmp_path / "large.ags1").write_bytes(ags1.encrypt(bytes(200_000), KEY))
    (tmp_path / "a.csv").write_bytes(b"1,2\n")
    shown = str(audit(tmp_path))
    assert ("99.9 %" in shown, "< 0.1 %" in shown, "100.0 %" in shown) == (True, True, False)


# -- what cannot be read -------------------------------------------------------------------------------------------


def test_what_is_no_regular_file_is_named_and_not_opened(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("a,b\n1,2\n")
    (tmp_path / "broken").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "elsewhere").symlink_to(tmp_path.parent)
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(tmp_path)
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        report = audit(tmp_path)
    assert codes(report, "error", "warning") == {"unreadable": 4, "link-not-followed": 1}
    assert report.exit_code == 4
    assert [each.name for each in report.files] == ["good"]
    assert all(str(tmp_path / name) in str(report) for name in ("broken", "pipe", "socket", "loop", "elsewhere"))


def test_temporary_files_of_interrupted_runs_are_looked_at(tmp_path: Path) -> None:
    left = f".result{TEMPORARY_SUFFIX}"
    (tmp_path / left).write_text("name,born\nAda,1815\n")
    assert [each.name for each in audit(tmp_path).files] == [left]


# -- datasets ------------------------------------------------------------------------------------------------------


@pytest.fixture
def vault(lake: Path, tmp_path: Path) -> Path:
    """A copy of the dataset, to be changed."""
    return Path(shutil.copytree(lake / "vault", tmp_path / "vault"))


def an_object(vault: Path) -> Path:
    return next(each for each in vault.glob("*.ags1"))


def test_a_dataset_is_a_group_with_its_master_key(lake: Path) -> None:
    report = audit(lake)
    (group,) = (each for each in report.groups if each.kind == "dataset")
    assert (group.path, group.keys, group.encrypted) == ("vault", ("lake",), True)
    assert group.files == sum(path.is_file() for path in (lake / "vault").rglob("*"))
    protections = {each.protection for each in report.files if report.groups[each.group] is group}
    assert protections == {"looks encrypted", "metadata"}


def test_the_audited_place_can_be_a_dataset_itself(vault: Path) -> None:
    report = audit(vault, kms=client())
    assert [each.kind for each in report.groups] == ["files", "dataset"]
    assert report.groups[0].files == 0
    assert not report.findings


def test_a_file_that_somebody_put_into_a_dataset_is_named(vault: Path) -> None:
    (vault / "notes.csv").write_text("a,b\n1,2\n")
    for kms in (None, client()):
        (found,) = audit(vault, allow="notes.csv", kms=kms).findings
        assert (found.code, found.subject) == ("dataset-foreign-file", "notes.csv")


def test_an_object_that_no_version_names_is_named(vault: Path) -> None:
    (vault / "x.0123456789ab-01234567.ags1").write_bytes(ags1.encrypt(b"x", FILE_KEY))
    assert not audit(vault).findings
    assert codes(audit(vault, kms=client())) == {"dataset-unreferenced": 1}


def test_an_object_that_is_missing_or_cut_is_damage(vault: Path) -> None:
    data = an_object(vault)
    data.write_bytes(data.read_bytes() + b"x")
    assert codes(audit(vault, kms=client()), "error") == {"dataset-file-size": 1}
    data.unlink()
    report = audit(vault, kms=client())
    assert (report.exit_code, codes(report)) == (1, {"dataset-file-missing": 1})


def test_a_changed_version_is_damage(vault: Path) -> None:
    version = vault / "_ags1" / "v-1.json"
    version.write_text(version.read_text().replace('"file-count": 2', '"file-count": 3'))
    assert audit(vault).exit_code == 0
    report = audit(vault, kms=client())
    assert (report.exit_code, codes(report)) == (1, {"dataset-damaged": 1})


def test_a_master_key_that_is_refused_is_exit_code_3(vault: Path) -> None:
    report = audit(vault, kms=MemoryKms({"other": bytes(range(16))}))
    assert (report.exit_code, codes(report)) == (3, {"key-refused": 1})


def test_older_versions_name_their_objects_too(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(3):
        (raw / "a.txt").write_text(f"a{number}")
        dataset.encrypt(raw, tmp_path / "vault", client(), "lake").close()
    assert not audit(tmp_path / "vault", kms=client()).findings


# -- tables --------------------------------------------------------------------------------------------------------


def test_an_encrypted_table_is_a_group_with_its_master_key(lake: Path) -> None:
    report = audit(lake)
    (group,) = (each for each in report.groups if each.kind == "iceberg table")
    assert (group.path, group.keys, group.encrypted) == ("db/events", ("lake",), True)
    protections = Counter(each.protection for each in report.files if report.groups[each.group] is group)
    assert set(protections) <= {"looks encrypted", "metadata"}
    assert "no KMS was given" in group.detail


def test_with_a_kms_all_columns_of_a_table_are_known_to_be_encrypted(lake: Path) -> None:
    report = audit(lake, kms=client())
    found = [each for each in report.files if each.name.startswith("db/") and each.format == "Parquet"]
    assert found
    assert all(each.columns_known and each.keys == ("lake",) for each in found)
    assert not [each for each in report.findings if each.code.startswith("table-")]


def test_plaintext_in_an_encrypted_table_is_named_even_without_a_kms(lake: Path, tmp_path: Path) -> None:
    table = Path(shutil.copytree(lake / "db" / "events", tmp_path / "events"))
    job = "0123456789abcdef0123456789abcdef"
    names = {
        f"metadata/{job}-operator-00001-0-7-00003.avro": "table-flink-manifest",
        "metadata/snap-1-1-aaaa.avro": "table-plaintext-file",
        "data/x.parquet": "table-plaintext-file",
        "metadata/1-stats.puffin": "table-plaintext-file",
    }
    for name in names:
        magic = {"parquet": b"PAR1", "puffin": b"PFA1"}.get(name.rpartition(".")[2], b"Obj\x01")
        data = (lake / "people" / "plain.parquet").read_bytes() if magic == b"PAR1" else magic + bytes(50)
        (table / name).write_bytes(data)
    report = audit(tmp_path)
    assert {each.subject for each in report.findings if each.code == "not-encrypted"} == {
        f"events/{name}" for name in names
    }
    found = {each.subject: each.code for each in report.findings if each.severity == "warning"}
    assert found == {f"events/{name}": code for name, code in names.items()}


def test_a_copied_table_is_not_taken_for_the_original(lake: Path, tmp_path: Path) -> None:
    shutil.copytree(lake / "db" / "events", tmp_path / "events")
    report = audit(tmp_path, kms=client())
    assert codes(report) == {"table-elsewhere": 1}
    assert report.exit_code == 0


def test_what_the_tables_own_audit_finds_is_taken_in(tmp_path: Path) -> None:
    from ags1.iceberg import create_table

    where = tmp_path / "t"
    table = create_table(None, str(where), PEOPLE.schema, kms=client(), key_id="lake")
    table.append(PEOPLE)
    assert not audit(where, kms=client()).findings
    (data,) = where.glob("data/**/*.parquet")
    copy = data.with_name("copy.parquet")
    shutil.copy(data, copy)
    assert codes(audit(where, kms=client())) == {"table-unreferenced": 1}
    copy.unlink()
    data.unlink()
    report = audit(where, kms=client())
    assert (report.exit_code, codes(report)) == (1, {"table-file-missing": 1})
    assert audit(where, kms=MemoryKms({"x": bytes(range(16))})).exit_code == 3


def test_a_snapshot_without_a_key_is_seen_in_the_metadata_alone(lake: Path, tmp_path: Path) -> None:
    table = Path(shutil.copytree(lake / "db" / "events", tmp_path / "events"))
    path, fields = newest_metadata(table)
    (snapshot,) = fields["snapshots"]  # type: ignore[misc]
    del snapshot["key-id"]
    fields["statistics"] = [{"snapshot-id": 1, "statistics-path": "s.puffin", "file-size-in-bytes": 1}]
    path.write_text(json.dumps(fields))
    assert codes(audit(tmp_path)) == {"table-snapshot-without-key": 1, "table-statistics-plaintext": 1}


def test_a_plaintext_table_needs_no_kms(tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=(tmp_path / "lake").as_uri())
    catalog.create_namespace("db")
    catalog.create_table("db.t", PEOPLE.schema).append(PEOPLE)
    catalog.engine.dispose()
    (tmp_path / "lake" / "db" / "t" / "data" / "left.parquet").write_bytes(b"")
    report = audit(tmp_path / "lake", allow="*")
    (group,) = report.groups[1:]
    assert (group.kind, group.encrypted) == ("iceberg table", False)
    assert codes(report) == {"table-unreferenced": 1}
    assert {each.protection for each in report.files} == {"plaintext", "empty"}


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1}', "\x1f\x8b"])
def test_metadata_of_a_table_that_is_none_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "v1.metadata.json").write_text(text, "latin-1")
    report = audit(tmp_path, kms=client())
    assert (report.exit_code, codes(report, "error")) == (1, {"table-damaged": 1})


@pytest.mark.parametrize(
    "fields",
    [
        {"location": "s3://", "properties": []},
        {"location": "a\0b", "properties": {"encryption.key-id": ["x"]}},
        {"location": 7, "encryption-keys": [{"key-id": [1], "encrypted-by-id": {}}, 3], "snapshots": [1, {}]},
        {"location": {}, "encryption-keys": {"a": 1}, "snapshots": {}, "statistics": [{"statistics-path": [1]}]},
        {"encryption-keys": [{"key-id": "<b>", "encrypted-by-id": "\x1b[2J"}], "statistics": [{}]},
    ],
)
def test_metadata_that_lies_ends_no_audit(tmp_path: Path, fields: dict[str, Any]) -> None:
    for location in (fields.get("location"), str(tmp_path / "t")):
        text = json.dumps({"format-version": 3, **fields, "location": location})
        (tmp_path / "t" / "metadata").mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / "metadata" / "v1.metadata.json").write_text(text)
        for kms in (None, client()):
            report = audit(tmp_path, kms=kms)
            assert [each.kind for each in report.groups] == ["files", "iceberg table"]
            assert "\x1b" not in str(report)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format-version": 2}', '{"format-version": 1, "key": 7}'])
def test_a_version_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "_ags1").mkdir()
    (tmp_path / "_ags1" / "v-1.json").write_text(text)
    for kms in (None, client()):
        report = audit(tmp_path, kms=kms)
        assert (report.exit_code, codes(report, "error")) == (1, {"dataset-damaged": 1})


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files_end_no_audit(lake: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    copy = Path(shutil.copytree(lake, tmp_path / "lake"))
    for path in sorted(each for each in copy.rglob("*") if each.is_file() and each.stat().st_size):
        data = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(data[: chance.randint(1, len(data))] if chance.random() < 0.3 else data)
    for kms in (None, client()):
        report = audit(copy, kms=kms)
        assert len(report.files) == sum(each.is_file() for each in copy.rglob("*"))
        assert str(report)
        json.dumps(report.to_dict())
