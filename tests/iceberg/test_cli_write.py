"""``ags1 iceberg create``, ``append`` and ``delete``, of tables in directories."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import fastavro
import pyarrow
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from pyiceberg.catalog import load_catalog

from ags1.cli import main
from tests.cli.conftest import Result
from tests.iceberg.keys import keystore

Run = Callable[..., Result]
ROWS = pyarrow.table(
    {
        "id": pyarrow.array(range(6), pyarrow.int64()),
        "c": ["a", "b", None, "a", "b", ""],
        "at": pyarrow.array(range(0, 6 * 10**12, 10**12), pyarrow.timestamp("us", "UTC")),
    }
)


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command in this process, in an empty directory, with a local keystore."""
    directory = tmp_path / "work"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setenv("AGS1_KMS", keystore(tmp_path))
    pyarrow.parquet.write_table(ROWS, "rows.parquet")
    pyarrow.csv.write_csv(ROWS, "rows.csv")
    pyarrow.feather.write_feather(ROWS, "rows.arrow")

    def run_(*arguments: str | os.PathLike[str]) -> Result:
        code = main(["iceberg", *(os.fspath(each) for each in arguments)])
        captured = capsysbinary.readouterr()
        return Result(code, captured.out, captured.err.decode())

    return run_


def test_a_filter_with_a_tab_in_a_text_deletes_nothing(run: Run) -> None:
    """The threat: PyIceberg's parser reads spaces, and the row that had to be kept is deleted."""
    rows = pyarrow.table({"s": ["a\tb", "a       b", "a b", None]})
    pyarrow.parquet.write_table(rows, "tabs.parquet")
    assert run("create", "t", "--schema", "tabs.parquet", "--key-id", "keyA").code == 0
    assert run("append", "t", "tabs.parquet", "-q").code == 0
    refused = run("delete", "t", "--filter", "s != 'a\tb'", "--yes")
    assert refused.code == 2
    assert "Give an expression object instead" in refused.err
    assert run("delete", "t", "--filter", "s\t=\t'a b'", "--yes").code == 0
    scanned = run("scan", "t", "--format", "json", "-q")
    assert [json.loads(line)["s"] for line in scanned.out.splitlines()] == ["a\tb", "a       b", None]


def test_a_table_is_made_filled_and_emptied_from_the_command_line(run: Run) -> None:
    made = run("create", "t", "--schema", "rows.parquet", "--partition-by", "day(at)", "--key-id", "keyA", "--json")
    assert made.code == 0, made.err
    assert json.loads(made.out)["metadata_location"].endswith(".metadata.json")
    for name in ("rows.parquet", "rows.csv", "rows.arrow"):
        found = run("append", "t", name, "--json", "--quiet")
        assert found.code == 0, found.err
        assert json.loads(found.out)["added_rows"] == 6
    assert run("append", "t", "rows.parquet", "rows.parquet", "-q").code == 0
    scanned = run("scan", "t", "--format", "json", "--filter", "id = 2", "-q")
    lines = [json.loads(line) for line in scanned.out.splitlines()]
    assert [(each["id"], each["c"]) for each in lines] == [(2, None)] * 5
    assert len({each["at"] for each in lines}) == 1
    found = run("delete", "t", "--filter", "c = 'a'", "--dry-run", "-q", "--json")
    assert json.loads(found.out)["would_delete"] == 10
    refused = run("delete", "t", "--filter", "c = 'a'")
    assert refused.code == 2
    assert "Delete 10 of 30 rows? Nobody can be asked here: say --yes" in refused.err
    found = run("delete", "t", "--filter", "c = 'a'", "--yes")
    assert found.code == 0
    assert "10 rows deleted" in found.out
    found = run("delete", "t", "--filter", "c = 'a'")
    assert (found.code, "nothing to do" in found.out) == (0, True)
    assert run("verify", "t", "-q").code == 0


@pytest.fixture
def named(tmp_path: Path) -> list[str]:
    """What calls a table of an empty catalog."""
    properties = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    catalog = load_catalog("work", **properties)
    catalog.create_namespace("db")
    catalog.engine.dispose()  # type: ignore[attr-defined]
    return ["db.events", "--catalog", "work", *(f"--property={name}={text}" for name, text in properties.items())]


def test_a_table_of_a_catalog_is_called_by_its_name(run: Run, named: list[str]) -> None:
    assert run("create", *named, "--schema", "rows.parquet", "--key-id", "keyA", "--set", "a=b", "-q").code == 0
    assert json.loads(run("append", named[0], "rows.csv", *named[1:], "--json").out)["added_rows"] == 6
    assert json.loads(run("delete", *named, "--filter", "id < 2", "--yes", "--json").out)["deleted_rows"] == 2
    again = run("create", *named, "--schema", "rows.parquet", "--key-id", "keyA")
    assert again.code == 9
    assert "db.events: the catalog has something of this name already" in again.err


