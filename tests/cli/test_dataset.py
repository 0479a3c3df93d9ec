"""``ags1 dataset``: a directory under one master key, from the shell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ags1 import kms
from tests.cli.conftest import PLAIN, Run, files_below, make_tree

KMS = "local:keys.json"


@pytest.fixture
def tree(work: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A directory `tree`, and a keystore `keys.json` with the master keys "lake" and "next"."""
    monkeypatch.setenv("AGS1_KMS_PASSWORD", "a password")
    monkeypatch.setenv("AGS1_KMS", KMS)
    keys = {"lake": bytes(range(32)), "next": bytes(range(32, 64))}
    kms.LocalKms.create(work / "keys.json", keys, password="a password").close()
    return make_tree(work)


@pytest.fixture
def vault(tree: dict[str, bytes], run: Run) -> Path:
    assert run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "-q").code == 0
    return Path("vault")


def test_a_tree_is_encrypted_listed_shown_verified_and_decrypted(tree: dict[str, bytes], run: Run) -> None:
    made = run("dataset", "encrypt", "tree", "vault", "--kms", KMS, "--key-id", "lake")
    assert made.code == 0
    assert made.out.startswith(f"encrypted {len(tree)} files, 5.0 kB")
    assert made.out.endswith("-> vault, version 1\n")
    assert run("dataset", "ls", "vault").out == "a.txt\nsub/\n"
    assert run("dataset", "ls", "vault", "sub/deep").out == "sub/deep/b.bin\n"
    assert run("dataset", "ls", "vault", "-r").out.split() == sorted(tree)
    assert f"{len(PLAIN):>19,}  sub/deep/b.bin\n" in run("dataset", "ls", "vault", "-r", "-l").out
    assert run("dataset", "ls", "vault", "sub/a.txt", "--json").records == [
        {"path": "sub/a.txt", "type": "file", "plaintext_length": 6, "file_length": 42}
    ]
    assert run("dataset", "cat", "vault", "a.txt", "sub/a.txt").raw == b"firstsecond"
    assert run("dataset", "cat", "vault", "sub/deep/b.bin", "--offset", "4000", "--bytes", "7").raw == PLAIN[4000:4007]
    verified = run("dataset", "verify", "vault")
    assert (verified.code, verified.err) == (0, "")
    assert verified.out.endswith("version 1: all authentic\n")
    assert run("dataset", "decrypt", "vault", "back").code == 0
    assert files_below(Path("back")) == tree


def test_a_second_run_says_what_was_new_and_what_not(vault: Path, run: Run) -> None:
    Path("tree/new").write_bytes(b"new")
    Path("tree/a.txt").unlink()
    Path("tree/dirlink").symlink_to("sub")
    dry = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--dry-run")
    assert dry.out == "new\nwould have encrypted 1 file, 3 B\n"
    done = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert "encrypted 1 file, 3 B; 3 unchanged; 1 not in the source -> vault, version 2" in done.out
    assert "warning: dirlink was left out: it is a link to a directory" in done.err
    record = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--json").records[0]
    assert (record["changed"], record["unchanged"], record["version"], record["error"]) == (False, 4, 2, None)


def test_add_puts_files_under_a_prefix_and_dry_runs_change_nothing(vault: Path, run: Run) -> None:
    before = files_below(vault)
    assert run("dataset", "add", "plain", "vault", "--prefix", "more", "--dry-run").out.startswith("more/plain\n")
    assert run("dataset", "rewrap", "vault", "--new-key-id", "next", "--dry-run").code == 0
    assert run("dataset", "decrypt", "vault", "back", "--dry-run", "--include", "*.txt").out.startswith(
        "a.txt\nsub/a.txt\n"
    )
    assert not Path("back").exists()
    assert {path: data for path, data in files_below(vault).items() if path != "_ags1/lock"} == {
        path: data for path, data in before.items() if path != "_ags1/lock"
    }
    assert run("dataset", "add", "plain", "vault", "--prefix", "more").code == 0
    assert run("dataset", "cat", "vault", "more/plain").raw == PLAIN


def test_rewrap_moves_to_another_master_key(vault: Path, run: Run) -> None:
    done = run("dataset", "rewrap", "vault", "--new-key-id", "next", "--json")
    record = done.records[0]
    assert (record["old_key_id"], record["new_key_id"], record["keys"], record["error"]) == ("lake", "next", 1, None)
    assert json.loads((vault / "_ags1/metadata.json").read_text())["table-key-id"] == "next"
    assert run("dataset", "verify", "vault", "--key-id", "next").code == 0
    refused = run("dataset", "verify", "vault", "--key-id", "lake")
    assert refused.code == 3
    assert "names the master key 'next', but 'lake' is expected" in refused.err


