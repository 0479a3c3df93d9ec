"""``ags1 iceberg`` on real tables: it shows and writes the rows that Spark reads, and Java reads what it changed."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from ags1 import Key
from ags1.cli import main
from ags1.iceberg import EncryptionKeys
from ags1.kms import LocalKms
from tests.checks import flip
from tests.cli.conftest import Result
from tests.iceberg.forged import forged, without_length
from tests.iceberg.keys import MASTER_KEYS, keystore
from tests.iceberg.warehouse import SparkReader, SparkTable, SparkTables, local_path

Run = Callable[..., Result]
SCANNED = ("events", "events_avro", "maintained", "evolution", "evolution_avro", "emptied", "deletes")


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in this process, in an empty directory, with a local keystore that has the tables' master keys."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("AGS1_KMS", keystore(tmp_path))

    def run_(*arguments: str | os.PathLike[str]) -> Result:
        code = main(["iceberg", *(os.fspath(each) for each in arguments)])
        captured = capsysbinary.readouterr()
        for key in MASTER_KEYS.values():
            for form in (key, key.hex().encode(), base64.b64encode(key)):
                assert form not in captured.out + captured.err
        err = captured.err.decode()
        assert "Traceback" not in err
        return Result(code, captured.out, err)

    return run_


@pytest.fixture
def without_kms(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same with no KMS named."""
    monkeypatch.delenv("AGS1_KMS")
    return run


def copied(table: SparkTable, directory: str = "table") -> Path:
    """A copy of the metadata file, alone in a directory."""
    Path(directory, "metadata").mkdir(parents=True)
    return table.copy_metadata(Path(directory, "metadata"))


def data_file(table: SparkTable) -> Path:
    return next(each.path for each in table.files if each.content == 0)


# -- scan ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCANNED)
def test_a_scan_prints_every_row_that_spark_reads(spark_tables: SparkTables, run: Run, name: str) -> None:
    table = spark_tables[name]
    assert table.current is not None
    found = run("scan", table.metadata, "--format", "json")
    assert (found.code, found.err) == (0, "")
    assert all(list(row) == table.current.columns for row in found.records)
    place = table.current.columns.index("id")
    assert sorted(row["id"] for row in found.records) == sorted(row[place] for row in table.current.rows)


def test_every_snapshot_can_be_scanned_by_its_id_and_by_its_time(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["events"]
    by_id = {each["snapshot-id"]: each for each in table.document["snapshots"]}
    for snapshot in table.snapshots:
        found = run("scan", table.metadata, "--snapshot", str(snapshot.id), "--format", "json")
        assert sorted(row["id"] for row in found.records) == sorted(row[0] for row in snapshot.rows)
        then = run("scan", table.metadata, "--as-of", str(by_id[snapshot.id]["timestamp-ms"]), "--format", "json")
        assert then.records == found.records
    assert run("scan", table.metadata, "--as-of", "2001-01-01").code == 2
    assert "the table has no snapshot 5" in run("scan", table.metadata, "--snapshot", "5").err


def test_rows_and_columns_are_chosen(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["events"]
    assert table.current is not None
    wanted = sorted(row[0] for row in table.current.rows if row[0] > 50)
    chosen = run("scan", table.metadata, "--columns", "region,id", "--filter", "id > 50", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(chosen.out)))
    assert chosen.out.startswith("region,id\n")
    assert sorted(int(row["id"]) for row in rows) == wanted
    limited = run("scan", table.metadata, "--limit", "3", "--columns", "id")
    assert [line.strip() for line in limited.out.splitlines()[:2]] == ["id", "--"]
    assert len(limited.out.splitlines()) == 5
    assert run("scan", table.metadata, "--limit", "0", "--columns", "id").out == "id\n--\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--filter", "id >"),
            "the filter 'id >' is refused: PyIceberg's parser does not understand it from 'id >' on. Write, for",
        ),
        (("--filter", "nothing > 3"), "nothing, case_sensitive=True; the columns are id, "),
        (("--columns", "nothing"), "'nothing'; the columns are id, "),
        (("--columns", "id,"), "--columns: there is an empty column name"),
        (("--format", "parquet"), "invalid choice: 'parquet'"),
        (("--snapshot", "x"), "'x' is neither the id of a snapshot"),
        (("--as-of", "yesterday"), "'yesterday' is not a time such as 2026-11-01"),
    ],
)
def test_what_cannot_be_scanned_is_told_in_words_of_the_command(
    spark_tables: SparkTables, run: Run, arguments: tuple[str, ...], message: str
) -> None:
    found = run("scan", spark_tables["events"].metadata, *arguments)
    assert (found.code, found.out) == (2, "")
    assert message in found.err
    assert len(found.err.splitlines()) == 1


