"""A power cut at any moment: every version that was announced as committed verifies on what the disk had by then.

The dataset is in an ext4 image that is mounted through a loop device. What the mounted file system has not written yet
is not in the image, so a copy of the image is the disk after a power cut. Needs the right to mount.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ags1 import dataset
from tests.checks import HANG_SECONDS
from tests.dataset.conftest import fresh, plain_of

CHILD = """
    import sys, itertools, pathlib
    from ags1 import dataset, kms
    raw, vault, durable = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "durable"
    client = kms.MemoryKms({"lake": bytes(range(100, 132))})
    for number in itertools.count(1):
        for index in range(number % 3 * 60 + 5):
            path = raw / f"{number % 7}" / f"{index:03d}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"%d " % number * 1000)
        dataset.encrypt(raw, vault, client, "lake", durable=durable).close()
        print(number, flush=True)
        if number % 5 == 0:
            with dataset.open(vault, client) as found:
                found.expire(older_than=None, grace=0)
"""


@contextmanager
def mounted(image: Path, directory: Path) -> Iterator[Path]:
    directory.mkdir(exist_ok=True)
    done = subprocess.run(["mount", "-o", "loop", image, directory], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"an image cannot be mounted here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    if shutil.which("mkfs.ext4") is None or os.geteuid():
        pytest.skip("needs mkfs.ext4, and the right to mount")
    path = tmp_path / "disk.img"
    with path.open("wb") as file:
        file.truncate(96 << 20)
    subprocess.run(["mkfs.ext4", "-q", path], check=True)
    return path


def cut(image: Path, tmp_path: Path, how: str, moments: list[int]) -> Iterator[tuple[int, Path]]:
    """For each moment, in bytes that the child has written: the version announced last, and a copy of the disk."""
    raw = tmp_path / "raw"
    raw.mkdir()
    with mounted(image, tmp_path / "disk") as disk:
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), raw, disk / "vault", how],
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": os.getcwd()}, text=True,
        )  # fmt: skip
        assert child.stdout is not None
        os.set_blocking(child.stdout.fileno(), False)
        announced, text = 0, ""
        try:
            for index, moment in enumerate(moments):
                while child.poll() is None and _written(child.pid) < moment:
                    pass
                assert child.poll() is None
                child.send_signal(signal.SIGSTOP)
                text += child.stdout.read() or ""
                announced = int(text.split()[-1]) if text.split() else 0
                copy = tmp_path / f"copy-{index}.img"
                shutil.copyfile(image, copy)
                child.send_signal(signal.SIGCONT)
                yield announced, copy
                copy.unlink()
        finally:
            child.kill()
            child.communicate()


def _written(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/io").read_text().split("wchar:")[1].split()[0])
    except OSError:
        return 1 << 62


@pytest.mark.timeout(HANG_SECONDS)
def test_every_committed_file_survives_a_power_cut(image: Path, tmp_path: Path) -> None:
    generator = random.Random(1)
    moments = sorted(generator.randrange(1 << 20, 20 << 20) for _ in range(3))
    seen = set()
    for announced, copy in cut(image, tmp_path, "durable", moments):
        with mounted(copy, tmp_path / "after") as after:
            if announced == 0 and not list((after / "vault").glob("_ags1/v-*.json")):
                continue
            with dataset.open(after / "vault", fresh()) as found:
                seen.add(announced)
                contents = plain_of(found)
                numbers = {int(data.split()[0]) for data in contents.values()}
                assert max(numbers) >= announced
                kinds = {each.code for each in found.verify().findings}
                assert kinds <= {"unreferenced", "leftover"}
            # What was recorded as done is done; the next run goes on.
            dataset.encrypt(tmp_path / "raw", after / "vault", fresh(), "lake", on_error="collect").close()
            with dataset.open(after / "vault", fresh()) as found:
                assert {each.code for each in found.verify().findings} <= {"unreferenced", "leftover"}
    assert len(seen) > 1
