"""``ags1 iceberg compact`` and ``maintain``, of tables in directories."""

from __future__ import annotations

import json

import pyarrow.parquet

from tests.iceberg.test_cli_write import Run, run

__all__ = ["run"]


def filled(run: Run) -> None:
    assert run("create", "t", "--schema", "rows.parquet", "--key-id", "keyA").code == 0
    for _ in range(6):
        assert run("append", "t", "rows.parquet", "-q").code == 0


def test_a_table_is_compacted_from_the_command_line(run: Run) -> None:
    filled(run)
    planned = run("compact", "t", "--dry-run")
    assert planned.code == 0
    assert "would write 6 files" in planned.out
    assert run("compact", "t", "--filter", "nothing = 1", "--yes").code == 2
    done = run("compact", "t", "--yes", "--json", "--sort-by", "id desc", "--target-size", "1M")
    assert done.code == 0
    said = json.loads(done.out)
    assert (said["plan"]["files"], said["report"]["files"], said["report"]["added_files"]) == (6, 6, 1)
    rows = [json.loads(line) for line in run("scan", "t", "--format", "json", "-q").out.splitlines()]
    assert [each["id"] for each in rows] == sorted([*range(6)] * 6, reverse=True)
    nothing = run("compact", "t")
    assert (nothing.code, "asked" in nothing.err) == (0, False)
    assert "nothing to compact" in nothing.out


def test_a_table_is_maintained_from_the_command_line(run: Run) -> None:
    filled(run)
    refused = run("maintain", "t")
    assert (refused.code, "6 files" in refused.out, "say --yes" in refused.err) == (2, True, True)
    assert "6 files" in run("maintain", "t", "--dry-run").out
    done = run("maintain", "t", "--yes", "--json", "--older-than", "0s", "--orphans-older-than", "0s")
    assert done.code == 0
    report = json.loads(done.out)["report"]
    assert len(report["expired"]["snapshots"]) > 5
    assert len(list(pyarrow.parquet.read_table("rows.parquet").to_pylist())) == 6
    nothing = run("maintain", "t", "--older-than", "0s", "--orphans-older-than", "0s")
    assert (nothing.code, nothing.out.splitlines()[-1]) == (0, "there is nothing to do")
    assert run("verify", "t").code == 0
    listed = run("files", "t", "--snapshot", "all", "--format", "json")
    assert [json.loads(line)["kind"] for line in listed.out.splitlines()].count("data") == 1
