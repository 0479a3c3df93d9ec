"""``ags1 iceberg encrypt`` and its like: a plan, a question, the work, on real tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ags1 import iceberg
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.kms import MemoryKms
from tests.iceberg.conversions import ENCRYPTED, PLAINTEXT, beginning_with, read_rows, writable
from tests.iceberg.test_cli import Run, run  # noqa: F401
from tests.iceberg.warehouse import SparkTables


@pytest.fixture
def place(spark_tables: SparkTables, tmp_path: Path, table_kms: MemoryKms) -> Path:
    """The directory of a plaintext table."""
    source = writable(spark_tables["events_plain"], tmp_path / "source")
    iceberg.relocate_table(source, str(tmp_path / "table"), kms=table_kms)
    return tmp_path / "table"


def _table(place: Path) -> CatalogTable:
    return catalog_table(None, str(place))


def test_a_table_is_encrypted_and_decrypted_by_two_commands(
    run: Run,  # noqa: F811
    place: Path,
    table_kms: MemoryKms,
) -> None:
    rows = read_rows(_table(place), table_kms)
    command = ["encrypt", str(place), "--key-id", "keyA"]
    refused = run(*command)
    assert refused.code == 2
    assert "Do it? Nobody can be asked here: say --yes" in refused.err
    assert refused.out == run(*command, "--dry-run").out, "the plan is shown before it is refused"
    said = json.loads(run(*command, "--json").out)
    assert (said["plan"]["ok"], said["report"], "say --yes" in said["error"]) == (True, None, True)
    missing = run("encrypt", f"{place}/metadata/00077-x.metadata.json", "--key-id", "keyA")
    assert (missing.code, "00077-x" in missing.err, "--yes" in missing.err) == (4, True, False)
    planned = run(*command, "--dry-run")
    assert planned.code == 0, planned.err
    assert "stay in plaintext until they are expired" in planned.out
    assert not beginning_with(place, ENCRYPTED)
    done = run(*command, "--yes", "--expire")
    assert done.code == 0, done.err
    assert "snapshot removed" in done.out
    assert not beginning_with(place, PLAINTEXT)
    again = run("rekey", str(place), "--new-key-id", "keyB", "--yes", "--json")
    assert again.code == 5, again.err
    said = json.loads(again.out)
    assert said["report"]["files"] > 0
    assert said["report"]["key_id"] == "keyB"
    assert said["error"] is None
    (place / "data" / "orphan").write_bytes(b"")
    for action in (["expire", str(place)], ["clean", str(place), "--older-than", "0s"]):
        refused = run(*action)
        assert (refused.code, "would be removed" in refused.out, "Do it?" in refused.err) == (2, True, True)
        # Of what nothing names, anybody may have put there: so it is named.
        assert (f"would be removed: {place}/data/orphan" in refused.out) == (action[0] == "clean")
        done = run(*action, "--yes")
        assert done.code == 0, done.err
        for more in ((), ("--yes",), ("--json",)):
            nothing = run(*action, *more)
            assert (nothing.code, "asked" in nothing.err) == (0, False)
            assert json.loads(nothing.out)["report"] is None if more == ("--json",) else "nothing to do" in nothing.out
    done = run("decrypt", str(place), "--yes", "--expire")
    assert done.code == 0, done.err
    assert not beginning_with(place, ENCRYPTED)
    assert read_rows(_table(place), table_kms) == rows


def test_old_snapshots_that_a_conversion_left_are_in_the_exit_code(run: Run, place: Path) -> None:  # noqa: F811
    """Plaintext, or data under a key that leaked, which a script would take for gone."""
    left = ("NOT all encrypted yet: 1 old snapshot", "the old keys STILL open data: 2 old snapshots")
    for command, text in zip((["encrypt", "--key-id", "keyA"], ["rekey"]), left, strict=True):
        done = run(command[0], str(place), *command[1:], "--yes")
        assert done.code == 5, done.err
        assert text in done.out
    again = run("encrypt", str(place), "--key-id", "keyA", "--yes", "-q")
    assert (again.code, again.out) == (5, "")
    assert again.err.startswith("ags1: warning: NOT all encrypted yet: 2 old snapshots and all their files may be")
    assert run("expire", str(place), "--yes").code == 0
    assert run("encrypt", str(place), "--key-id", "keyA", "--yes", "-q").code == 0
    quiet = run("rekey", str(place), "--yes", "-q")
    assert (quiet.code, quiet.out, quiet.err[:46]) == (5, "", "ags1: warning: the old keys STILL open data: 1")


def test_what_only_an_encrypted_table_has_is_not_planned_for_a_plaintext_one(run: Run, place: Path) -> None:  # noqa: F811
    for action in (
        ("rekey", "--new-key-id", "keyB"),
        ("rekey",),
        ("rewrap", "--new-key-id", "keyB"),
        ("compact",),
        ("maintain",),
        ("delete", "--filter", "id = 1"),
    ):
        refused = run(action[0], str(place), *action[1:])
        assert (refused.code in (1, 2), refused.out) == (True, ""), action
        assert "is not encrypted" in refused.err, action
        assert "`ags1 iceberg encrypt`" in refused.err, action


def test_a_plan_with_problems_fails(run: Run, place: Path) -> None:  # noqa: F811
    next((place / "data").rglob("*.parquet")).unlink()
    planned = run("encrypt", str(place), "--key-id", "keyA", "--dry-run")
    assert planned.code == 1
    assert "problem: " in planned.out
    done = run("encrypt", str(place), "--key-id", "keyA", "--yes")
    assert done.code != 0
    assert "missing" in done.err
