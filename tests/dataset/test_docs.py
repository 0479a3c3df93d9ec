"""What the pages on datasets say is true: every block runs, in order, and their reader reads what the library wrote."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset, kms
from ags1.storage import Location, open_output
from tests.checks import pattern
from tests.pages import as_typed, run_shell
from tests.servers.s3 import S3Server

ROOT = Path(__file__).resolve().parents[2]
GUIDE, FORMAT = ROOT / "docs" / "dataset.md", ROOT / "docs" / "dataset-format.md"
SALES = b"id,amount\n1,10.50\n"


def blocks(page: Path, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


def test_the_first_ten_minutes_go_as_the_page_says(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    shown = run_shell(as_typed(ROOT / "docs" / "first-ten-minutes.md"), empty)
    assert shown.endswith("restored is equal to raw\n")
    for said in ("version 1\n", "all authentic\n", "b'1,10.50'\n", "DAMAGED (1 error)\nexit code 1\n"):
        assert said in shown


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A directory with what the page makes first, and the command."""
    command = tmp_path / "bin" / "ags1"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ags1 "$@"\n')
    command.chmod(0o755)
    (script,) = blocks(GUIDE, 'sh title="the files of the examples"')
    run(["sh", "-eu", "-c", script], tmp_path)
    return tmp_path


def run(command: list[str], work: Path, more: dict[str, str] | None = None) -> str:
    path = f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **(more or {}), "PYTHONPATH": str(ROOT), "PATH": path}
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_blocks_run_in_order(work: Path) -> None:
    pytest.importorskip("fsspec")
    program = "\n".join(blocks(GUIDE, "python"))
    shown = run([sys.executable, "-W", "error::DeprecationWarning", "-c", program], work)
    assert shown.startswith("3 files, version 1\n")
    assert (work / "plain/day=1/sales.csv").read_bytes() == SALES
    assert not (work / "plain/day=2").exists()


def test_the_shell_blocks_run_in_order(work: Path) -> None:
    shown = run(["sh", "-eu", "-c", "\n".join(blocks(GUIDE, "sh"))], work)
    assert "encrypted 3 files" in shown
    assert "- day=1/sales.csv" not in shown, "a dry run removes nothing"
    assert (work / "plain/day=1/sales.csv").read_bytes() == SALES


def test_the_blocks_of_what_datasets_leave_to_others_run(work: Path, tmp_path: Path) -> None:
    page, place = ROOT / "docs/left-out.md", tmp_path / "left-out"
    place.mkdir()
    (program,) = blocks(page, 'python title="a dataset for each master key"')
    run([sys.executable, "-W", "error::DeprecationWarning", "-c", program], place)
    assert sorted(each.name for each in (place / "vaults").iterdir()) == ["a", "b"]
    (script,) = blocks(page, 'sh title="rename, and compare versions"')
    environment = {"PATH": f"{work / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    (tmp_path / "renaming").mkdir()
    done = subprocess.run(["sh", "-eu", "-c", script], cwd=tmp_path / "renaming", env=environment, check=False)
    assert done.returncode == 0
    changes = (tmp_path / "renaming/changes").read_text()
    assert (changes.count("sales.csv"), changes.count("orders.csv")) == (1, 1)


def test_the_blocks_of_object_stores_run(work: Path, s3_server: S3Server) -> None:
    (script,) = blocks(GUIDE, 'sh title="S3"')
    for name in ("raw", "vault"):
        script = script.replace(f"s3://{name}", f"s3://{s3_server.make_bucket(f'datasets-{name}')}")
    (url,) = set(re.findall(r"s3://datasets-raw\S*", script))
    with open_output(Location(f"{url}/a/sales.csv", s3_server.storage_options())) as output:
        output.write(SALES)
        output.commit()
    kms.LocalKms.create(work / "keys.json", {"lake": bytes(32)}, key_file=work / "keys.key").close()
    run(["sh", "-eu", "-c", script], work, s3_server.environment())
    assert (work / "plain/a/sales.csv").read_bytes() == (work / "plain/day=7/sales.csv").read_bytes() == SALES


def test_the_guide_to_a_bucket_runs_with_a_bucket(work: Path, s3_server: S3Server) -> None:
    script = "\n".join(blocks(ROOT / "docs/guides/encrypt-a-bucket.md", "sh"))
    assert "TARGET=encrypted\n" in script
    script = script.replace("TARGET=encrypted\n", f"TARGET=s3://{s3_server.make_bucket('guide-vault')}/lake\n")
    run(["sh", "-eu", "-c", script], work, s3_server.environment())
    assert not (work / "encrypted").exists()


@pytest.mark.parametrize("count", [1, 600, 1500])
def test_the_reader_of_the_page_on_the_format_reads_what_the_library_writes(tmp_path: Path, count: int) -> None:
    pytest.importorskip("cryptography")
    (block,) = blocks(FORMAT, "python")
    names: dict[str, Any] = {}
    exec(compile(block, str(FORMAT), "exec"), names)
    for index in range(count):
        (tmp_path / "raw" / f"part={index % 7}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "raw" / f"part={index % 7}" / str(index)).write_bytes(str(index).encode())
    (tmp_path / "raw" / "large").write_bytes(pattern(3_000_000))
    client = kms.MemoryKms({"lake": bytes(32)})
    with dataset.encrypt(tmp_path / "raw", tmp_path / "vault", client, "lake", durable=False) as vault:
        vault.rm("part=0/0") if count > 1 else None
        some = [entry.path for entry in vault.files][:: max(1, count // 20)]
        for path in [*some, "large"]:
            assert names["read"](tmp_path / "vault", path, client) == (tmp_path / "raw" / path).read_bytes()


def test_the_sizes_of_the_page_follow_from_what_it_says_it_measured() -> None:
    entry, node, fan_out = 343, 222, 512
    rows = re.findall(r"^\| 10\^(\d) \| (.*) \|$", FORMAT.read_text(), re.MULTILINE)
    assert [int(power) for power, _ in rows] == [3, 5, 6, 7, 8, 9]
    for power, row in rows:
        width = 10 ** int(power)
        together, size = 0.0, entry
        total = 0.0
        while width > 1:
            together += min(width, fan_out) * size
            total += width * size
            width, size = -(-width // fan_out), node
        shown = row.split(" | ")
        assert float(shown[-2].split()[0]) == pytest.approx(together / 1000, rel=0.01)
        unit = {"MB": 1e6, "GB": 1e9}[shown[-1].split()[1]]
        assert float(shown[-1].split()[0]) * unit == pytest.approx(total, rel=0.05)
