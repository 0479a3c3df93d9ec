"""inspect and verify: one file in full, many in a table, JSON, and which blocks fail."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

import ags1
from tests.checks import KEY, OTHER_KEY, block_start, damage, flip, pattern
from tests.cli.conftest import PLAIN, Run, make_tree, write_key

KEYED = ("--key-file", "k")
READ = (*KEYED, "--any-length")


@pytest.fixture
def encrypted(work: Path) -> Path:
    """`plain.ags1`, six blocks of 1000 bytes, the last one with 5."""
    (work / "plain").write_bytes(pattern(5005))
    ags1.encrypt_file(work / "plain", work / "plain.ags1", KEY, block_length=1000)
    return work / "plain.ags1"


# -- inspect -------------------------------------------------------------------------------------------------


def test_inspect_shows_the_shape_of_one_file_without_a_key(run: Run, encrypted: Path) -> None:
    result = run("inspect", "plain.ags1")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "plain.ags1",
        "  format            AGS1 (AES GCM Stream, version 1)",
        "  encrypted length  5,181 bytes (5.2 kB)",
        "  block length      1,000 bytes of plaintext   (Iceberg reads only 1,048,576)",
        "  blocks            6, the last one with 5 bytes",
        "  plaintext length  5,005 bytes, if no block is missing at the end",
        "  overhead          176 bytes",
    ]


def test_inspect_of_an_interoperable_file_has_no_remark(run: Run, work: Path) -> None:
    (work / "x").write_bytes(ags1.encrypt(PLAIN, KEY))
    assert "Iceberg" not in run("inspect", "x").out


@pytest.mark.parametrize(
    ("data", "status", "message"),
    [
        (b"PAR1" + bytes(100), "not AGS1", "not an AGS1 stream: "),
        (b"", "not AGS1", "only 0 bytes"),
        (b"AGS1", "damaged", "only 4 bytes"),
        (b"AGS1" + bytes(100), "damaged", "block length"),
    ],
)
def test_inspect_tells_apart_what_is_no_stream(run: Run, work: Path, data: bytes, status: str, message: str) -> None:
    (work / "x").write_bytes(data)
    result = run("inspect", "x")
    assert result.code == 1
    assert result.out.splitlines()[1].startswith(f"  {status}  ")
    assert message in result.out
    (record,) = run("inspect", "x", "--json").records
    assert (record["status"], record["format"], record["error"]) == (status, None, None)
    assert message in record["problem"]


def test_inspect_says_where_a_cut_file_ends(run: Run, encrypted: Path) -> None:
    encrypted.write_bytes(encrypted.read_bytes()[: block_start(2, 1000) + 10])
    result = run("inspect", "plain.ags1")
    assert result.code == 1
    assert "  whole blocks      2, and 10 bytes behind them" in result.out
    assert "  problem  " in result.out


def test_inspect_of_a_missing_file_is_an_io_error(run: Run, work: Path) -> None:
    result = run("inspect", "missing")
    assert (result.code, result.out, result.err) == (4, "", "ags1: missing: No such file or directory\n")


def test_inspect_shows_many_files_as_a_table(run: Run, encrypted: Path, work: Path) -> None:
    (work / "cut").write_bytes(encrypted.read_bytes()[:1050])
    result = run("inspect", "plain.ags1", "plain", "cut", "missing")
    assert result.code == 1
    assert result.out.splitlines() == [
        "status          plaintext bytes      blocks   block length  file",
        "AGS1                      5,005           6          1,000  plain.ags1",
        "not AGS1                      -           -              -  plain",
        "damaged                       -           -          1,000  cut",
        "unreadable                    -           -              -  missing",
        (
            "4 files: 1 AGS1 with 5.0 kB of plaintext, 1 damaged, 1 not AGS1, 1 unreadable; `ags1 inspect` of one "
            "file says what is wrong"
        ),
    ]
    assert result.err == "ags1: missing: No such file or directory\n"


def test_inspect_takes_a_tree_with_everything_in_it(run: Run, work: Path) -> None:
    make_tree(work)
    run("encrypt", "tree", "tree/vault", *KEYED)
    lines = run("inspect", "tree").out.splitlines()
    assert len(lines) == 1 + 8 + 1
    assert lines[-1].startswith("8 files: 4 AGS1 with 5.0 kB of plaintext, 4 not AGS1")


def test_inspect_reads_standard_input(run: Run, encrypted: Path) -> None:
    result = run("inspect", "-", stdin=encrypted.read_bytes())
    assert result.code == 0
    assert result.out.startswith("standard input\n  format            AGS1")


def test_inspect_as_json_has_the_documented_fields(run: Run, encrypted: Path) -> None:
    result = run("inspect", "plain.ags1", "missing", "--json")
    assert (result.code, result.err) == (4, "")
    assert result.records == [
        {
            "file": "plain.ags1",
            "status": "AGS1",
            "encrypted_length": 5181,
            "format": "AGS1",
            "problem": None,
            "block_length": 1000,
            "iceberg": False,
            "plaintext_length": 5005,
            "blocks": 6,
            "last_block_length": 5,
            "overhead": 176,
            "error": None,
        },
        {"file": "missing", "status": "unreadable", "error": "missing: No such file or directory"},
    ]


# -- verify --------------------------------------------------------------------------------------------------


def test_verify_says_how_much_is_authentic(run: Run, encrypted: Path) -> None:
    result = run("verify", "plain.ags1", *KEYED, "--length", str(encrypted.stat().st_size))
    assert (result.code, result.err) == (0, "")
    assert result.out == "plain.ags1: 6 blocks, 5.2 kB: all authentic\n"


def test_verify_says_that_the_length_is_not_protected(run: Run, encrypted: Path) -> None:
    assert run("verify", "plain.ags1", *READ).err.startswith("note: no trusted length was given")
    assert run("verify", "plain.ags1", *READ, "-q").err == ""


@pytest.mark.parametrize("bad", [[0], [5], [0, 1, 2, 4], [2, 3]])
def test_verify_names_every_block_that_fails(run: Run, encrypted: Path, bad: list[int]) -> None:
    stream = encrypted.read_bytes()
    for block in bad:
        stream = damage(stream, 1000, block)
    encrypted.write_bytes(stream)
    result = run("verify", "plain.ags1", *READ)
    assert (result.code, result.out) == (1, "")
    shown = {(0,): "0", (5,): "5", (0, 1, 2, 4): "0-2, 4", (2, 3): "2-3"}[tuple(bad)]
    assert f"plain.ags1: damaged: {len(bad)} of 6 blocks failed authentication" in result.err
    assert result.err.endswith(f"block {shown}\n")
    (record,) = run("verify", "plain.ags1", *READ, "--json").records
    (finding,) = (each for each in record["findings"] if each["code"] == "damaged")
    assert finding["details"] == {"blocks": bad, "failed": len(bad)}
    assert record["error"] in result.err


def test_verify_takes_a_wrong_key_for_what_it_is(run: Run, encrypted: Path, work: Path) -> None:
    write_key(work / "other", OTHER_KEY)
    result = run("verify", "plain.ags1", "--key-file", "other", "--any-length")
    assert result.code == 1
    assert result.err == (
        "ags1: plain.ags1: damaged: none of its 6 blocks is authentic: wrong key, wrong AAD prefix, another file in "
        "its place, or damaged data\n"
    )
    (work / "small").write_bytes(ags1.encrypt(b"x", KEY))
    assert (
        "small: damaged: its only block is not authentic"
        in run("verify", "small", "--key-file", "other", "--any-length").err
    )


def test_verify_tells_a_cut_inside_a_block_from_a_wrong_key(run: Run, encrypted: Path) -> None:
    stream = encrypted.read_bytes()
    for length, said in (
        (3000, "truncated inside the last block, or that block is damaged"),
        (500, "truncated, or damaged"),
    ):
        encrypted.write_bytes(stream[:length])
        result = run("verify", "plain.ags1", *READ)
        assert (result.code, said in result.err) == (1, True)
        assert ("wrong key" in result.err) is (length < 1000)
    # With a trusted length there is no doubt.
    assert "2181 bytes are missing at its end" in run("verify", "plain.ags1", *KEYED, "--length", "2681").err


def test_verify_shortens_a_long_list_of_blocks(run: Run, work: Path) -> None:
    stream = ags1.encrypt(bytes(200), KEY, block_length=1)
    for block in range(0, 100, 2):
        stream = flip(stream, block_start(block, 1) + 12)
    (work / "x").write_bytes(stream)
    result = run("verify", "x", *READ)
    assert "50 of 200 blocks failed" in result.err
    assert result.err.endswith("36, 38 and 30 more\n")
    (record,) = run("verify", "x", *READ, "--json").records
    assert record["findings"][0]["details"]["blocks"] == list(range(0, 100, 2))


def test_verify_goes_on_to_the_other_files(run: Run, work: Path) -> None:
    make_tree(work)
    run("encrypt", "tree", "vault", *KEYED)
    (work / "vault/a.txt.ags1").write_bytes(b"AGS1")
    result = run("verify", "vault", *READ)
    assert result.code == 1
    assert result.out.splitlines()[-1].startswith("verified 3 of 4 files, ")
    assert len(result.err.splitlines()) == 1


def test_verify_as_json_has_the_documented_fields(run: Run, encrypted: Path) -> None:
    result = run("verify", "plain.ags1", "missing", *READ, "--json")
    assert (result.code, result.err) == (4, "")
    first, second = result.records
    assert first.pop("seconds") >= 0
    assert datetime.datetime.fromisoformat(first.pop("created")).utcoffset() == datetime.timedelta(0)
    (finding,) = first.pop("findings")
    assert (finding["severity"], finding["code"]) == ("warning", "untrusted-length")
    assert first == {
        "ags1": ags1.__version__,
        "ok": True,
        "subject": "plain.ags1",
        "outcome": "not protected",
        "exit_code": 5,
        "checked": {"blocks": 6, "bytes": encrypted.stat().st_size},
        "counts": {"untrusted-length": 1},
        "severities": {"warning": 1},
        "facts": {
            "blocks": 6,
            "block_length": 1000,
            "plaintext_length": 5005,
            "encrypted_length": encrypted.stat().st_size,
            "length_trusted": False,
        },
        "error": None,
    }
    assert second == {"subject": "missing", "error": "missing: No such file or directory"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-",), "standard input cannot be verified: give a file, or decrypt it to /dev/null"),
        (("plain.ags1", "plain", "--length", "5"), "--length is the length of one file"),
        ((".",), ""),
        (("empty",), "there are no .ags1 files below empty"),
    ],
)
def test_verify_refuses_what_cannot_be_verified(
    run: Run, encrypted: Path, work: Path, arguments: tuple[str, ...], message: str
) -> None:
    (work / "empty").mkdir()
    result = run("verify", *arguments, *(KEYED if "--length" in arguments else READ))
    assert result.code == (2 if message else 5)
    assert message in result.err


def test_verify_of_a_tree_names_files_that_only_key_metadata_is_left_of(run: Run, work: Path) -> None:
    """The threat: somebody deletes a file of a tree, and all that is left is authentic."""
    for name in ("a", "deep/b", "c"):
        (work / "raw" / name).parent.mkdir(parents=True, exist_ok=True)
        (work / "raw" / name).write_bytes(b"x")
    assert run("encrypt", "raw", "vault", "--key-metadata-out", "keys").code == 0
    verify = ("verify", "vault", "--key-metadata", "keys")
    assert run(*verify).code == 0
    (work / "vault/deep/b.ags1").unlink()
    found = run(*verify, "--json")
    assert found.code == 1
    (missing,) = (each for each in found.records if each["error"])
    assert missing["subject"] == "vault/deep/b.ags1"
    assert "missing: there is key metadata for it, keys/deep/b.ags1.key-metadata" in missing["error"]
    assert "vault/deep/b.ags1: missing" in run(*verify).err
    # What was asked for is one of the files, not the whole tree.
    assert run("verify", "vault/a.ags1", "--key-metadata", "keys").code == 0
    assert run("verify", "vault/*.ags1", "--key-metadata", "keys").code == 0
    (work / "keys/deep/b.ags1.key-metadata").unlink()
    assert run(*verify).code == 0
