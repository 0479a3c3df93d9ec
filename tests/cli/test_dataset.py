"""``ags1 dataset``: datasets from the shell."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ags1
from ags1 import dataset, kms
from ags1.cli.parser import parse
from tests.checks import KEY
from tests.cli.conftest import KEYSTORE, PLAIN, Run, files_below, write_key


def object_of(path: str) -> Path:
    """The object that holds a file of the dataset "vault"."""
    (found,) = Path("vault").glob(f"{path}.*.ags1")
    return found


def test_empty_directories_are_listed_come_back_and_count_as_no_file(tree: dict[str, bytes], run: Run) -> None:
    Path("tree/sub/none").mkdir()
    made = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert made.out.startswith(f"encrypted {len(tree)} files")
    assert "sub/none/\n" in run("dataset", "ls", "vault", "sub").out
    assert run("dataset", "ls", "vault", "sub/none").out == ""
    assert run("dataset", "ls", "vault", "-r").out.split() == sorted(tree)
    assert run("dataset", "decrypt", "vault", "out").code == 0
    assert Path("out/sub/none").is_dir()
    assert run("dataset", "rm", "vault", "sub/none").code == 0
    assert "none/" not in run("dataset", "ls", "vault", "sub").out


def test_a_tree_is_encrypted_listed_shown_verified_and_decrypted(tree: dict[str, bytes], run: Run) -> None:
    made = run("dataset", "encrypt", "tree", "vault", "--kms", KEYSTORE, "--key-id", "lake")
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
    assert dry.out == "new\nwould have encrypted 1 file, 3 B; 3 unchanged; 1 not in the source\n"
    done = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert done.code == 5
    assert "encrypted 1 file, 3 B; 3 unchanged; 1 not in the source -> vault, version 2" in done.out
    assert "warning: dirlink was left out: it is a link, which is not followed" in done.err
    record = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--json").records[0]
    assert (record["changed"], record["unchanged"], record["version"], record["error"]) == (False, 4, 2, None)
    assert [each["path"] for each in record["skipped"]] == ["dirlink"]
    gone = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--delete")
    assert "4 unchanged; 1 left out of the new version -> vault, version 3" in gone.out
    assert run("dataset", "ls", "vault").out == "new\nsub/\n"


def test_what_the_patterns_leave_out_stays_and_is_not_said_to_be_gone(vault: Path, run: Run) -> None:
    Path("tree/a.txt").unlink()
    Path("tree/sub/a.txt").unlink()
    again = ("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--include", "sub/**")
    assert "2 unchanged; 1 not in the source; 1 not looked at, because of --include or --exclude" in run(*again).out
    record = run(*again, "--delete", "--json").records[0]
    assert (record["unchanged"], record["removed"], record["others"], record["excluded"]) == (2, 1, 0, 1)
    assert "a.txt" in run("dataset", "ls", "vault").out.split()


def test_a_source_without_files_is_warned_of(vault: Path, run: Run) -> None:
    Path("empty").mkdir()
    for command in (["encrypt", "empty", "vault", "--key-id", "lake"], ["add", "vault", "empty"]):
        for quiet in ((), ("--quiet",)):
            result = run("dataset", *command, *quiet)
            assert (result.code, result.err) == (0, "ags1: warning: empty: there are no files in it\n")


@pytest.mark.parametrize("more", [(), ("--include", "sub/**"), ("--dry-run",)])
def test_a_source_that_is_not_mounted_does_not_empty_a_dataset(vault: Path, run: Run, more: tuple[str, ...]) -> None:
    Path("empty/lost+found").mkdir(parents=True)
    delete = ("dataset", "encrypt", "empty", "vault", "--key-id", "lake", "--delete", *more)
    refused = run(*delete)
    assert (refused.code, refused.out) == (2, "")
    count = 3 if "--include" in more else 4
    assert (
        f"empty: it has no files, so --delete would remove {count} files of the dataset: is it mounted" in refused.err
    )
    assert run("dataset", "ls", "vault", "-r").out.count("\n") == 4
    allowed = run(*delete, "--allow-empty", "--json")
    assert (allowed.code, allowed.records[0]["removed"]) == (0, count)
    assert run("dataset", "ls", "vault", "-r").out.count("\n") == (4 if "--dry-run" in more else 4 - count)


def test_a_file_that_is_not_whole_any_more_is_encrypted_again(vault: Path, run: Run) -> None:
    object_of("a.txt").unlink()
    done = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert "encrypted 1 file, 5 B; 1 of them because they were not whole any more; 3 unchanged" in done.out
    object_of("a.txt").unlink()
    quiet = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "-q")
    assert (quiet.code, quiet.out) == (0, "")
    assert quiet.err == "ags1: warning: encrypted again, because not whole: 1 file of vault\n"
    assert run("dataset", "cat", "vault", "a.txt").raw == b"first"


def test_add_puts_files_under_a_prefix_and_dry_runs_change_nothing(vault: Path, run: Run) -> None:
    before = files_below(vault)
    assert run("dataset", "add", "vault", "plain", "--prefix", "more", "--dry-run").out.startswith("more/plain\n")
    assert run("dataset", "rewrap", "vault", "--new-key-id", "next", "--dry-run").code == 0
    assert run("dataset", "rm", "vault", "sub", "--dry-run").out.endswith("would have removed 3 files\n")
    assert run("dataset", "repair", "vault", "tree", "--dry-run").out == "would have repaired 0 files\n"
    assert run("dataset", "expire", "vault", "--older-than", "0s", "--dry-run").code == 0
    assert run("dataset", "decrypt", "vault", "back", "--dry-run", "--include", "*.txt").out.startswith(
        "a.txt\nsub/a.txt\n"
    )
    assert not Path("back").exists()
    assert files_below(vault) == before
    assert run("dataset", "add", "vault", "plain", "--prefix", "more", "--no-durable").code == 0
    assert run("dataset", "cat", "vault", "more/plain").raw == PLAIN


@pytest.mark.parametrize("dry_run", [[], ["--dry-run"]], ids=["", "dry"])
@pytest.mark.parametrize(
    ("command", "source"),
    [
        (["decrypt", "vault", "back"], "vault"),
        (["add", "vault", "tree", "--prefix", "more"], "tree"),
        (["encrypt", "tree", "vault", "--key-id", "lake"], "tree"),
    ],
    ids=lambda each: each[0],
)
def test_patterns_that_leave_no_file_do_not_pass_for_success(
    command: list[str], source: str, dry_run: list[str], vault: Path, run: Run
) -> None:
    before = run("dataset", "ls", "vault", "-r").out
    for patterns in (["--include", "dya=7/*"], ["--exclude", "*"], ["--include", "a.txt", "--exclude", "a*"]):
        refused = f"{source}: no file is left by {shlex.join(patterns)}: correct the patterns"
        done = run("dataset", *command, *dry_run, *patterns)
        assert (done.code, done.err) == (2, f"ags1: {refused}\n")
        quiet = run("dataset", *command, *dry_run, *patterns, "--quiet")
        assert (quiet.code, quiet.out, quiet.err) == (2, "", f"ags1: {refused}\n")
        told = run("dataset", *command, *dry_run, *patterns, "--json")
        assert (told.code, json.loads(told.out)["error"]) == (2, refused)
    assert run("dataset", *command, *dry_run, "--include", "a.txt").code == 0
    assert run("dataset", *command, *dry_run, "--include", "a.txt").code == 0, "what is done already counts"
    assert before in run("dataset", "ls", "vault", "-r").out


def test_patterns_that_leave_no_file_make_no_dataset(tree: dict[str, bytes], run: Run) -> None:
    refused = run("dataset", "encrypt", "tree", "fresh", "--key-id", "lake", "--include", "*.cvs")
    assert (refused.code, refused.out) == (2, "")
    assert "no file is left by include and exclude: correct the patterns" in refused.err
    assert "there is no ags1 dataset here" in run("dataset", "verify", "fresh").err


def test_without_patterns_nothing_to_do_is_success(vault: Path, run: Run) -> None:
    Path("nothing").mkdir()
    assert run("dataset", "add", "vault", "nothing").code == 0


def test_an_older_version_is_restored_as_a_new_one(vault: Path, run: Run) -> None:
    run("dataset", "rm", "vault", "sub", "a.txt")
    run("dataset", "add", "vault", "plain", "--prefix", "more")
    tried = run("dataset", "restore", "vault", "1", "--dry-run")
    assert tried.out.splitlines() == [
        *("a.txt", "sub/a.txt", "sub/deep/b.bin", "sub/empty"),
        "would have restored 4 files; 1 left out of the new version",
    ]
    done = run("dataset", "restore", "vault", "1")
    assert done.out == "restored 4 files; 1 left out of the new version -> vault, version 4\n"
    assert sorted(run("dataset", "ls", "vault", "-r").out.split()) == sorted(files_below(Path("tree")))
    assert run("dataset", "verify", "vault").code == 0
    again = json.loads(run("dataset", "restore", "vault", "1", "--json").out)
    assert (again["changed"], again["done"], again["unchanged"], again["version"]) == (False, 0, 4, 4)
    refused = run("dataset", "restore", "vault", "9")
    assert (refused.code, "the dataset has no version 9: the newest one is 4" in refused.err) == (4, True)


@pytest.mark.parametrize("what", ["v-2.json", "manifest"])
def test_a_damaged_last_version_is_named_with_the_command_that_helps_and_it_does(
    vault: Path, run: Run, what: str
) -> None:
    known = set(vault.glob("_ags1/manifests/*"))
    assert run("dataset", "rm", "vault", "a.txt", "--pin", "pin").code == 0
    (place,) = set(vault.glob("_ags1/manifests/*")) - known if what == "manifest" else [vault / "_ags1/v-2.json"]
    place.write_bytes(place.read_bytes()[:-9])
    name, help_ = str(place.relative_to(vault.parent)), "`ags1 dataset restore vault 1`"
    for command in (
        ["verify"], ["versions"], ["ls"], ["add", "tree"], ["rm", "sub"], ["repair", "tree"],
        ["expire", "--yes"], ["expire", "--give-up", "2", "--yes"], ["rewrap", "--new-key-id", "new"],
        ["encrypt"], ["verify", "--pin", "pin"],
    ):  # fmt: skip
        action, *rest = command
        order = ["tree", "vault"] if action == "encrypt" else ["vault"]
        told = run("dataset", action, *order, *rest)
        assert told.code == 1, (command, told.err)
        assert f"{name}: version 2 of the dataset vault cannot be read" in told.err, command
        assert help_ in told.err, command
    assert "     2  cannot be read\n" in run("dataset", "versions", "vault").out
    first, second = run("dataset", "versions", "vault", "--json").records
    assert (first["error"], first["version"], second["version"]) == (None, 1, 2)
    assert name in second["error"]
    (record,) = run("dataset", "verify", "vault", "--json").records
    assert name in record["findings"][0]["message"]
    assert run("dataset", "restore", "vault", "1", "--expected-version", "3").code == 1
    assert run("dataset", "restore", "vault", "1", "--dry-run", "--pin", "pin").code == 0
    restored = run("dataset", "restore", "vault", "1", "--pin", "pin")
    assert (restored.code, "version 2 is damaged" in restored.err) == (0, True)
    assert run("dataset", "verify", "vault", "--version", "3", "--pin", "pin").code == 1
    assert run("dataset", "expire", "vault", "--give-up", "2", "--grace", "0s", "--yes").code == 0
    assert run("dataset", "verify", "vault", "--pin", "pin").code == 0
    assert run("dataset", "cat", "vault", "a.txt").out == "first"


def test_files_are_removed_and_older_versions_have_them(vault: Path, run: Run) -> None:
    assert run("dataset", "rm", "vault", "sub/deep", "a.txt").out == "removed 2 files -> vault, version 2\n"
    assert run("dataset", "ls", "vault", "-r").out == "sub/a.txt\nsub/empty\n"
    assert len(run("dataset", "ls", "vault", "-r", "--version", "1").out.split()) == 4
    assert run("dataset", "cat", "vault", "a.txt", "--version", "1").raw == b"first"
    assert run("dataset", "decrypt", "vault", "back", "--version", "1").code == 0
    assert sorted(files_below(Path("back"))) == ["a.txt", "sub/a.txt", "sub/deep/b.bin", "sub/empty"]
    missing = run("dataset", "rm", "vault", "nothing")
    assert (missing.code, "nothing: the dataset has no such file or directory" in missing.err) == (4, True)


def test_versions_are_shown(vault: Path, run: Run) -> None:
    Path("tree/new").write_bytes(b"new")
    Path("tree/a.txt").write_bytes(b"first, changed")
    run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "-q")
    run("dataset", "rm", "vault", "sub/empty", "-q")
    shown = run("dataset", "versions", "vault").out.splitlines()
    records = run("dataset", "versions", "vault", "--json").records
    assert shown[0] == f"dataset {records[0]['uuid']}"
    assert [line.split()[0] for line in shown[1:]] == ["1", "2", "3"]
    assert [each["operation"] for each in records] == ["encrypt", "encrypt", "rm"]
    for line, record in zip(shown[1:], records, strict=True):
        assert record["digest"] in line
    pins = ["--expected-version", "3", "--expected-uuid", records[0]["uuid"]]
    assert run("dataset", "verify", "vault", *pins, "--expected-digest", records[2]["digest"]).code == 0
    for pin in (["--expected-uuid", "another"], ["--expected-digest", records[0]["digest"]]):
        refused = run("dataset", "verify", "vault", *pin)
        assert (refused.code, "is expected" in refused.err) == (1, True)


def test_old_versions_expire_and_the_rest_stays_whole(vault: Path, run: Run) -> None:
    run("dataset", "rm", "vault", "sub", "-q")
    kept = run("dataset", "expire", "vault", "--yes")
    assert kept.out.startswith("there is nothing to remove; kept 2 versions -> vault, version 2\n")
    assert "more versions than --keep stay, because they were replaced not long ago: --older-than" in kept.out
    assert "more versions" not in run("dataset", "expire", "vault", "--keep", "2", "--yes").out
    record = run("dataset", "expire", "vault", "--older-than", "0s", "--grace", "0s", "--json", "--yes").records[0]
    assert (record["versions"], record["version"], record["error"]) == ([1], 3, None)
    # Three files and the root of version 1.
    assert record["objects"] == 4
    assert run("dataset", "cat", "vault", "a.txt").raw == b"first"
    assert run("dataset", "verify", "vault").code == 0
    gone = run("dataset", "ls", "vault", "--version", "1")
    assert (gone.code, "no version 1" in gone.err) == (4, True)


def test_what_stays_for_the_grace_time_is_said_and_not_called_interrupted(vault: Path, run: Run) -> None:
    run("dataset", "rm", "vault", "sub", "-q")
    expire = ("dataset", "expire", "vault", "--older-than", "0s", "--yes")
    said = run(*expire).out
    assert re.search(r"kept for the grace time, .*: \d+ objects in no version; .* or --grace 0s does now", said), said
    (shown, *_) = run("dataset", "verify", "vault").err.splitlines()
    assert "is in no version: it is of a version that was removed, or" in shown, shown
    assert "interrupted" not in shown
    assert "kept for the grace time" not in run(*expire, "--grace", "0s").out
    assert run("dataset", "verify", "vault").err == ""


def test_expire_asks_first_and_does_nothing_where_nobody_can_be_asked(
    vault: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("dataset", "rm", "vault", "sub", "-q")
    before = files_below(vault)
    now = ("--older-than", "0", "--grace", "0")
    for further in ((), ("--json",)):
        refused = run("dataset", "expire", "vault", *now, *further)
        assert (refused.code, "Do it? Nobody can be asked here: say --yes" in refused.err) == (2, True), refused.err
        if further:
            assert (refused.records[0]["versions"], "say --yes" in refused.records[0]["error"]) == ([1], True)
        else:
            assert refused.out == run("dataset", "expire", "vault", *now, "--dry-run").out
        nothing = run("dataset", "expire", "vault", *further)
        assert (nothing.code, nothing.err) == (0, ""), "there is nothing to do, so nothing to be asked"
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    kept = run("dataset", "expire", "vault", *now)
    assert "would have removed 1 version, and 4 objects" in kept.out
    assert (kept.code, kept.err) == (0, "Do it? [y/N] ags1: nothing was changed\n")
    assert files_below(vault) == before
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    done = run("dataset", "expire", "vault", *now)
    assert "\nremoved 1 version, and 4 objects" in done.out
    assert run("dataset", "verify", "vault").code == 0


def test_names_of_ls_are_taken_back_by_cat(tmp_path: Path, vault: Path, run: Run) -> None:
    odd = ["line\nfeed", "back\\slash", "\x1b[31mred", " space "]
    for name in odd:
        Path("tree/odd").mkdir(exist_ok=True)
        Path("tree/odd", name).write_bytes(name.encode())
    assert run("dataset", "add", "vault", "tree").code == 0
    names = run("dataset", "ls", "vault", "odd", "-0").raw.decode().split("\0")[:-1]
    assert sorted(names) == sorted(f"odd/{name}" for name in odd)
    assert run("dataset", "cat", "vault", *names).raw == "".join(name.removeprefix("odd/") for name in names).encode()
    shown = run("dataset", "ls", "vault", "odd").out
    assert ("\x1b" in shown, shown.count("\n")) == (False, len(odd))


def test_patterns_that_leave_no_file_are_no_count_of_files(vault: Path, run: Run) -> None:
    result = run("dataset", "decrypt", "vault", "back", "--include", "mispelt")
    assert (result.code, result.out, "no file is left by --include mispelt" in result.err) == (2, "", True)


def test_small_slips_are_said(vault: Path, run: Run) -> None:
    # A dataset that is there knows its master key; a source that is not there is no success.
    Path("tree/new").write_bytes(b"new")
    assert "encrypted 1 file" in run("dataset", "encrypt", "tree", "vault").out
    missing = run("dataset", "repair", "vault", "tre")
    assert (missing.code, "tre: No such file or directory" in missing.err) == (4, True)
    # Only versions that a key opens are said to be open by it.
    run("dataset", "rewrap", "vault", "--new-key-id", "next")
    assert "1 older version" in run("dataset", "rewrap", "vault", "--new-key-id", "lake").out
    # Where a run stops, what came before it is there.
    object_of("sub/deep/b.bin").write_bytes(b"damaged")
    stopped = run("dataset", "decrypt", "vault", "out")
    assert (stopped.code, Path("out/a.txt").read_bytes()) == (1, b"first")
    assert "what came before it is in out, and stays; --keep-going decrypts the others" in stopped.err


def test_rewrap_moves_to_another_master_key(vault: Path, run: Run) -> None:
    done = run("dataset", "rewrap", "vault", "--new-key-id", "next", "--json")
    record = done.records[0]
    assert (record["old_key_id"], record["new_key_id"], record["error"]) == ("lake", "next", None)
    assert (record["version"], record["older_versions"]) == (2, 1)
    assert run("dataset", "verify", "vault", "--expected-key-id", "next").code == 0
    again = run("dataset", "rewrap", "vault", "--new-key-id", "next")
    assert again.out == "vault is wrapped again under the master key 'next'; no file changed\n"
    refused = run("dataset", "verify", "vault", "--expected-key-id", "lake")
    assert refused.code == 3
    assert "is under the master key 'next', but 'lake' is expected" in refused.err


def test_verify_names_each_problem_and_what_is_harmless_is_none(vault: Path, run: Run) -> None:
    left = Path("vault/a.txt.0123456789ab-01234567.ags1")
    left.write_bytes(b"of a run that was killed")
    harmless = run("dataset", "verify", "vault")
    assert harmless.code == 0
    assert "ags1: warning: unreferenced: a.txt.0123456789ab-01234567.ags1" in harmless.err
    assert harmless.out.endswith("version 1: all authentic\n")
    assert ": 1 object in no version; a later expire" in run("dataset", "expire", "vault", "--yes").out
    more = [left.with_name(f"a.txt.0123456789ab-{number:08}.ags1") for number in range(9)]
    for each in more:
        each.touch()
    many = run("dataset", "verify", "vault")
    assert (many.code, len(many.err.splitlines())) == (0, 4)
    assert many.err.endswith("warning: unreferenced: ... and 7 more\n")
    for each in more:
        each.unlink()
    object_of("sub/empty").unlink()
    first, second = object_of("sub/a.txt"), Path("vault").glob("a.txt.*.ags1")
    next(each for each in second if each != left).write_bytes(first.read_bytes())
    Path("vault/foreign").write_bytes(b"x")
    result = run("dataset", "verify", "vault")
    assert result.code == 1
    assert "ags1: error: extended: a.txt (" in result.err
    assert "ags1: error: missing: sub/empty" in result.err
    assert "ags1: error: foreign: foreign is of no run of this dataset" in result.err
    assert result.out.endswith("version 1: DAMAGED (3 errors)\n")
    record = run("dataset", "verify", "vault", "--json").records[0]
    assert sorted(each["code"] for each in record["findings"]) == ["extended", "foreign", "missing", "unreferenced"]
    assert record["error"] == "DAMAGED (3 errors)"


def test_repair_encrypts_anew_what_is_damaged(vault: Path, run: Run) -> None:
    object_of("sub/a.txt").unlink()
    damaged = object_of("sub/deep/b.bin")
    data = bytearray(damaged.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    os.truncate(object_of("a.txt"), 5)
    Path("tree/a.txt").write_bytes(b"changed since")
    assert "sub/a.txt\nsub/deep/b.bin\n" in run("dataset", "repair", "vault", "tree", "--dry-run").out
    repaired = run("dataset", "repair", "vault", "tree")
    assert repaired.code == 4
    assert "repaired 2 files, 5.0 kB; 1 failed -> vault, version 2" in repaired.out
    assert "a.txt: was changed since it was encrypted" in repaired.err
    assert run("dataset", "encrypt", "tree", "vault", "--key-id", "lake").code == 0
    assert run("dataset", "verify", "vault").code == 0
    assert run("dataset", "repair", "vault", "tree", "--json").records[0]["repaired"] == 0


def test_a_keystore_that_is_not_found_is_to_be_made_only_for_what_is_new(vault: Path, run: Run) -> None:
    Path("elsewhere").mkdir()
    os.chdir("elsewhere")
    missing = f"there is no keystore keys.json, which is {Path('keys.json').absolute()} from this directory"
    for there in (("verify", "../vault"), ("encrypt", "../tree", "../vault", "--key-id", "lake")):
        refused = run("dataset", *there, "--kms", "local:keys.json?key_file=../kek")
        assert (refused.code, missing in refused.err, "kms init" in refused.err) == (3, True, False), refused.err
        assert "look for the one that has the keys" in refused.err
    new = run("dataset", "encrypt", "../tree", "new", "--key-id", "lake", "--kms", "local:keys.json?key_file=../kek")
    assert (new.code, f"{missing}; `ags1 kms init` makes a new one" in new.err) == (3, True), new.err


def test_each_kind_of_failure_has_its_exit_code(
    vault: Path, run: Run, tree: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for arguments, code, message in (
        (["verify", "nowhere"], 4, "there is no ags1 dataset here"),
        (["cat", "vault", "nothing"], 4, "nothing: the dataset has no such file"),
        (["cat", "vault", "no/thing"], 4, "no/thing: the dataset has no such file"),
        (["rm", "vault", "no/*"], 4, "no/*: the dataset has no such file or directory"),
        (["add", "vault", "tree", "--prefix", "../x"], 2, "give a relative one"),
        (["ls", "vault", "nothing"], 4, "nothing: the dataset has no such file or directory"),
        (["ls", "vault", "--version", "9"], 4, "the dataset has no version 9: the newest one is 1"),
        (["ls", "vault", "--version", "0"], 4, "the dataset has no version 0: the first one is 1"),
        (
            ["verify", "vault", "--expected-version", "7"],
            1,
            "older copy was put back, or the number is too high",
        ),
        (["verify", "vault", "--expected-version", "x"], 2, "is not a version such as 7"),
        (["verify"], 2, "the following arguments are required: DATASET"),
        (["encrypt", "tree", "-", "--key-id", "lake"], 2, "argument TARGET: - is a stream, and this takes a directory"),
        (["decrypt", "vault", "-"], 2, "argument TARGET: - is a stream"),
        (["verify", "-"], 2, "argument DATASET: - is a stream"),
        (["repair", "vault", "-"], 2, "argument SOURCE: - is a stream"),
        (["encrypt", "tree", "new"], 2, "new: a new dataset needs a master key: give --key-id"),
        (["encrypt", "tree", "other", "--key-id", "unknown"], 3, "there is no key with this id"),
        (["encrypt", "tree", "vault", "--key-id", "next"], 2, "is under the master key 'lake', not 'next'"),
        (["cat", "vault", "a.txt", "sub/a.txt", "--offset", "1"], 2, "are for one file"),
        (["expire", "vault", "--older-than", "5"], 2, "is not a time such as 90s, 30m, 24h, 5d or 2w"),
        (["expire", "vault", "--keep", "0"], 2, "the last version always stays"),
        (["nonsense"], 2, "there is no such action"),
        (["ls", "vault", "--kms", "nonsense:"], 2, "there is no KMS 'nonsense'"),
    ):
        result = run("dataset", *arguments)
        assert (result.code, result.err.count("\n")) == (code, 1), arguments
        assert message in result.err
    write_key(Path("kek"), bytes(32))
    assert run("dataset", "verify", "vault").code == 3
    monkeypatch.delenv("AGS1_KMS")
    assert "a KMS is needed: --kms URL" in run("dataset", "verify", "vault").err


def test_a_second_writer_of_the_same_path_is_a_conflict(vault: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.dataset.transaction import Transaction

    commit = Transaction.commit
    client = kms.load(KEYSTORE)

    def second(self: Transaction, *, always: bool = False) -> object:
        monkeypatch.setattr(Transaction, "commit", commit)
        with dataset.open("vault", client) as other:
            other.rm("a.txt")
        return commit(self, always=always)

    monkeypatch.setattr(Transaction, "commit", second)
    refused = run("dataset", "rm", "vault", "a.txt", "sub/a.txt")
    assert refused.code == 0, "they agree"
    monkeypatch.setattr(Transaction, "commit", lambda self, always=False: clash(self, always))

    def clash(self: Transaction, always: bool) -> object:
        monkeypatch.setattr(Transaction, "commit", commit)
        with dataset.open("vault", client) as other:
            Path("plain").rename("b.bin")
            other.add("b.bin", prefix="sub/deep")
        return commit(self, always=always)

    conflict = run("dataset", "rm", "vault", "sub/deep/b.bin")
    assert conflict.code == 6
    assert "another writer has changed sub/deep/b.bin meanwhile: nothing was committed" in conflict.err


def test_what_is_complete_when_a_scheduler_ends_a_run_is_not_done_again(tree: dict[str, bytes], run: Run) -> None:
    source = Path("tree")
    (source / "y").write_bytes(bytes(100 << 20))
    with (source / "z").open("wb") as file:
        file.truncate(1 << 35)
    command = [sys.executable, "-m", "ags1", "dataset", "encrypt", "tree", "vault", "--key-id", "lake"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        # The files before it are complete; it takes seconds.
        while process.poll() is None and not list(Path("vault").glob("*z.*")):
            pass
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (128 + signal.SIGTERM, "ags1: interrupted; no file was left half-written\n")
    assert not list(Path("vault").glob("*z.*"))
    (source / "z").write_bytes(b"short")
    again = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert again.out.startswith("encrypted 1 file, 5 B")
    assert f"{len(tree) + 1} taken over" in again.out


def test_what_fails_is_reported_and_the_rest_goes_on_if_told_so(vault: Path, run: Run) -> None:
    Path("tree/again").write_bytes(ags1.encrypt(b"x", KEY))
    Path("tree/new").write_bytes(b"new")
    stopped = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert stopped.code == 9
    assert "again" in stopped.err
    going = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--keep-going")
    assert going.code == 9
    assert "encrypted 1 file" in going.out
    assert "1 failed" in going.out
    record = run("dataset", "encrypt", "tree", "vault", "--key-id", "lake", "--keep-going", "--json").records[0]
    assert [each["path"] for each in record["errors"]] == ["again"]
    assert record["error"] == "1 file failed"


def test_a_failure_is_a_json_object_too(run: Run, tree: dict[str, bytes]) -> None:
    for action in (["verify", "nowhere"], ["add", "nowhere", "tree"], ["decrypt", "nowhere", "back"]):
        result = run("dataset", *action, "--json")
        assert result.code == 4
        assert "there is no ags1 dataset here" in result.records[0]["error"]


def test_an_older_version_is_verified_without_the_former_master_key(vault: Path, run: Run) -> None:
    assert run("dataset", "rm", "vault", "a.txt").code == 0
    assert run("dataset", "rewrap", "vault", "--new-key-id", "next").code == 0
    kms.LocalKms("keys.json", key_file="kek").remove_key("lake")
    found = run("dataset", "verify", "vault", "--json")
    assert (found.code, found.records[0]["findings"]) == (0, [])
    assert run("dataset", "cat", "vault", "a.txt", "--version", "1").code == 3


class Terminal(io.StringIO):
    """Standard input, at which a person answers."""

    def isatty(self) -> bool:
        return True


ACTIONS = [
    *("encrypt", "add", "rm", "restore", "repair", "rewrap", "expire"),
    *("ls", "cat", "verify", "decrypt", "versions"),
]


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_help_that_fits_a_terminal(run: Run, action: str, tree: dict[str, bytes]) -> None:
    result = run("dataset", action, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: ags1 dataset {action}")
    assert max(map(len, result.out.splitlines())) <= 80
    assert run("dataset", "help", action).out == result.out
    for shown in (run("dataset", "--help").out, run("help", "dataset").out):
        assert re.search(rf"^ +{action} +\w", shown, re.MULTILINE)


@pytest.mark.parametrize("action", ["", *ACTIONS])
def test_the_examples_of_help_are_commands(run: Run, action: str, tree: dict[str, bytes]) -> None:
    shown = run("dataset", action, "--help").out if action else run("help", "dataset").out
    examples = shown.partition("examples:\n")[2].replace("\\\n", " ")
    commands = re.findall(r"^  ags1 dataset (.*)$", examples, re.MULTILINE)
    assert commands
    for command in commands:
        parse(["dataset", *shlex.split(command.partition("|")[0])])


def test_control_characters_of_a_name_stay_off_the_terminal(run: Run, tree: dict[str, bytes]) -> None:
    Path("tree/new\x1b[31mred").write_bytes(b"x")
    run("dataset", "encrypt", "tree", "vault", "--key-id", "lake")
    assert "\x1b" not in run("dataset", "ls", "vault").out
    (found,) = Path("vault").glob("new*")
    found.unlink()
    assert "\x1b" not in run("dataset", "verify", "vault").err


# -- other commands at a dataset --------------------------------------------------------------------------------------


def test_other_commands_say_that_it_is_a_dataset_and_what_was_meant(vault: Path, run: Run) -> None:
    write_key(Path("key"), bytes(range(32)))
    before = files_below(vault)
    for command, meant in (
        (("verify", "vault", "--key-file", "key"), "`ags1 dataset verify vault`"),
        (("verify", "vault/sub", "--key-file", "key"), "lies in vault"),
        (("decrypt", "vault/", "plain", "--key-file", "key"), "`ags1 dataset decrypt vault plain`"),
        (("cat", "vault", "--key-file", "key"), "`ags1 dataset cat vault PATH`"),
        (("encrypt", "vault", "other", "--key-file", "key"), "--again"),
        (("encrypt", "tree/a.txt", "vault/new", "--key-file", "key"), "`ags1 dataset add vault SOURCE`"),
        (("encrypt", "tree", "vault/", "--key-file", "key"), "`ags1 dataset add vault SOURCE`"),
        (("encrypt", "tree", "vault/sub/new/", "--key-file", "key"), "`ags1 dataset add vault SOURCE`"),
        (("decrypt", "tree/a.txt", "vault/new", "--key-file", "key"), "`ags1 dataset add vault SOURCE`"),
        (("parquet", "encrypt", "tree", "vault", "--footer-key", "file:key"), "`ags1 dataset add vault SOURCE`"),
        (("parquet", "verify", "vault", "--footer-key", "file:key"), "a dataset"),
    ):
        refused = run(*command)
        assert (refused.code, meant in refused.err) == (2, True), (command, refused.err)
    assert "is part of the dataset" in run("inspect", "vault").err
    assert files_below(vault) == before
    assert run("dataset", "decrypt", "vault", "--version", "9", "plain").err.endswith("the newest one is 1\n")
    assert "no ags1 dataset here" in run("dataset", "decrypt", "tree", "--version", "9", "plain").err


def test_what_is_encrypted_already_is_encrypted_again_on_request_only(vault: Path, run: Run) -> None:
    write_key(Path("key"), bytes(range(32)))
    assert run("encrypt", "tree/a.txt", "tree/b.ags1", "--key-file", "key").code == 0
    shutil.copytree("vault", "tree/inner")
    for command in (
        ("encrypt", "tree/b.ags1", "twice", "--key-file", "key"),
        ("encrypt", "tree/inner/_ags1/v-1.json", "twice", "--key-file", "key"),
        ("dataset", "encrypt", "tree", "new", "--key-id", "lake", "--exclude", "b.ags1"),
        ("dataset", "encrypt", "tree", "new", "--key-id", "lake", "--exclude", "inner"),
        ("dataset", "add", "vault", "tree", "--exclude", "inner"),
        ("dataset", "add", "vault", "tree", "--prefix", "x", "--exclude", "b.ags1"),
    ):
        refused = run(*command)
        assert (refused.code, "encrypted already" in refused.err) == (9, True), (command, refused.err)
        assert run(*command, "--again").code == 0, command
        shutil.rmtree("new", ignore_errors=True)
        Path("twice").unlink(missing_ok=True)
    assert "is a dataset" in run("dataset", "encrypt", "vault", "new", "--key-id", "lake").err


def test_decryption_keeps_what_is_there_and_gives_the_times_back(vault: Path, run: Run) -> None:
    os.utime("tree/a.txt", ns=(1, 1_234_567_890_123_456_789))
    assert run("dataset", "encrypt", "tree", "vault", "--key-id", "lake").code == 0
    assert run("dataset", "decrypt", "vault", "out").code == 0
    assert os.stat("out/a.txt").st_mtime_ns == 1_234_567_890_123_456_789
    # As an interrupted run leaves it: some are there, and one of them was copied without its time.
    Path("out/sub/a.txt").unlink()
    Path("out/sub/deep/b.bin").touch()
    again = run("dataset", "decrypt", "vault", "out")
    assert (again.code, again.err, "decrypted 2 files" in again.out, "; 2 unchanged" in again.out) == (
        0,
        "",
        True,
        True,
    )
    assert files_below(Path("out")) == files_below(Path("tree"))

    # Edited: as long as before, and longer. A link would be lost, too.
    Path("out/a.txt").write_bytes(b"mine!")
    Path("out/sub/empty").write_bytes(b"mine")
    Path("out/sub/a.txt").unlink()
    Path("out/sub/a.txt").symlink_to("elsewhere")
    before = files_below(Path("out"))
    for more in ((), ("--keep-going",), ("--dry-run",), ("--include", "a.txt", "--exclude", "sub")):
        kept = run("dataset", "decrypt", "vault", "out", *more)
        count = "1 file in it differs" if "--include" in more else "3 files in it differ"
        said = f"out: {count} from what would be written, such as a.txt, and nothing was written: --overwrite"
        assert (kept.code, said in kept.err) == (9, True), kept.err
        assert (files_below(Path("out")), os.readlink("out/sub/a.txt")) == (before, "elsewhere")
    assert run("dataset", "decrypt", "vault", "out", "--exclude", "a.txt", "--exclude", "empty").code == 0
    assert run("dataset", "decrypt", "vault", "out", "--overwrite").code == 0
    assert files_below(Path("out")) == files_below(Path("tree"))
    for code, more in ((0, ()), (9, ()), (0, ("--overwrite",))):
        assert run("dataset", "decrypt", "vault", "memory://mendset/out", *more).code == code
