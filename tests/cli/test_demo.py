"""`make demo`: it runs on a few megabytes, and what it says is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import ags1

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What the demo of 8 MiB said, and the directory that it left."""
    directory = tmp_path_factory.mktemp("demo") / "kept"
    result = subprocess.run(
        [sys.executable, "-m", "ags1.cli.demo", "--bytes", "8M", "--keep", str(directory)],
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()
    # The block that was damaged on purpose is all that there is to complain of.
    complaints = [line for line in result.stderr.decode().splitlines() if "note: " not in line]
    assert len(complaints) == 1
    assert "1 of " in complaints[0]
    return result.stdout.decode(), directory


@pytest.mark.parametrize(
    "promise",
    [
        r"\$ ags1 info\nags1       [\d.]+",
        r"\$ ags1 keygen lake\.key\nwrote a fresh 256-bit key",
        r"encrypted [\d.]+ MB in [\d.]+ s \([\d.]+ \w+/s\); `cp -r` of the same files: [\d.]+ s, so [\d.]+ times cp",
        r"format            AGS1",
        r"archive\.tar\.ags1: \d+ blocks? authentic",
        r">>> ags1\.open\(\.\.\.\)\.pread\(\d+, 16\)\n([0-9a-f]{2} ){15}[0-9a-f]{2}  in [\d.]+ ms; .*original: True",
        r"decrypted in .* times cp; identical to the originals: True",
        r"exit code 1; `ags1 decrypt` of it leaves no output file",
        r"\$ ags1 parquet encrypt people\.parquet vault\.parquet .*\npeople\.parquet -> vault\.parquet",
        r"ssn +# +# +# .* its own",
        r"id +name +ssn\n.*\n0 +Ada +000000000",
        r"--missing-keys drop -n 3\nid +name\n",
    ],
)
def test_the_demo_shows_what_it_promises(demo: tuple[str, Path], promise: str) -> None:
    assert re.search(promise, demo[0])


def test_the_demo_leaves_real_files_if_it_is_asked_to(demo: tuple[str, Path]) -> None:
    directory = demo[1]
    key = (directory / "lake.key").read_bytes()
    names = sorted(path.name for path in (directory / "plain").iterdir())
    assert sum(path.stat().st_size for path in (directory / "plain").iterdir()) >= 8 << 20
    assert sorted(path.name for path in (directory / "restored").iterdir()) == names
    stream = (directory / "vault" / f"{names[0]}.ags1").read_bytes()
    assert ags1.decrypt(stream, key, aad_prefix=names[0].encode()) == (directory / "plain" / names[0]).read_bytes()


def test_the_demo_shows_no_key(demo: tuple[str, Path]) -> None:
    assert (demo[1] / "lake.key").read_bytes().hex() not in demo[0].replace(" ", "")
