"""What the tests of the command line share: a directory with a key and a file, and the command itself."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ags1 import kms
from ags1.cli import main
from ags1.storage import atomic
from tests.checks import KEY, pattern

PLAIN = pattern(5000)
# No password: to derive a key from one takes as long as a whole test.
KEYSTORE = "local:keys.json?key_file=kek"


@dataclass(frozen=True)
class Result:
    """What a command answered."""

    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.raw.decode("utf-8", "backslashreplace")

    @property
    def records(self) -> list[dict[str, Any]]:
        """Standard output as lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def run(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command in this process; no output of any test shows a byte of the key."""

    def run_(*arguments: str | os.PathLike[str], stdin: bytes | None = None) -> Result:
        if stdin is not None:
            monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main([os.fspath(argument) for argument in arguments])
        captured = capsysbinary.readouterr()
        shown = captured.out + captured.err
        for secret in (KEY, KEY.hex().encode(), KEY.hex(" ").encode()):
            assert secret not in shown
        err = captured.err.decode("utf-8", "backslashreplace")
        assert "Traceback" not in err
        return Result(code, captured.out, err)

    return run_


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with `k` (a key that its owner alone can read) and `plain`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    write_key(tmp_path / "k", KEY)
    (tmp_path / "plain").write_bytes(PLAIN)
    return tmp_path


def end_behind_replacement(patched: pytest.MonkeyPatch, target: Path, error: BaseException) -> None:
    """Let the work on a target that exists end with an error, once the target is replaced."""
    sync, before = atomic._sync_directory, b"before"
    target.write_bytes(before)

    def ended(directory: int) -> None:
        sync(directory)
        if target.read_bytes() != before:
            raise error

    patched.setattr(atomic, "_sync_directory", ended)


def write_key(path: Path, data: bytes, mode: int = 0o600) -> Path:
    """A key file with this content."""
    path.write_bytes(data)
    path.chmod(mode)
    return path


def make_tree(root: Path) -> dict[str, bytes]:
    """A directory `tree` with equal base names in different directories; its contents by name."""
    contents = {"a.txt": b"first", "sub/a.txt": b"second", "sub/deep/b.bin": PLAIN, "sub/empty": b""}
    for name, data in contents.items():
        path = root / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return contents


def files_below(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, hidden ones too, by its relative name."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def tree(work: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A directory `tree`, and a keystore `keys.json` with the master keys "lake", "next" and "tenant"."""
    monkeypatch.setenv("AGS1_KMS", KEYSTORE)
    write_key(work / "kek", bytes(range(96, 128)))
    keys = {"lake": bytes(range(32)), "next": bytes(range(32, 64)), "tenant": bytes(range(64, 96))}
    kms.LocalKms.create(work / "keys.json", keys, key_file=work / "kek").close()
    return make_tree(work)


@pytest.fixture
def vault(tree: dict[str, bytes], run: Run) -> Path:
    assert run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "-q").code == 0
    return Path("vault")
