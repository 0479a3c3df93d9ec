"""Key metadata of `ags1 encrypt`: no run, however it ends, loses a key."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.cli import transfer
from ags1.storage import outputs
from tests.checks import KEY
from tests.cli.conftest import Run, end_behind_replacement, files_below, make_tree

KEYED = ("--key-file", "k")
READ = (*KEYED, "--any-length")


def test_without_a_key_each_file_gets_a_fresh_one(run: Run, work: Path) -> None:
    make_tree(work)
    assert run("encrypt", "tree", "vault", "--key-metadata-out", "keys").code == 0
    found = [ags1.KeyMetadata.decode(data) for data in files_below(work / "keys").values()]
    assert len({bytes(metadata.encryption_key) for metadata in found}) == 4
    assert len({metadata.aad_prefix for metadata in found}) == 4
    for path in (work / "keys").rglob("*.key-metadata"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_metadata_of_a_given_key_has_prefix_and_length(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "out", *KEYED, "--aad-prefix", "x", "--key-metadata-out", "meta").code == 0
    expected = ags1.KeyMetadata(KEY, b"x", (work / "out").stat().st_size)
    assert ags1.KeyMetadata.decode((work / "meta").read_bytes()) == expected


def test_a_fresh_key_may_have_a_prefix_of_ones_choice(run: Run, work: Path) -> None:
    run("encrypt", "plain", "out", "--key-metadata-out", "meta", "--aad-prefix", "mine")
    assert ags1.KeyMetadata.decode((work / "meta").read_bytes()).aad_prefix == b"mine"


def test_metadata_of_one_file_goes_into_an_existing_directory_under_the_name_of_the_target(
    run: Run, work: Path
) -> None:
    (work / "keys").mkdir()
    assert run("encrypt", "plain", "renamed", "--key-metadata-out", "keys").code == 0
    assert set(files_below(work / "keys")) == {"renamed.key-metadata"}
    assert run("decrypt", "renamed", "back", "--key-metadata", "keys").code == 0
    assert run("encrypt", "plain", "-", "--key-metadata-out", "new/").code == 0
    assert (work / "new/plain.ags1.key-metadata").exists()


def test_encryption_that_fails_leaves_no_metadata(run: Run, work: Path) -> None:
    before = files_below(work)
    assert run("encrypt", "missing", "out", "--key-metadata-out", "meta").code == 4
    assert run("encrypt", "missing", "out", *KEYED, "--key-metadata-out", "meta").code == 4
    assert files_below(work) == before


def test_encryption_that_fails_keeps_the_metadata_of_the_file_before(run: Run, work: Path) -> None:
    replace = ("--key-metadata-out", "meta", "--replace-key-metadata")
    run("encrypt", "plain", "out", *replace)
    before = files_below(work)
    assert run("encrypt", "missing", "out", *replace).code == 4
    assert files_below(work) == before
    assert run("verify", "out", "--key-metadata", "meta").code == 0


def test_the_only_copy_of_a_key_is_not_replaced_unasked(run: Run, work: Path) -> None:
    run("encrypt", "plain", "out", "--key-metadata-out", "meta")
    before = files_below(work)
    for key in ((), KEYED):
        result = run("encrypt", "plain", "other", *key, "--key-metadata-out", "meta")
        assert (result.code, result.out) == (9, "")
        assert "meta: it exists and was not replaced: what its key encrypted would be lost" in result.err
        assert files_below(work) == before
    both = ("--replace-key-metadata", "--overwrite")
    assert run("encrypt", "plain", "out", "--key-metadata-out", "meta", *both).code == 0
    assert run("verify", "out", "--key-metadata", "meta").code == 0


def test_metadata_of_the_same_key_is_replaced(run: Run, work: Path) -> None:
    for name in ("plain", "k"):
        assert run("encrypt", name, "out", *KEYED, "--key-metadata-out", "meta", "--overwrite").code == 0
    assert run("verify", "out", "--key-metadata", "meta").code == 0


def test_a_tree_is_refused_before_any_of_it_is_encrypted_if_one_key_would_be_lost(run: Run, work: Path) -> None:
    make_tree(work)
    (work / "keys/sub").mkdir(parents=True)
    (work / "keys/sub/empty.ags1.key-metadata").write_bytes(b"something")
    assert run("encrypt", "tree", "vault", "--key-metadata-out", "keys").code == 9
    assert not (work / "vault").exists()


def test_a_fresh_key_is_on_the_disk_before_what_it_encrypts(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ags1.KeyMetadata] = []

    def look(source: str, target: str, key: ags1.Key, **options: Any) -> Any:
        seen.append(ags1.KeyMetadata.decode((work / "meta.pending").read_bytes()))
        assert seen[0].encryption_key == key
        raise KeyboardInterrupt

    monkeypatch.setattr(transfer, "encrypt_file", look)
    assert run("encrypt", "plain", "out", "--key-metadata-out", "meta").code == 130
    assert len(seen) == 1
    assert not (work / "meta.pending").exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_a_fresh_key_is_kept_if_its_file_is_there_when_the_work_is_ended(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    end_behind_replacement(monkeypatch, work / "out", error)
    result = run("encrypt", "plain", "out", "--key-metadata-out", "meta", "--durable", "--overwrite")
    assert result.code in (4, 130)
    assert "out may be encrypted already; then its key is in meta.pending" in result.err
    monkeypatch.undo()
    monkeypatch.chdir(work)
    assert run("verify", "out", "--key-metadata", "meta.pending", "--any-length").code == 5


def test_the_fresh_key_of_a_killed_run_stays_until_its_file_is_replaced(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "out", "--key-metadata-out", "meta").code == 0
    (work / "meta").rename(work / "meta.pending")
    again = ("out", "--key-metadata-out", "meta", "--replace-key-metadata", "--overwrite")
    assert run("encrypt", "missing", *again).code != 0
    assert run("verify", "out", "--key-metadata", "meta.pending").code == 0
    assert not (work / "meta").exists()
    assert run("encrypt", "plain", *again).code == 0
    assert run("verify", "out", "--key-metadata", "meta").code == 0
    assert not list(work.glob("meta.*"))


def test_what_several_killed_runs_have_left_goes_with_the_next_success_that_replaces_keys(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "out", "--key-metadata-out", "meta").code == 0
    (work / "meta").rename(work / "meta.pending-0123abcd")
    ags1.KeyMetadata.generate().save(work / "meta.pending")
    (work / "meta.pending-mine").touch()
    assert run("encrypt", "missing", "out", "--key-metadata-out", "meta", "--replace-key-metadata").code != 0
    assert run("verify", "out", "--key-metadata", "meta.pending-0123abcd").code == 0
    again = ("out", "--key-metadata-out", "meta", "--replace-key-metadata", "--overwrite")
    assert run("encrypt", "plain", *again).code == 0
    assert [each.name for each in work.glob("meta.*")] == ["meta.pending-mine"]
    assert run("verify", "out", "--key-metadata", "meta").code == 0


def test_a_fresh_key_whose_file_was_not_replaced_goes(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    assert run("encrypt", "plain", "out", *KEYED).code == 0
    before = files_below(work)
    monkeypatch.setattr(outputs.LocalOutput, "_publish", fails)
    assert run("encrypt", "plain", "out", "--key-metadata-out", "meta", "--overwrite").code == 4
    assert files_below(work) == before


def test_a_fresh_key_whose_metadata_cannot_be_written_is_kept(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_private = transfer.write_private

    def full(path: str, data: bytes, *, replace: bool) -> None:
        if path == "meta":
            raise OSError(28, "No space left on device", path)
        write_private(path, data, replace=replace)

    monkeypatch.setattr(transfer, "write_private", full)
    result = run("encrypt", "plain", "out", "--key-metadata-out", "meta")
    assert result.code == 4
    assert result.err == (
        "ags1: meta: No space left on device; out is encrypted, its key is in meta.pending, and its length is 5036\n"
    )
    assert run("verify", "out", "--key-metadata", "meta.pending", "--any-length").code == 5
    monkeypatch.undo()
    monkeypatch.chdir(work)
    # The next run puts it where it belongs, and then is refused as any second run is.
    result = run("encrypt", "plain", "out", "--key-metadata-out", "meta", "--overwrite")
    assert result.code == 9
    assert "meta.pending: a run that was cut short has left it, and it is the key of out: it is meta now" in result.err
    assert "meta: it exists and was not replaced" in result.err
    assert [each.name for each in work.glob("meta*")] == ["meta"]
    assert run("verify", "out", "--key-metadata", "meta", "--length", "5036").code == 0


def test_a_job_goes_on_after_kills_and_loses_no_key_that_a_killed_run_has_left(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "moved", "--key-metadata-out", "meta").code == 0
    (work / "meta").rename(work / "meta.pending")
    (work / "meta.pending-0123abcd").write_bytes(b"damaged")
    before = files_below(work)
    result = run("encrypt", "plain", "out", "--key-metadata-out", "meta")
    assert result.code == 0
    for name in ("meta.pending", "meta.pending-0123abcd"):
        assert f"{name}: a run that was cut short has left it, and it does not open out: it stays" in result.err
    assert files_below(work).items() >= before.items()
    assert set(files_below(work)) - set(before) == {"out", "meta"}
    assert run("verify", "out", "--key-metadata", "meta").code == 0
    assert run("verify", "moved", "--key-metadata", "meta.pending").code == 0


# Ends itself at the moment: before or after the target or the key metadata has got its name.
_KILLED = """
import os, signal, sys
from ags1.storage import AtomicFile
from ags1.cli import main
moment, count = int(sys.argv[1]), 0
def counted(method):
    def call(*arguments, **options):
        global count
        for part in (lambda: None, lambda: method(*arguments, **options), lambda: None):
            if count == moment:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            part()
    return call