def test_what_is_read_is_what_the_catalog_has_and_not_the_newest_file(run: Run, named: list[str]) -> None:
    made = run("create", *named, "--schema", "rows.parquet", "--key-id", "keyA", "--json")
    run("append", *named, "rows.csv", "-q")
    metadata = Path(made.records[0]["metadata_location"].removeprefix("file://"))
    metadata.with_name("00009-lost.metadata.json").write_text("{}")
    listed = run("files", *named, "--format", "json")
    path = next(each["path"] for each in listed.records if each["kind"] == "manifest")
    assert len(run("scan", *named, "--filter", "id < 2", "--format", "json").records) == 2
    for action in ("inspect", "audit", "verify"):
        found = run(action, *named)
        assert (found.code, found.err) == (0, "")
    (entry,) = fastavro.reader(io.BytesIO(run("cat", "db.events", path, *named[1:]).raw))
    assert entry["data_file"]["record_count"] == 6
    assert run("scan", *named, "--expected-key-id", "keyA").code == 0
    assert run("scan", *named, "--expected-key-id", "keyB").code == 3
    assert run("scan", *named, "--expected-metadata-hash", "A" * 43 + "=").code == 1
    missing = run("verify", "db.none", *named[1:])
    assert (missing.code, len(missing.err.splitlines())) == (4, 1)


def test_plaintext_that_only_old_snapshots_have_leads_to_expire(run: Run, named: list[str], tmp_path: Path) -> None:
    catalog = load_catalog("work", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    table = catalog.create_table("db.events", ROWS.schema, properties={"format-version": "2"})
    table.append(ROWS)
    catalog.engine.dispose()  # type: ignore[attr-defined]
    advice = "of old snapshots alone, which `ags1 iceberg expire` removes: 3 plaintext files"
    encrypt = ("encrypt", *named, "--key-id", "keyA", "--yes", "-q")
    enabled = run(*encrypt, "--enable-only")
    assert (enabled.code, "NOT all encrypted yet: only new files are" in enabled.err) == (5, True)
    for action in ("verify", "audit"):
        # Of the snapshot that stays.
        found = run(action, *named)
        assert (found.code != 0, "expire" in found.out + found.err) == (True, False)
    assert run(*encrypt).code == 5
    for action in ("verify", "audit"):
        found = run(action, *named)
        assert (found.code != 0, found.out.splitlines()[-1].strip()) == (True, advice)
        old = str(table.metadata.current_snapshot_id)
        assert "expire" not in run(action, *named, "--snapshot", old).out
        assert "expire" not in run(action, *named, "--allow-plaintext").out
    assert run("expire", *named, "--yes", "-q").code == 0
    for action in ("verify", "audit"):
        found = run(action, *named)
        assert (found.code, "expire" in found.out) == (0, False)


def test_a_filter_that_makes_no_sense_says_how_it_is_written_and_which_columns_there_are(run: Run) -> None:
    run("create", "t", "--schema", "rows.parquet", "--key-id", "keyA", "-q")
    run("append", "t", "rows.csv", "-q")
    for action in (("delete", "t", "--yes"), ("scan", "t")):
        for text, said in (
            ('c = "x"', "a name with other characters than letters, digits and _ in double quotes"),
            ("c = 'x", "a name with other characters than letters, digits and _ in double quotes"),
            ("c = at", "a name with other characters than letters, digits and _ in double quotes"),
            ("d = 'x'", "; the columns are id, c, at"),
            ("\"d\" = 'x'", "; the columns are id, c, at"),
        ):
            found = run(*action, "--filter", text)
            assert (found.code, found.err.splitlines()[-1].endswith(said)) == (2, True), found.err
    assert len(run("scan", "t", "--format", "json").records) == 6


def test_a_rewrap_says_which_master_key_the_table_is_no_more_under(run: Run) -> None:
    run("create", "t", "--schema", "rows.parquet", "--key-id", "keyA", "-q")
    run("append", "t", "rows.csv", "-q")
    for new, said in (
        ("keyA", "1 key encryption key is wrapped again under the master key 'keyA'"),
        ("keyB", "1 key encryption key is under the master key 'keyB', no more under 'keyA'"),
        ("keyB", "1 key encryption key is wrapped again under the master key 'keyB'"),
    ):
        assert run("rewrap", "t", "--new-key-id", new).out.splitlines()[0] == said


def test_a_schema_in_icebergs_json_is_taken(run: Run) -> None:
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": 1, "name": "c", "required": True, "type": "string"}],
    }
    Path("s.json").write_text(json.dumps(schema))
    assert run("create", "t", "--schema", "s.json", "--key-id", "keyA", "-q").code == 0
    refused = run("append", "t", "rows.parquet", "--json", "-q")
    assert refused.code != 0
    assert "id is no column of the table" in json.loads(refused.out)["error"]
    Path("s.json").write_text("[]")
    assert "Iceberg's JSON" in run("create", "u", "--schema", "s.json", "--key-id", "keyA").err
    Path("s.json").write_text("{}")
    assert "at least one column" in run("create", "u", "--schema", "s.json", "--key-id", "keyA").err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "t", "--schema", "rows.txt", "--key-id", "keyA"], "does not say what it is"),
        (["create", "t", "--schema", "rows.csv", "--key-id", "none"], "none"),
        (["create", "t", "--schema", "rows.csv", "--key-id", "keyA", "--set", "x"], "argument --set: needs NAME=VALUE"),
        (
            ["create", "t", "--schema", "rows.csv", "--key-id", "keyA", "--partition-by", "week(at)"],
            "no transform week",
        ),
        (["append", "t", "rows.csv", "rows.parquet"], "must be of one format"),
    ],
)
def test_what_makes_no_sense_is_said(arguments: list[str], message: str, run: Run) -> None:
    found = run(*arguments)
    assert found.code != 0
    assert message in found.err
    assert not Path("t").exists()


