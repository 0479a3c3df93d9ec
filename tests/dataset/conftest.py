"""What the tests of datasets share: a KMS that counts, trees, and children that are killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import dataset, kms
from tests.checks import pattern

MASTER = bytes(range(100, 132))
OTHER = bytes(range(200, 232))

# What changes a file system, and so what a kill may come between. Native code writes besides: see test_kills.py.
STEPS = ("open", "write", "link", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync", "ftruncate", "pwrite")


class CountingKms(kms.MemoryKms):
    """A KMS that says how often it was asked."""

    def __init__(self, *key_ids: str, **keys: bytes) -> None:
        super().__init__({**dict.fromkeys(key_ids, MASTER), **keys})
        self.wraps = 0
        self.unwraps = 0

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        self.wraps += 1
        return super()._wrap(key, key_id)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        self.unwraps += 1
        return super()._unwrap(wrapped, key_id)


@pytest.fixture
def client() -> CountingKms:
    return CountingKms("lake")


def fresh() -> CountingKms:
    """A KMS of another process: the same keys, and nothing cached."""
    return CountingKms("lake", new=OTHER)


Tree = dict[str, bytes]

CONTENTS: Tree = {
    "a.txt": b"first",
    "empty": b"",
    "sub/a.txt": b"second",
    "sub/deep/b.bin": pattern(70_000),
    "sub.d/c": b"between sub and sub/",
    "year=2026/month=01/part-0.parquet": pattern(5000),
    "year=2026/month=02/part-0.parquet": pattern(5001),
}


def write_tree(root: Path, contents: Tree = CONTENTS) -> Path:
    """A directory with these files."""
    for name, data in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def read_tree(root: Path) -> Tree:
    """All files below a directory."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def plain_of(vault: dataset.Dataset) -> Tree:
    """What a dataset holds, through its readers."""
    found = {}
    for entry in vault.files:
        with vault.open(entry.path) as reader:
            found[entry.path] = reader.read()
    return found


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "raw")


@pytest.fixture
def vault(raw: Path, tmp_path: Path, client: CountingKms) -> Path:
    """A dataset of version 1."""
    with dataset.encrypt(raw, tmp_path / "vault", client, "lake"):
        pass
    return tmp_path / "vault"


def kinds(report: ags1.VerifyReport) -> dict[str, str]:
    """What verify says of each path."""
    return {each.subject: each.code for each in report.findings}


def killed_at(step: int, work: Callable[[], Any]) -> int | None:
    """Run in a child that SIGKILL ends at its n-th change of the file system, before it or after it in turns.

    Returns None if it was killed, else how many changes it made.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        status = 1
        try:
            count = _count_steps(step)
            work()
            os.write(send, str(count()).encode())
            status = 0
        except BaseException as error:
            os.write(send, f"{type(error).__name__}: {error}".encode()[:4000])
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        text = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return None
    assert status == 0, text
    return int(text)


def _count_steps(last: int) -> Callable[[], int]:
    done = 0
    lock = threading.Lock()

    def counting(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal done
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_TMPFILE):
                return function(*arguments, **named)
            with lock:
                done += 1
                # Of this call: while the function runs, other threads count on.
                mine = done
            if mine == last and last % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*arguments, **named)
            finally:
                # Also behind a call that failed: linking to a name that is taken, for example.
                if mine == last:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    for name in STEPS:
        setattr(os, name, counting(getattr(os, name), name))
    return lambda: done