def test_verify_names_each_problem_and_answers_one(vault: Path, run: Run) -> None:
    (vault / "a.txt").write_bytes((vault / "sub/a.txt").read_bytes())
    (vault / "sub/empty").unlink()
    (vault / "foreign").write_bytes(b"x")
    result = run("dataset", "verify", "vault")
    assert result.code == 1
    assert "ags1: swapped: a.txt is the file sub/a.txt, put in its place\n" in result.err
    assert "ags1: missing: sub/empty is in the manifest, but not in the dataset\n" in result.err
    assert "ags1: foreign: foreign is in no manifest" in result.err
    assert result.out.endswith("3 problems\n")
    record = run("dataset", "verify", "vault", "--json").records[0]
    assert [each["kind"] for each in record["problems"]] == ["swapped", "missing", "foreign"]
    assert record["error"] == "3 problems"


def test_each_kind_of_failure_has_its_exit_code(
    vault: Path, run: Run, tree: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, code, message in (
        (["verify", "nowhere"], 4, "there is no ags1 dataset here"),
        (["cat", "vault", "nothing"], 4, "nothing: the dataset has no such file"),
        (["ls", "vault", "nothing"], 4, "nothing: the dataset has no such file or directory"),
        (["verify", "vault", "--expected-version", "7"], 1, "says version 1, but 7 is expected"),
        (["verify", "vault", "--expected-version", "x"], 2, "is not a version such as 7"),
        (["verify"], 2, "the following arguments are required: DATASET"),
        (["encrypt", "tree", "vault"], 2, "a master key is needed: --key-id ID"),
        (["encrypt", "tree", "other", "--key-id", "unknown"], 3, "there is no key of that id"),
        (["encrypt", "tree", "vault", "--key-id", "next"], 2, "is under the master key 'lake', not 'next'"),
        (["cat", "vault", "a.txt", "sub/a.txt", "--offset", "1"], 2, "are for one file"),
        (["nonsense"], 2, "invalid choice"),
        ([], 2, "ACTION"),
        (["ls", "vault", "--kms", "nonsense:"], 2, "there is no KMS 'nonsense'"),
    ):
        result = run("dataset", *arguments)
        assert (result.code, result.err.count("\n")) == (code, 1), arguments
        assert message in result.err
    monkeypatch.setenv("AGS1_KMS_PASSWORD", "wrong")
    assert run("dataset", "verify", "vault").code == 3
    monkeypatch.delenv("AGS1_KMS")
    assert "a KMS is needed: --kms URL" in run("dataset", "verify", "vault").err


def test_what_fails_is_reported_and_the_rest_goes_on_if_told_so(vault: Path, run: Run) -> None:
    Path("tree/dangling").symlink_to("nowhere")
    Path("tree/new").write_bytes(b"new")
    stopped = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert stopped.code == 4
    assert "dangling" in stopped.err
    going = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--keep-going")
    assert going.code == 4
    assert "encrypted 1 file" in going.out
    assert "1 failed" in going.out
    record = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--keep-going", "--json").records[0]
    assert [each["path"] for each in record["errors"]] == ["dangling"]
    assert record["error"] == "1 file failed"


def test_a_failure_is_a_json_object_too(run: Run, tree: dict[str, bytes]) -> None:
    for action in (["verify", "nowhere"], ["add", "tree", "nowhere"], ["decrypt", "nowhere", "back"]):
        result = run("dataset", *action, "--json")
        assert result.code == 4
        assert "there is no ags1 dataset here" in result.records[0]["error"]


@pytest.mark.parametrize("action", ["encrypt", "add", "ls", "cat", "verify", "decrypt", "rewrap"])
def test_each_action_has_help_that_fits_a_terminal(run: Run, action: str, tree: dict[str, bytes]) -> None:
    result = run("dataset", action, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: ags1 dataset {action}")
    assert max(map(len, result.out.splitlines())) <= 80
    assert run("dataset", "help", action).out == result.out
    assert re_action(run("dataset", "--help").out, action)


def re_action(text: str, action: str) -> bool:
    return any(line.startswith(f"  {action} ") for line in text.splitlines())


def test_control_characters_of_a_name_stay_off_the_terminal(run: Run, tree: dict[str, bytes]) -> None:
    Path("tree/new\x1b[31mred").write_bytes(b"x")
    run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert "\x1b" not in run("dataset", "ls", "vault").out
    os.unlink("vault/new\x1b[31mred")
    assert "\x1b" not in run("dataset", "verify", "vault").err