def test_plaintext_files_are_taken_only_on_request(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["mixed"]
    assert table.current is not None
    refused = run("scan", table.metadata)
    assert refused.code == 3
    assert "is not encrypted, although its table is" in refused.err
    assert "with --allow-plaintext to read it" in refused.err
    taken = run("scan", table.metadata, "--allow-plaintext", "--format", "json")
    assert len(taken.records) == len(table.current.rows)


# -- keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["files", "scan", "audit", "verify", "cat", "rewrap"])
def test_without_a_kms_an_encrypted_table_is_refused(spark_tables: SparkTables, without_kms: Run, action: str) -> None:
    more = {"cat": ["x.avro"], "rewrap": ["--new-key-id", "keyB"]}.get(action, [])
    refused = without_kms(action, spark_tables["maintained"].metadata, *more)
    assert (refused.code, refused.out) == (3, "")
    assert "a KMS is needed for the table's keys: --kms URL or the variable AGS1_KMS" in refused.err


@pytest.mark.parametrize("action", ["inspect", "files", "scan", "audit", "verify"])
def test_a_kms_with_other_keys_is_a_missing_key(
    spark_tables: SparkTables, run: Run, tmp_path: Path, action: str
) -> None:
    secret = tmp_path / "secret"
    with LocalKms(tmp_path / "other.json", key_file=secret) as client:
        client.make({"keyA": Key.generate()})
    # The key encryption keys of the process's cache belong to another client.
    other = f"local:{tmp_path / 'other.json'}?key_file={secret}"
    assert run(action, spark_tables["maintained"].metadata, "--kms", other).code == 3


def test_another_master_key_than_the_trusted_one_is_refused(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    assert run("scan", table.metadata, "--expected-key-id", "keyA").code == 0
    refused = run("scan", table.metadata, "--expected-key-id", "keyB")
    assert refused.code == 3
    assert "is under the master key 'keyA', and 'keyB' is expected" in refused.err


# -- inspect, files, audit, verify ---------------------------------------------------------------------------


def test_inspect_draws_the_table_as_a_tree(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    shown = run("inspect", table.metadata)
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    assert lines[0] == f"{table.metadata}  format version 3, master key 'keyA', encrypted"
    assert f"└── snapshot {table.current_id}  current, branch 'main', " in shown.out
    assert lines[-1].endswith("records")
    number = len(table.document["snapshots"])
    assert f"└── snapshots  1 of {number} (the others are not shown)\n" in shown.out
    everything = run("inspect", table.metadata, "--snapshot", "all").out
    assert f"└── snapshots  {number}\n" in everything
    assert "tag 'kept'" in everything
    for entry in table.document["encryption-keys"]:
        assert entry["key-id"] in everything
        assert entry["encrypted-key-metadata"] not in everything
    for file in table.files:
        assert file.path.name in everything


def test_inspect_without_a_kms_shows_what_the_metadata_says(spark_tables: SparkTables, without_kms: Run) -> None:
    table = spark_tables["maintained"]
    shown = without_kms("inspect", table.metadata, "--snapshot", "all")
    assert (shown.code, shown.err) == (0, "")
    assert "give --kms" in shown.out
    for snapshot in table.snapshots:
        assert str(snapshot.id) in shown.out
    assert without_kms("inspect", table.metadata, "--json").records[0]["error"] is None


def test_inspect_says_which_part_of_a_table_cannot_be_read(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    path = local_path(
        next(s["manifest-list"] for s in table.document["snapshots"] if s["snapshot-id"] == table.current_id)
    )
    with table.damaged(path, flip(path.read_bytes(), 40)):
        shown = run("inspect", table.metadata)
        record = run("inspect", table.metadata, "--json").records[0]
    assert shown.code == 1
    assert "PROBLEM: " in shown.out
    assert path.name in shown.err
    assert path.name in record["error"]


def test_inspect_for_machines_agrees_with_the_metadata(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["events"]
    record = run("inspect", table.metadata, "--json", "--snapshot", "all").records[0]
    assert (record["metadata_location"], record["error"]) == (table.metadata, None)
    keys, snapshots = record["tree"]["children"]
    named = {each["name"].strip("'") for kek in keys["children"] for each in (kek, *kek["children"])}
    assert named == {each["key-id"] for each in table.document["encryption-keys"]}
    assert [int(each["name"]) for each in snapshots["children"] if "current" in each["facts"]] == [table.current_id]
    assert {each.location for each in table.files} <= set(paths_of(snapshots))


def paths_of(node: dict[str, Any]) -> Iterator[str | None]:
    """Of a tree of `inspect`."""
    yield node["path"]
    for each in node["children"]:
        yield from paths_of(each)


def test_inspect_draws_tables_without_keys(spark_tables: SparkTables, run: Run) -> None:
    shown = run("inspect", spark_tables["events_plain"].metadata)
    assert (shown.code, shown.out.splitlines()[0].rpartition(", ")[2]) == (0, "NOT encrypted")
    empty = run("inspect", spark_tables["empty"].metadata)
    assert (empty.code, empty.out.splitlines()[-1]) == (0, "└── snapshots  0")


def test_files_are_those_that_spark_names(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["events"]
    listed = run("files", table.metadata, "--format", "json", "--sizes").records
    below = {each["path"]: each for each in listed if not each["kind"].startswith("manifest")}
    assert set(below) == {each.location for each in table.files}
    for file in table.files:
        assert (
            below[file.location]["stored_length"] == below[file.location]["physical_size"] == file.path.stat().st_size
        )
    everything = run("files", table.metadata, "--snapshot", "all", "--format", "csv").out
    assert len(everything.splitlines()) > len(listed) + 1
    shown = run("files", table.metadata).out
    assert data_file(table).name in shown
    assert "..." not in shown


def test_audit_tells_errors_from_notes(spark_tables: SparkTables, run: Run) -> None:
    clean = run("audit", spark_tables["maintained"].metadata)
    assert (clean.code, clean.err) == (0, "")
    assert "note: key-unused: " in clean.out
    assert run("audit", spark_tables["maintained"].metadata, "-q").out == ""
    mixed = run("audit", spark_tables["mixed"].metadata)
    assert mixed.code == 5
    assert "ags1: error: file-plaintext: " in mixed.err
    record = run("audit", spark_tables["mixed"].metadata, "--json").records[0]
    assert (record["ok"], record["error"]) == (False, "NOT OK (1 error)")
    assert record["findings"][0]["code"] == "file-plaintext"
    assert run("audit", spark_tables["mixed"].metadata, "--allow-plaintext").code == 0


def test_verify_names_the_file_that_was_changed(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    clean = run("verify", table.metadata)
    assert (clean.code, clean.err) == (0, "")
    assert ": all authentic" in clean.out
    path = data_file(table)
    with table.damaged(path, flip(path.read_bytes(), 40)):
        found = run("verify", table.metadata, "--progress", "never")
        record = run("verify", table.metadata, "--json", "--snapshot", "current").records[0]
    assert found.code == 1
    assert path.name in found.err
    assert ": DAMAGED (1 error)" in found.out
    assert (record["ok"], record["counts"], record["error"]) == (False, {"damaged": 1}, "DAMAGED (1 error)")


def test_verify_of_files_whose_length_nobody_vouches_for_is_no_success(
    spark_tables: SparkTables, run: Run, tmp_path: Path
) -> None:
    def forget(fields: dict[str, Any]) -> None:
        fields["key_metadata"] = without_length(fields["key_metadata"])

    location = forged(spark_tables["types_avro"], tmp_path, entry=forget)
    assert run("verify", location, "--length-policy", "metadata-hint").code == 0
    found = run("verify", location, "--length-policy", "file")
    assert (found.code, "warning: untrusted-length: " in found.err) == (5, True)


def test_verify_calls_a_plaintext_file_a_finding(spark_tables: SparkTables, run: Run) -> None:
    found = run("verify", spark_tables["mixed"].metadata)
    assert (found.code, ": NOT PROTECTED (1 violation)" in found.out) == (5, True)
    record = run("verify", spark_tables["mixed"].metadata, "--json").records[0]
    assert (record["outcome"], record["findings"][0]["outcome"]) == ("not protected", "not protected")
    assert "with --allow-plaintext if that is meant to be" in found.err
    allowed = run("verify", spark_tables["mixed"].metadata, "--allow-plaintext")
    assert (allowed.code, "which was allowed: only its size was checked" in allowed.err) == (5, True)


# -- cat -----------------------------------------------------------------------------------------------------


def test_cat_of_a_manifest_list_warns_of_the_keys_in_it(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    path = table.document["snapshots"][0]["manifest-list"]
    raw = run("cat", table.metadata, path)
    assert raw.code == 0
    assert raw.err == "ags1: warning: the plaintext of this manifest list contains keys of the files below it\n"
    entries = list(fastavro.reader(io.BytesIO(raw.raw)))
    assert run("cat", table.metadata, Path(path).name).raw == raw.raw
    assert all(each["key_metadata"] for each in entries)


def test_cat_of_a_data_file_is_a_plaintext_one(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    found = run("cat", table.metadata, data_file(table))
    assert (found.code, found.err) == (0, "")
    assert pq.read_table(io.BytesIO(found.raw)).column_names == ["id", "text"]


def test_branches_and_tags_are_named_by_ref(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["branches"]
    for ref, expected in table.refs.items():
        shown = run("scan", table.metadata, "--ref", ref, "--format", "json", "--columns", "id,_row_id")
        assert sorted(each["id"] for each in shown.records) == sorted(
            row[expected.columns.index("id")] for row in expected.rows
        )
        assert all(isinstance(each["_row_id"], int) for each in shown.records)
    listed = run("files", table.metadata, "--ref", "early", "--format", "json").records
    number = table.document["refs"]["early"]["snapshot-id"]
    assert {tuple(each["snapshot_ids"]) for each in listed} == {(number,)}
    for action in ("inspect", "audit", "verify"):
        assert run(action, table.metadata, "--ref", "early").code == 0
    for action in ("scan", "files", "audit", "verify", "inspect"):
        refused = run(action, table.metadata, "--ref", "none")
        assert refused.code == 2
        assert "the table has no branch or tag 'none'; it has " in refused.err
        assert run(action, table.metadata, "--ref", "early", "--snapshot", "1").code == 2


def test_cat_refuses_what_is_no_file_of_the_table(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    missing = run("cat", table.metadata, "nothing.parquet")
    assert missing.code == 4
    assert "nothing.parquet: the table has no such file" in missing.err


# -- which metadata file -------------------------------------------------------------------------------------


def test_a_directory_stands_for_its_newest_metadata_file(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    path = copied(table)
    for older in ("00009-a", "00002-b", "v3"):
        path.with_name(f"{older}.metadata.json").write_text("{}")
    for given in ("table", "table/", "table/metadata", f"file:{Path.cwd()}/table"):
        found = run("scan", given, "--limit", "1")
        assert found.code == 0
        assert f"{path.name} is the newest there by its number" in found.err
    path.with_name("00011-other.metadata.json").write_text("{}")
    refused = run("scan", "table")
    assert refused.code == 2
    assert "2 metadata files of the number 11" in refused.err


def test_what_is_no_table_is_refused(spark_tables: SparkTables, run: Run) -> None:
    Path("void").mkdir()
    Path("text").write_text("{}")
    Path("00001-a.metadata.json").write_text("{")
    assert "there are no metadata files in void" in run("scan", "void").err
    assert "ends with .metadata.json" in run("scan", "text").err
    assert run("scan", "nowhere").code == 4
    assert run("inspect", "00009-b.metadata.json").code == 4
    for action in ("inspect", "scan", "prune"):
        assert run(action, "00001-a.metadata.json").code == 1


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Any, list[str]]]:
    """A client for a store with the bucket `lake`, and the options that lead to it."""
    boto3 = pytest.importorskip("boto3")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        monkeypatch.setenv("A_SECRET", "testing")
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )
        client.create_bucket(Bucket="lake")
        given = (f"s3.endpoint={endpoint}", "s3.region=us-east-1", "s3.access-key-id=testing")
        yield client, [each for text in (*given, "s3.secret-access-key=env:A_SECRET") for each in ("--property", text)]
    finally:
        server.stop()


def test_a_table_in_a_store_is_found_read_and_rewrapped(
    spark_tables: SparkTables, run: Run, bucket: tuple[Any, list[str]]
) -> None:
    table = spark_tables["maintained"]
    client, options = bucket
    name = table.metadata_path.name
    client.put_object(Bucket="lake", Key=f"t/metadata/{name}", Body=table.metadata_path.read_bytes())
    client.put_object(Bucket="lake", Key="t/metadata/00001-a.metadata.json", Body=b"{}")
    shown = run("scan", "s3://lake/t", *options, "--limit", "1")
    assert (shown.code, len(shown.out.splitlines())) == (0, 3)
    assert f"s3://lake/t/metadata/{name} is the newest there" in shown.err
    record = run("rewrap", "s3://lake/t", *options, "--new-key-id", "keyB", "--json").records[0]
    listed = {each["Key"] for each in client.list_objects_v2(Bucket="lake")["Contents"]}
    assert record["old_metadata"] == f"s3://lake/t/metadata/{name}"
    assert record["new_metadata"].removeprefix("s3://lake/") in listed
    assert run("verify", record["new_metadata"], *options, "--expected-key-id", "keyB").code == 0
    assert run("scan", "s3://lake/nothing", *options).code in (2, 4)


# -- rewrap and prune ----------------------------------------------------------------------------------------


def changed_fields(old: dict[str, Any], new: dict[str, Any]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def only_new(before: set[str]) -> Path:
    """The one metadata file that was not there before."""
    (name,) = set(os.listdir("table/metadata")) - before
    return Path("table/metadata", name)


@pytest.mark.parametrize("name", ["maintained", "events_avro"])
def test_java_reads_a_table_that_was_rewrapped_and_pruned(
    spark_tables: SparkTables, spark_reader: SparkReader, run: Run, name: str
) -> None:
    table = spark_tables[name]
    assert table.current is not None
    path = copied(table)
    done = run("rewrap", path, "--new-key-id", "keyB")
    assert (done.code, done.err) == (0, "")
    rewrapped = only_new({path.name})
    assert f"wrote {rewrapped.resolve()}" in done.out
    assert "CALL CATALOG.system.register_table(table => 'NAME', metadata_file => " in done.out
    document = json.loads(rewrapped.read_bytes())
    assert changed_fields(table.document, document) == {
        "encryption-keys",
        "properties",
        "metadata-log",
        "last-updated-ms",
    }
    assert document["properties"] == {**table.document["properties"], "encryption.key-id": "keyB"}
    assert spark_reader.read(rewrapped) == (table.current.columns, table.current.rows)
    assert run("verify", rewrapped, "--expected-key-id", "keyB").code == 0

    pruned = run("prune", rewrapped)
    assert pruned.code == 0
    if name != "maintained":
        assert "9 keys are in use; nothing was written" in pruned.out
        return
    after = only_new({path.name, rewrapped.name})
    assert "5 keys dropped, 4 kept" in pruned.out
    assert len(json.loads(after.read_bytes())["encryption-keys"]) == 4
    for snapshot in table.snapshots:
        assert spark_reader.read(after, snapshot.id) == (snapshot.columns, snapshot.rows)
    assert run("audit", after).out.splitlines()[0].endswith(": ok")


def test_the_new_file_has_the_next_number_and_continues_the_history(spark_tables: SparkTables, run: Run) -> None:
    table = spark_tables["maintained"]
    path = copied(table)
    record = run("rewrap", path, "--new-key-id", "key256", "--json").records[0]
    new = only_new({path.name})
    assert new.name.startswith("00012-")
    assert record["new_metadata"] == str(new.resolve())
    assert (record["old_key_ids"], record["new_key_id"], record["dry_run"]) == (["keyA"], "key256", False)
    document = json.loads(new.read_bytes())
    added = {"timestamp-ms": table.document["last-updated-ms"], "metadata-file": str(path.resolve())}
    assert document["metadata-log"] == [*table.document["metadata-log"], added]
    assert document["last-updated-ms"] >= table.document["last-updated-ms"]
    assert path.read_bytes() == table.metadata_path.read_bytes()
    keys = EncryptionKeys.from_table_metadata(document)
    assert {each.encrypted_by_id for each in keys if each.timestamp is not None} == {"key256"}


@pytest.mark.parametrize("action", [("rewrap", "--new-key-id", "keyB"), ("prune",)])
def test_a_dry_run_writes_nothing(spark_tables: SparkTables, run: Run, action: tuple[str, ...]) -> None:
    path = copied(spark_tables["maintained"])
    done = run(action[0], path, *action[1:], "--dry-run")
    assert done.code == 0
    assert "would write metadata file 12 beside " in done.out
    assert os.listdir("table/metadata") == [path.name]
    record = run(action[0], path, *action[1:], "--dry-run", "--json").records[0]
    assert (record["dry_run"], record["new_metadata"], record["error"]) == (True, None, None)
    assert os.listdir("table/metadata") == [path.name]


def test_a_rewrap_that_fails_writes_nothing(spark_tables: SparkTables, run: Run) -> None:
    path = copied(spark_tables["maintained"])
    failed = run("rewrap", path, "--new-key-id", "nothing")
    assert failed.code == 3
    assert "nothing" in failed.err
    assert run("rewrap", path, "--new-key-id", "nothing", "--json").records[0]["error"]
    assert os.listdir("table/metadata") == [path.name]
    plain = copied(spark_tables["events_plain"], "plain")
    for action in (("rewrap", "--new-key-id", "keyB"), ("prune",)):
        refused = run(action[0], plain, *action[1:])
        assert refused.code == 1
        assert "the table is not encrypted" in refused.err


def test_prune_needs_no_kms_and_keeps_what_it_is_told_to(spark_tables: SparkTables, without_kms: Run) -> None:
    table = spark_tables["maintained"]
    path = copied(table)
    used = {each["key-id"] for each in table.document["snapshots"]}
    spare = next(each["key-id"] for each in table.document["encryption-keys"][1:] if each["key-id"] not in used)
    record = without_kms("prune", path, "--keep", spare, "--json").records[0]
    assert spare in record["kept"]
    assert len(record["dropped"]) == 4
    assert "has no such key" in without_kms("prune", path, "--keep", "x").err


def test_a_table_without_snapshots_is_rewrapped_by_its_property_alone(
    spark_tables: SparkTables, spark_reader: SparkReader, run: Run
) -> None:
    path = copied(spark_tables["empty"])
    assert run("rewrap", path, "--new-key-id", "keyB").code == 0
    new = only_new({path.name})
    assert json.loads(new.read_bytes())["properties"]["encryption.key-id"] == "keyB"
    assert spark_reader.read(new)[1] == []


def test_what_was_made_from_a_file_stands_for_it_and_other_newer_files_are_not_passed_over(
    spark_tables: SparkTables, run: Run
) -> None:
    path = copied(spark_tables["maintained"])
    assert run("rewrap", path, "--new-key-id", "keyB", "-q").err == ""
    new = only_new({path.name})
    again = run("prune", path)
    assert again.code == 0
    assert f"{new.name} was made from {path}" in again.err
    newest = only_new({path.name, new.name})
    assert json.loads(newest.read_bytes())["properties"]["encryption.key-id"] == "keyB"
    path.with_name("00020-foreign.metadata.json").write_text("{}")
    refused = run("rewrap", path, "--new-key-id", "keyA")
    assert refused.code == 6
    assert "00020-foreign.metadata.json, with a higher number" in refused.err


def test_a_change_is_committed_to_a_catalog(spark_tables: SparkTables, run: Run, tmp_path: Path) -> None:
    from pyiceberg.catalog import load_catalog

    path = copied(spark_tables["maintained"])
    uri = f"sqlite:///{tmp_path}/catalog.db"
    # As PyIceberg's configuration would say it, which it reads once in a process.
    lake = ("--catalog", "lake", "--property", "type=sql", "--property", f"uri={uri}")
    catalog: Any = load_catalog("lake", type="sql", uri=uri)
    catalog.create_namespace("db")
    catalog.register_table("db.t", str(path.resolve()))
    dry = run("rewrap", "db.t", "--new-key-id", "keyB", *lake, "--dry-run")
    assert (dry.code, "would be committed" in dry.out) == (0, True)
    done = run("rewrap", "db.t", "--new-key-id", "keyB", *lake)
    assert (done.code, done.err) == (0, "")
    assert " to lake\n" in done.out
    assert "register" not in done.out
    pruned = run("prune", "db.t", *lake, "--json").records[0]
    assert pruned["new_metadata"] == catalog.load_table("db.t").metadata_location
    assert run("verify", pruned["new_metadata"], "--expected-key-id", "keyB").code == 0
    assert run("prune", "db.none", *lake).code == 4
    catalog.engine.dispose()
