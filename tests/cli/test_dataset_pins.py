"""``ags1 dataset ... --pin FILE``: what a command knows of a dataset, and what it refuses then."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ags1 import dataset
from tests.cli.conftest import Run


def test_after_a_rewrap_without_the_pin_the_new_master_key_is_said_once(vault: Path, run: Run) -> None:
    run("dataset", "verify", "vault", "--pin", "pin")
    run("dataset", "rewrap", "vault", "--new-key-id", "next")
    refused = run("dataset", "verify", "vault", "--pin", "pin")
    assert (refused.code, "say the new one with --expected-key-id" in refused.err) == (3, True)
    assert run("dataset", "verify", "vault", "--pin", "pin", "--expected-key-id", "next").code == 0
    assert run("dataset", "verify", "vault", "--pin", "pin").code == 0


def test_whoever_encrypts_under_the_new_master_key_knows_of_the_rewrap(vault: Path, run: Run) -> None:
    run("dataset", "verify", "vault", "--pin", "pin")
    run("dataset", "rewrap", "vault", "--new-key-id", "next")
    refused = run("dataset", "encrypt", "tree", "vault", "--pin", "pin")
    assert (refused.code, "say the new one with --key-id NEW" in refused.err) == (3, True)
    for dry_run in (("--dry-run",), ()):
        done = run("dataset", "encrypt", "tree", "vault", "--pin", "pin", "--key-id", "next", *dry_run)
        assert done.code == 0, done.err
    assert dataset.Pins.load("pin").key_id == "next"
    other = run("dataset", "encrypt", "tree", "vault", "--pin", "pin", "--key-id", "lake")
    assert (other.code, "under the master key 'next'" in other.err) == (2, True)


def test_nothing_is_done_where_the_pin_could_not_be_written_afterwards(vault: Path, run: Run) -> None:
    before = sorted(map(str, Path("vault").rglob("*")))
    for command in (
        ("encrypt", "tree", "vault", "--key-id", "lake"),
        ("encrypt", "tree", "new", "--key-id", "lake"),
        ("rm", "vault", "a.txt"),
        ("verify", "vault"),
    ):
        refused = run("dataset", *command, "--pin", "no/pin")
        assert (refused.code, "there is no such directory for this file of pins" in refused.err) == (4, True)
    assert sorted(map(str, Path("vault").rglob("*"))) == before
    assert not Path("new").exists()


def test_a_pin_file_trusts_what_it_finds_once_and_then_only_that(vault: Path, run: Run) -> None:
    first = run("dataset", "ls", "vault", "--pin", "pin")
    assert (first.code, "pin is new, so this trusted what it found: dataset" in first.err) == (0, True)
    assert Path("pin").stat().st_mode & 0o777 == 0o600
    # Own changes advance it, and nothing more is said.
    for command in (
        ("rm", "vault", "a.txt"),
        ("encrypt", "tree", "vault", "--key-id", "lake"),
        ("rewrap", "vault", "--new-key-id", "next"),
        ("expire", "vault", "--older-than", "0s", "--grace", "0s", "--yes"),
        ("verify", "vault"),
    ):
        done = run("dataset", command[0], *command[1:], "--pin", "pin")
        assert (done.code, "is new" in done.err) == (0, False), (command, done.err)
    pins = dataset.Pins.load("pin")
    assert (pins.version, pins.key_id) == (5, "next")
    shutil.copytree("vault", "copy")
    assert run("dataset", "rm", "vault", "a.txt", "--pin", "pin").code == 0
    shutil.rmtree("vault")
    shutil.copytree("copy", "vault")
    for command in (("ls", "vault"), ("rm", "vault", "sub"), ("decrypt", "vault", "plain"), ("verify", "vault")):
        refused = run("dataset", *command, "--pin", "pin")
        assert (refused.code, "an older copy was put back" in refused.err) == (1, True), (command, refused.err)
    refused = run("dataset", "encrypt", "tree", "vault", "--key-id", "next", "--pin", "pin")
    assert "an older copy was put back" in refused.err
    assert dataset.Pins.load("pin").version == 6


def test_a_pin_is_not_kept_where_whoever_writes_the_dataset_can_write(vault: Path, run: Run) -> None:
    os.symlink("vault", "link")
    for place in ("vault/pin", "vault/sub/pin", "link/pin"):
        refused = run("dataset", "ls", "vault", "--pin", place)
        assert (refused.code, "lies in the dataset" in refused.err) == (2, True)
        assert not Path(place).exists()
    assert run("dataset", "ls", "vault", "--pin", "s3://bucket/pin").code == 2


def test_what_a_new_dataset_is_needs_no_trust(tree: dict[str, bytes], run: Run) -> None:
    made = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--pin", "pin")
    assert (made.code, made.err) == (0, "")
    assert dataset.Pins.load("pin").version == 1


def test_rewrap_refuses_another_master_key_than_is_expected(vault: Path, run: Run) -> None:
    command = ("dataset", "rewrap", "vault", "--new-key-id", "next")
    assert run(*command, "--expected-key-id", "tenant").code == 3
    for dry in (True, False):
        done = run(*command, "--expected-key-id", "lake", "--json", *(["--dry-run"] if dry else []))
        assert done.records[0]["older_versions"] == 1