for name in ("commit", "commit_new"):
    setattr(AtomicFile, name, counted(getattr(AtomicFile, name)))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",), ("--overwrite", "--replace-key-metadata")])
def test_wherever_runs_are_killed_one_ends_and_its_key_is_kept(
    run: Run, work: Path, overwrite: tuple[str, ...]
) -> None:
    again = ("encrypt", "plain", "out", "--key-metadata-out", "meta", *overwrite)
    killed = 0
    for first in range(10):
        for path in [*work.glob("meta*"), *work.glob("out*")]:
            path.unlink()
        for moment in (first, first // 2):
            command = [sys.executable, "-c", _KILLED, str(moment), *again]
            killed += subprocess.run(command, check=False, capture_output=True).returncode == -signal.SIGKILL
        code = run(*again).code
        # A second run after one that was whole is refused.
        assert code == 0 or (code == 9 and overwrite != ("--overwrite", "--replace-key-metadata"))
        # A killed run had not yet said the length.
        assert run("verify", "out", "--key-metadata", "meta", "--any-length").code in (0, 5)
    assert killed > 10


def test_two_runs_at_once_lose_no_key(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encrypt_file = transfer.encrypt_file

    def beside(*arguments: Any, **options: Any) -> ags1.KeyMetadata:
        monkeypatch.setattr(transfer, "encrypt_file", encrypt_file)
        assert run("encrypt", "plain", "other", "--key-metadata-out", "meta").code == 0
        return encrypt_file(*arguments, **options)

    monkeypatch.setattr(transfer, "encrypt_file", beside)
    result = run("encrypt", "plain", "out", "--key-metadata-out", "meta")
    assert result.code == 9
    said = "ags1: meta: File exists; out is encrypted, its key is in meta.pending, and its length is 5036\n"
    assert result.err.endswith(said)
    assert run("verify", "other", "--key-metadata", "meta").code == 0
    assert run("verify", "out", "--key-metadata", "meta.pending", "--length", "5036").code == 0


@pytest.mark.parametrize(
    ("target", "metadata", "message"),
    [
        ("out", "plain", "--key-metadata-out plain is also the SOURCE"),
        ("out", "./out", "--key-metadata-out ./out is also the TARGET"),
        ("out/", "k", "--key-metadata-out k is a file, but many sources need a directory"),
    ],
)
def test_metadata_has_a_place_of_its_own(run: Run, work: Path, target: str, metadata: str, message: str) -> None:
    before = files_below(work)
    result = run("encrypt", "plain", target, *KEYED, "--key-metadata-out", metadata)
    assert result.code == 2
    assert message in result.err
    assert files_below(work) == before