def test_a_file_of_other_values_is_named_with_the_value_and_nothing_is_added(run: Run) -> None:
    Path("s.csv").write_text("id,amount\n1,9.5\n")
    Path("bad.csv").write_text("id,amount\n1,abc\n")
    Path("bad.parquet").write_bytes(b"x")
    run("create", "t", "--schema", "s.csv", "--key-id", "keyA", "-q")
    before = sorted(Path("t").rglob("*"))
    for names, said in (
        (("bad.csv",), "bad.csv: cannot be read with the types of the table as csv: In CSV column #1: Row #2:"),
        (
            ("bad.parquet",),
            "bad.parquet: cannot be read with the types of the table as parquet: Parquet file size is 1",
        ),
    ):
        refused = run("append", "t", *names, "-q")
        assert (refused.code, refused.err.startswith(f"ags1: {said}")) == (2, True), refused.err
    assert (
        "bad.parquet: cannot be read as parquet: Parq"
        in run("create", "u", "--schema", "bad.parquet", "--key-id", "keyA").err
    )
    assert sorted(Path("t").rglob("*")) == before


def test_a_catalog_without_the_namespace_is_said(run: Run, named: list[str]) -> None:
    found = run("create", "none.t", *named[1:], "--schema", "rows.csv", "--key-id", "keyA")
    assert (found.code, found.err.startswith("ags1: none.t: the catalog has no such namespace")) == (4, True)
    found = run("scan", "db.t", *named[1:3], "--property=uri=sqlite:////none/none.db")
    assert found.code == 4
    assert "unable to open database file" in found.err


def test_what_stands_where_a_new_table_is_made_is_said_before_clean_removes_it(run: Run) -> None:
    make = ("--schema", "rows.parquet", "--key-id", "keyA")
    assert "warning" not in run("create", "empty", *make).err
    Path("own/data").mkdir(parents=True)
    for name in ("mine.txt", "data/theirs.parquet"):
        Path("own", name).touch()
    said = run("create", "own", *make)
    assert said.code == 0
    assert "warning: 2 files stood in " in said.err
    assert re.search(
        r"/own before the table, such as (mine.txt|data/theirs.parquet): `ags1 iceberg clean` and", said.err
    )
    planned = run("clean", "own", "--older-than", "0s", "--dry-run").out
    assert [line.rpartition("/own/")[2] for line in planned.splitlines()[1:]] == ["data/theirs.parquet", "mine.txt"]


def test_appended_and_newer_rows_are_shown(run: Run, named: list[str]) -> None:
    run("create", *named, "--schema", "rows.parquet", "--key-id", "keyA", "-q")
    numbers = [run("append", named[0], "rows.csv", *named[1:], "--json").records[0]["snapshot_id"] for _ in range(3)]
    scan = ("scan", *named, "--format", "json")
    assert len(run(*scan, "--from-snapshot", str(numbers[0])).records) == 12
    assert len(run(*scan, "--from-snapshot", str(numbers[0]), "--to-snapshot", str(numbers[1])).records) == 6
    newer = run(*scan, "--filter", "_last_updated_sequence_number > 2", "--columns", "id,_row_id")
    assert [each["_row_id"] for each in newer.records] == list(range(12, 18))
    for more, said in (
        (["--from-snapshot", "all"], "the id of a snapshot"),
        (["--to-snapshot", "5"], "--from-snapshot"),
        (["--from-snapshot", "5"], "not among those"),
        (["--from-snapshot", "5", "--as-of", "2026-01-01"], "not allowed with"),
    ):
        refused = run(*scan, *more)
        assert (refused.code, said in refused.err) == (2, True), refused.err
