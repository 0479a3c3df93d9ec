"""encrypt, decrypt and cat: trees, pipes, lists, many at once; what is said; that a failure leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.cli import transfer
from tests.checks import KEY, MIB, OTHER_KEY, damage, pattern
from tests.cli.conftest import PLAIN, Run, files_below, make_tree, write_key

KEYED = ("--key-file", "k")
READ = (*KEYED, "--any-length")
UNPROTECTED = "note: no trusted length was given"
TO_KEEP = "note: `ags1 decrypt` needs "


@pytest.fixture
def encrypted(work: Path) -> Path:
    """`plain.ags1` beside `plain`."""
    ags1.encrypt_file(work / "plain", work / "plain.ags1", KEY, block_length=1000)
    return work / "plain.ags1"


@pytest.fixture
def other_key(work: Path) -> None:
    """A file `other` with another key."""
    write_key(work / "other", OTHER_KEY)


# -- there and back ------------------------------------------------------------------------------------------


def test_a_file_comes_back(run: Run, work: Path) -> None:
    result = run("encrypt", "plain", "out.ags1", *KEYED)
    assert (result.code, result.out) == (0, "plain -> out.ags1  5.0 kB\n")
    assert result.err.startswith(f"{TO_KEEP}--length 5036: ")
    assert ags1.decrypt((work / "out.ags1").read_bytes(), KEY) == PLAIN
    result = run("decrypt", "out.ags1", "back", *READ)
    assert (result.code, result.out) == (0, "out.ags1 -> back  5.0 kB\n")
    assert result.err.startswith(UNPROTECTED)
    assert (work / "back").read_bytes() == PLAIN


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_a_tree_comes_back(run: Run, work: Path, jobs: str) -> None:
    contents = make_tree(work)
    assert run("encrypt", "tree", "vault", *KEYED, "--jobs", jobs).code == 0
    assert set(files_below(work / "vault")) == {f"{name}.ags1" for name in contents}
    (work / "vault/stranger").write_bytes(b"no AGS1 file: left out")
    assert run("decrypt", "vault", "back", *READ, "--jobs", jobs).code == 0
    assert files_below(work / "back") == contents


def test_globs_directories_and_names_may_be_mixed(run: Run, work: Path) -> None:
    make_tree(work)
    assert run("encrypt", "tree/sub", "tre?/*.txt", "plain", "out", *KEYED).code == 2
    assert run("encrypt", "tree/sub/deep", "tre?/*.txt", "plain", "out", *KEYED).code == 0
    assert set(files_below(work / "out")) == {"b.bin.ags1", "a.txt.ags1", "plain.ags1"}


def test_a_list_from_standard_input_is_worked_through(run: Run, work: Path) -> None:
    assert run("encrypt", "--files-from", "-", "out/", *KEYED, stdin=b"plain\n# k\n").code == 0
    assert set(files_below(work / "out")) == {"plain.ags1"}


def test_standard_input_and_output_are_a_pipe(run: Run, work: Path) -> None:
    stream = run("encrypt", "-", "-", *KEYED, stdin=PLAIN)
    assert stream.code == 0
    assert stream.err.startswith(f"{TO_KEEP}--length 5036: ")
    assert ags1.decrypt(stream.raw, KEY) == PLAIN
    back = run("decrypt", "-", "-", *READ, stdin=stream.raw)
    assert (back.code, back.raw) == (0, PLAIN)
    assert back.err.startswith(UNPROTECTED)
    assert run("decrypt", "-", "-", *READ, "--quiet", stdin=stream.raw).err == ""


def test_standard_input_goes_to_a_file(run: Run, work: Path) -> None:
    result = run("encrypt", "-", "out", *KEYED, stdin=PLAIN)
    assert (result.code, result.out) == (0, "standard input -> out  5.0 kB\n")
    assert ags1.decrypt((work / "out").read_bytes(), KEY) == PLAIN


@pytest.mark.timeout(60)
def test_a_real_pipe_of_many_blocks_comes_back(work: Path) -> None:
    (work / "large").write_bytes(pattern(3 * MIB + 5))
    command = f"'{sys.executable}' -m ags1"
    back = f"{command} decrypt - - --key-file k --any-length -q"
    line = f"cat large | {command} encrypt - - --key-file k -q | {back} | cmp - large"
    result = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, timeout=600, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


def test_the_block_length_is_the_one_that_was_asked_for(run: Run, work: Path) -> None:
    run("encrypt", "plain", "out", *KEYED, "--block-length", "1K")
    with ags1.open(work / "out", key=KEY) as reader:
        assert reader.block_length == 1024


def test_an_existing_target_is_replaced_and_keeps_its_mode(run: Run, work: Path) -> None:
    (work / "out").write_bytes(b"old")
    (work / "out").chmod(0o640)
    assert run("encrypt", "plain", "out", *KEYED, "--durable", "--overwrite").code == 0
    assert ags1.decrypt((work / "out").read_bytes(), KEY) == PLAIN
    assert stat.S_IMODE((work / "out").stat().st_mode) == 0o640


def test_nothing_that_exists_is_replaced_unasked(run: Run, work: Path) -> None:
    tree = make_tree(work)
    assert run("encrypt", "tree", "vault", *KEYED).code == 0
    (work / "vault/sub/empty.ags1").unlink()
    (work / "out").write_bytes(b"old")
    before = files_below(work)
    for command, first, others in (
        (("encrypt", "plain", "out", *KEYED), "out", ""),
        (("encrypt", "plain", "out", "--key-metadata-out", "meta"), "out", ""),
        (("decrypt", "vault/a.txt.ags1", "out", *READ), "out", ""),
        (("encrypt", "tree", "vault", *KEYED, "-q"), "vault/a.txt.ags1", " (3 of 4 targets do)"),
        (("decrypt", "vault", "tree", *READ), "tree/a.txt", " (3 of 3 targets do)"),
    ):
        refused = run(*command)
        said = f"ags1: {first}: it exists{others}, and nothing was replaced: --overwrite replaces what exists\n"
        assert (refused.code, refused.out, refused.err) == (9, "", said)
        assert files_below(work) == before
    assert run("encrypt", "tree", "vault", *KEYED, "--overwrite").code == 0
    assert run("decrypt", "vault", "tree", *READ, "--overwrite").code == 0
    assert files_below(work / "tree") == tree
    # What has nothing to lose is written to.
    assert run("decrypt", "vault/a.txt.ags1", os.devnull, *READ).code == 0
    for code, more in ((0, ()), (9, ()), (0, ("--overwrite",))):
        assert run("encrypt", "plain", "memory://mendset/one", *KEYED, *more).code == code


# -- what is said --------------------------------------------------------------------------------------------


def test_a_few_files_have_a_line_each_and_a_sum(run: Run, work: Path) -> None:
    make_tree(work)
    lines = run("encrypt", "tree", "vault", *KEYED).out.splitlines()
    assert len(lines) == 5
    assert lines[0].startswith("tree/a.txt -> vault/a.txt.ags1  41 B")
    assert lines[-1].startswith("encrypted 4 files, 5.0 kB")


def test_many_files_have_a_sum_and_lines_only_if_asked_for(run: Run, work: Path) -> None:
    (work / "many").mkdir()
    for index in range(30):
        (work / f"many/{index:02d}").write_bytes(b"x")
    result = run("encrypt", "many", "out", *KEYED, "--aad-prefix", "{path}")
    # A machine that is slow today adds how long it took.
    assert result.code == 0
    assert result.err.startswith(f"{TO_KEEP}the length of each file: --json prints them")
    assert re.fullmatch(r"encrypted 30 files, 30 B( in .*)?\n", result.out)
    assert len(run("encrypt", "many", "out", *KEYED, "--verbose", "--overwrite").out.splitlines()) == 31
    assert run("encrypt", "many", "out", *KEYED, "--quiet", "--overwrite").out == ""


def test_quiet_says_nothing_but_errors(run: Run, encrypted: Path) -> None:
    result = run("decrypt", "plain.ags1", "back", *READ, "--quiet")
    assert (result.code, result.out, result.err) == (0, "", "")
    result = run("decrypt", "missing", "back", *READ, "--quiet")
    assert (result.code, result.err) == (4, "ags1: missing: No such file or directory\n")


def test_an_unprotected_length_is_told_once_and_a_trusted_one_not(run: Run, work: Path) -> None:
    make_tree(work)
    run("encrypt", "tree", "vault", *KEYED)
    assert run("decrypt", "vault", "back", *READ).err.count(UNPROTECTED) == 1
    length = str((work / "vault/a.txt.ags1").stat().st_size)
    assert run("decrypt", "vault/a.txt.ags1", "back/", *KEYED, "--length", length, "--overwrite").err == ""


def test_encrypting_as_json_has_the_documented_fields(run: Run, work: Path) -> None:
    make_tree(work)
    result = run("encrypt", "tree", "missing", "vault", *KEYED, "--json")
    assert (result.code, result.err) == (4, "")
    assert len(result.records) == 5
    for record in result.records[:4]:
        assert set(record) == {"source", "target", "encrypted_length", "seconds", "error"}
        assert record["error"] is None
        assert record["encrypted_length"] == (work / record["target"]).stat().st_size
        assert record["seconds"] >= 0
    assert result.records[4] == {
        "source": "missing",
        "target": "vault/missing.ags1",
        "error": "missing: No such file or directory",
    }


def test_decrypting_as_json_has_the_documented_fields(run: Run, encrypted: Path) -> None:
    (record,) = run("decrypt", "plain.ags1", "back", *READ, "--json").records
    assert set(record) == {"source", "target", "plaintext_length", "seconds", "length_trusted", "error"}
    assert (record["plaintext_length"], record["length_trusted"]) == (len(PLAIN), False)
    (record,) = run(
        "decrypt", "plain.ags1", "back2", *KEYED, "--json", "--length", str(encrypted.stat().st_size)
    ).records
    assert record["length_trusted"] is True


def test_names_that_are_not_utf8_survive_json(run: Run, work: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (work / name).write_bytes(b"x")
    (record,) = run("encrypt", name, "out", *KEYED, "--json").records
    assert record["source"] == name


# -- failures ------------------------------------------------------------------------------------------------


def test_a_wrong_key_leaves_nothing_behind(run: Run, encrypted: Path, other_key: None, work: Path) -> None:
    before = files_below(work)
    result = run("decrypt", "plain.ags1", "back", "--key-file", "other", "--any-length")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("ags1: plain.ags1: block 0 failed authentication: wrong key")
    assert files_below(work) == before


def test_damage_leaves_the_old_target(run: Run, encrypted: Path, work: Path) -> None:
    (work / "back").write_bytes(b"old")
    encrypted.write_bytes(damage(encrypted.read_bytes(), 1000, 4))
    result = run("decrypt", "plain.ags1", "back", *READ, "--overwrite")
    assert (result.code, result.out) == (1, "")
    assert "plain.ags1: block 4 failed authentication" in result.err
    assert (work / "back").read_bytes() == b"old"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("encrypt", "missing", "out", *KEYED), 4, "ags1: missing: No such file or directory\n"),
        (("encrypt", "plain", "plain", *KEYED), 2, "ags1: source and target are the same file (plain)"),
        (("encrypt", "plain", "./plain", *KEYED), 2, "ags1: source and target are the same file"),
        (("encrypt", "plain", "no/out", *KEYED), 4, "ags1: no/out: there is no directory no: correct the name"),
        (("encrypt", "plain", "k", "plain.ags1", *KEYED), 2, "ags1: the TARGET (the last name) is the file plain"),
        (("encrypt", "*.avro", "out", *KEYED), 2, "ags1: no file matches *.avro\n"),
        (("encrypt", "--files-from", "no-list", "out", *KEYED), 4, "ags1: no-list: No such file or directory\n"),
        (("decrypt", "plain", "out", *READ), 1, "ags1: plain: not an AGS1 stream"),
        (("decrypt", "plain.ags1", "out", *KEYED, "--length", "9999"), 1, "ags1: plain.ags1: has 5148 bytes, but its"),
        (("decrypt", "plain.ags1", "k", "out", *KEYED, "--length", "9"), 2, "ags1: --length is the length of one"),
        (("cat", "plain.ags1", "plain", *READ, "--offset", "9"), 2, "ags1: --offset, --bytes and --length are"),
        (("cat", "missing", *READ), 4, "ags1: missing: No such file or directory\n"),
        (("cat", "plain", *READ), 1, "ags1: plain: not an AGS1 stream"),
    ],
)  # fmt: skip
def test_a_command_that_fails_says_why_and_leaves_nothing(
    run: Run, encrypted: Path, work: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    before = files_below(work)
    result = run(*arguments)
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(message)
    assert len(result.err.splitlines()) == 1
    assert files_below(work) == before


def test_a_file_in_the_way_of_a_directory_is_told(run: Run, work: Path) -> None:
    result = run("encrypt", "plain", "k/x", *KEYED)
    assert result.code == 4
    assert "k/x: Not a directory" in result.err


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_one_failure_among_many_does_not_stop_the_others(run: Run, work: Path, jobs: str) -> None:
    contents = make_tree(work)
    run("encrypt", "tree", "vault", *KEYED, "-q")
    (work / "vault/sub/a.txt.ags1").write_bytes(b"AGS1 is not what this is, but it is long enough")
    result = run("decrypt", "vault", "back", *READ, "--jobs", jobs)
    assert result.code == 1
    assert "vault/sub/a.txt.ags1: " in result.err
    assert result.out.splitlines()[-1].startswith("decrypted 3 of 4 files, ")
    assert result.out.splitlines()[-1].endswith("; 1 failed")
    del contents["sub/a.txt"]
    assert files_below(work / "back") == contents


def test_what_is_wrong_with_many_files_is_said_of_some_of_them(run: Run, work: Path, other_key: None) -> None:
    (work / "many").mkdir()
    for index in range(25):
        (work / f"many/{index:02}").write_bytes(b"x")
    assert run("encrypt", "many", "vault", *KEYED, "-q").code == 0
    wrong = ("decrypt", "vault", "back", "--key-file", "other", "--any-length")
    failed = run(*wrong, "-q")
    assert failed.code == 1
    lines = failed.err.splitlines()
    assert [line.split(":")[1] for line in lines[:-1]] == [f" vault/{index:02}.ags1" for index in range(20)]
    assert lines[-1] == "ags1: ... and 5 files more (--verbose names them all)"
    assert len([line for line in run(*wrong, "--verbose").err.splitlines() if "wrong key" in line]) == 25
    assert len([each for each in run(*wrong, "--json").records if each["error"]]) == 25
    # Which files are damaged is what verify is asked for.
    assert len([line for line in run("verify", "vault", *wrong[3:]).err.splitlines() if "wrong key" in line]) == 25


def test_a_source_that_vanishes_is_told(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tree(work)
    encrypt_file = transfer.encrypt_file

    def vanish(source: str, *arguments: Any, **options: Any) -> Any:
        if source == "tree/a.txt":
            os.unlink("tree/sub/a.txt")
        return encrypt_file(source, *arguments, **options)

    monkeypatch.setattr(transfer, "encrypt_file", vanish)
    result = run("encrypt", "tree", "vault", "--key-metadata-out", "keys")
    assert result.code == 4
    assert result.err == "ags1: tree/sub/a.txt: No such file or directory\n"
    assert not (work / "vault/sub/a.txt.ags1").exists()


def test_an_error_without_a_file_is_told_with_both(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise OSError(32, "Broken pipe")

    monkeypatch.setattr(transfer, "encrypt_file", fail)
    assert run("encrypt", "plain", "out", *KEYED).err == "ags1: plain -> out: Broken pipe\n"


@pytest.mark.timeout(60)
def test_a_pipe_whose_reader_goes_away_is_an_error_if_it_is_the_target(run: Run, work: Path) -> None:
    os.mkfifo(work / "pipe")
    (work / "large").write_bytes(bytes(4 * MIB))

    def look() -> None:
        with (work / "pipe").open("rb") as pipe:
            pipe.read(10)

    reader = threading.Thread(target=look, daemon=True)
    reader.start()
    result = run("encrypt", "large", "pipe", *KEYED)
    reader.join(600)
    assert (result.code, result.out) == (4, "")
    assert result.err == "ags1: large -> pipe: Broken pipe\n"


def test_a_store_that_fails_in_its_own_way_has_no_traceback(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("the bucket is gone")

    monkeypatch.setattr(transfer, "encrypt_file", fail)
    result = run("encrypt", "plain", "out", *KEYED)
    assert (result.code, result.err) == (4, "ags1: plain: the bucket is gone\n")


def test_remote_files_come_back(run: Run, work: Path) -> None:
    pytest.importorskip("fsspec")
    make_tree(work)
    assert run("encrypt", "tree", "memory://vault/", *KEYED).code == 0
    assert run("cat", "memory://vault/sub/a.txt.ags1", *READ).out == "second"
    assert run("decrypt", "memory://vault/a.txt.ags1", "back", *READ).code == 0
    assert (work / "back").read_bytes() == b"first"
    assert run("inspect", "memory://vault/a.txt.ags1").code == 0
    missing = run("decrypt", "memory://vault/missing", "back", *READ)
    assert missing.code == 4
    assert "memory://vault/missing" in missing.err


# -- lengths that nobody vouches for ---------------------------------------------------------------------------


@pytest.fixture
def cut(encrypted: Path) -> Path:
    """`plain.ags1` without its last two blocks: every block that is left is authentic. `bare` is its key alone."""
    os.truncate(encrypted, 8 + 3 * 1028)
    ags1.KeyMetadata(KEY).save("bare")
    return encrypted


@pytest.mark.parametrize("keyed", [KEYED, ("--key-metadata", "bare"), ("--key-metadata", "keys")])
@pytest.mark.parametrize(
    "command",
    [
        *("decrypt plain.ags1 back", "decrypt plain.ags1 -", "decrypt - -", "decrypt tree back"),
        *("cat plain.ags1", "cat -", "cat tree", "cat plain.ags1 --bytes 10", "verify plain.ags1", "verify tree"),
    ],
)
def test_a_stream_without_a_trusted_length_is_refused_before_anything_is_written(
    run: Run, cut: Path, work: Path, command: str, keyed: tuple[str, ...]
) -> None:
    for name in ("tree", "keys"):
        (work / name).mkdir()
    (work / "tree/plain.ags1").write_bytes(cut.read_bytes())
    ags1.encrypt_file(work / "plain", work / "tree/whole.ags1", key_metadata_out=work / "keys/whole.ags1.key-metadata")
    (work / "keys/plain.ags1.key-metadata").write_bytes((work / "bare").read_bytes())
    before = files_below(work)
    result = run(*command.split(), *keyed, stdin=cut.read_bytes())
    assert (result.code, result.out, files_below(work)) == (2, "", before)
    if keyed[1] != "keys" or command not in ("decrypt - -", "cat -"):
        assert all(each in result.err for each in ("--key-metadata", "--length", "--any-length"))


@pytest.mark.parametrize("keyed", [KEYED, ("--key-metadata", "bare")])
def test_any_length_reads_what_is_there_and_says_what_it_cannot_know(
    run: Run, cut: Path, work: Path, keyed: tuple[str, ...]
) -> None:
    for command, code in (("cat plain.ags1", 0), ("verify plain.ags1", 5), ("decrypt plain.ags1 back", 0)):
        for silent in ((), ("-q",)):
            (work / "back").unlink(missing_ok=True)
            result = run(*command.split(), *keyed, "--any-length", *silent)
            assert result.code == code
            assert result.err.startswith(UNPROTECTED) is not bool(silent)
    assert (work / "back").read_bytes() == run("cat", "plain.ags1", *keyed, "--any-length").raw == PLAIN[:3000]
    # A length that is known is looked at all the same.
    ags1.KeyMetadata(KEY, file_length=5148).save("full")
    assert run("verify", "plain.ags1", "--key-metadata", "full", "--any-length").code == 1


def test_the_length_that_encryption_says_is_the_one_to_give(run: Run, work: Path) -> None:
    (length,) = re.findall(r"--length (\d+)", run("encrypt", "plain", "out.ags1", *KEYED).err)
    for command in (("decrypt", "out.ags1", "back"), ("cat", "out.ags1"), ("verify", "out.ags1")):
        result = run(*command, *KEYED, "--length", length)
        assert (result.code, result.err) == (0, "")
    for kept in (("--key-metadata-out", "meta"), ("-q",), ("--json",)):
        assert run("encrypt", "plain", "out.ags1", *KEYED, *kept, "--overwrite").err == ""


# -- signals -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("jobs", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)])
def test_an_interrupt_stops_all_jobs_and_leaves_nothing(work: Path, jobs: int, number: int) -> None:
    for index in range(4):
        with (work / f"large-{index}").open("wb") as file:
            file.truncate(1 << 28)
    (work / "small").write_bytes(b"x")
    command = [sys.executable, "-m", "ags1", "encrypt", "small", *(f"large-{index}" for index in range(4)), "out"]
    with subprocess.Popen(
        [*command, *KEYED, "--aad-prefix", "{path}", "--jobs", str(jobs), "--threads", "1", "--block-length", "4"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # The small file is done, so the large ones are at work: such blocks keep a thread busy for half a minute.
        assert process.stdout.readline().startswith(b"small -> out/small.ags1")
        process.send_signal(number)
        code = process.wait(600)
        said = process.stderr.read().decode()
        summed = process.stdout.read().decode()
    assert code == 128 + number
    assert said == "ags1: interrupted; no file was left half-written\n"
    assert summed.startswith("encrypted 1 of 5 files, ")
    assert set(files_below(work / "out")) == {"small.ags1"}


# -- cat -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "start", "stop"),
    [
        ((), 0, None),
        (("--offset", "999"), 999, None),
        (("--bytes", "10"), 0, 10),
        (("--offset", "995", "--bytes", "10"), 995, 1005),
        (("--offset", "1K", "--bytes", "0"), 0, 0),
        (("--offset", "4999"), 4999, None),
        (("--offset", "1M"), 5000, None),
        (("--bytes", "1M"), 0, None),
    ],
)
@pytest.mark.parametrize("source", ["plain.ags1", "-"])
def test_cat_writes_the_range_that_was_asked_for(
    run: Run, encrypted: Path, source: str, options: tuple[str, ...], start: int, stop: int | None
) -> None:
    result = run("cat", source, *READ, "--quiet", *options, stdin=encrypted.read_bytes())
    assert (result.code, result.raw, result.err) == (0, PLAIN[start:stop], "")


def test_cat_skips_what_a_pipe_has_before_the_offset(encrypted: Path) -> None:
    line = f"cat plain.ags1 | '{sys.executable}' -m ags1 cat - --key-file k --any-length --offset 4990 -q"
    result = subprocess.run(["bash", "-c", line], capture_output=True, timeout=600, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, PLAIN[4990:], b"")


def test_cat_writes_many_files_one_behind_the_other(run: Run, work: Path) -> None:
    make_tree(work)
    run("encrypt", "tree", "vault", *KEYED)
    assert run("cat", "vault/a.txt.ags1", "vault/sub/a.txt.ags1", *READ).raw == b"firstsecond"
    assert run("cat", "vault", *READ, "-q").raw == b"first" + b"second" + PLAIN


def test_cat_of_a_range_reads_only_its_blocks(run: Run, encrypted: Path) -> None:
    encrypted.write_bytes(damage(encrypted.read_bytes(), 1000, 4))
    assert run("cat", "plain.ags1", *READ, "--bytes", "4000").raw == PLAIN[:4000]
    result = run("cat", "plain.ags1", *READ, "--offset", "3999")
    assert result.code == 1
    assert "block 4 failed authentication" in result.err


def test_every_record_is_a_line_of_its_own_with_many_jobs(run: Run, work: Path) -> None:
    (work / "many").mkdir()
    for index in range(50):
        (work / f"many/{index}").write_bytes(b"x" * index)
    result = run("encrypt", "many", "out", *KEYED, "--jobs", "8", "--json")
    found = {json.loads(line)["source"] for line in result.out.splitlines()}
    assert found == {f"many/{index}" for index in range(50)}
