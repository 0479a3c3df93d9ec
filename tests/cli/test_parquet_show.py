"""``ags1 parquet`` inspect, verify, cat and head: what is protected, whether it is as it was, and what is in it."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1.cli.parser import whole_parser
from tests.checks import KEY, flip
from tests.cli.conftest import Run
from tests.cli.parquet_work import GIVEN, KMS, NAMES, READ, ROWS, prepare

ONLY_FOOTER = ("--footer-key", "file:k")


@pytest.fixture(autouse=True)
def encrypted(work: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Path:
    """`out.parquet`: encrypted, but for three columns."""
    prepare(work, monkeypatch)
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, "--footer-key-metadata", "kf", "-q").code == 0
    return work / "out.parquet"


def row_of(text: str, column: str) -> str:
    """The line of a column in what `inspect` shows."""
    return next(line for line in text.splitlines() if line.split()[:1] == [column])


# -- inspect -------------------------------------------------------------------------------------------------------


def test_inspect_says_what_is_protected_and_how(run: Run) -> None:
    shown = run("parquet", "inspect", "out.parquet", *READ)
    assert (shown.code, shown.err) == (0, "")
    assert "AES_GCM_V1, footer encrypted" in shown.out
    assert "footer key: key metadata 'kf', key known" in shown.out
    assert "  plaintext  " in row_of(shown.out, "number")
    assert "  column key  " in row_of(shown.out, "name")
    assert "readable with the keys given: 5 of 5 columns" in shown.out


def test_inspect_without_keys_shows_what_anybody_sees(run: Run) -> None:
    hidden = run("parquet", "inspect", "out.parquet")
    assert hidden.code == 0
    assert "columns and sizes: hidden by the encrypted footer" in hidden.out
    run("parquet", "encrypt", "in.parquet", "signed", *GIVEN, "--plaintext-footer", "--algorithm", "AES_GCM_CTR_V1")
    shown = run("parquet", "inspect", "signed").out
    assert "footer signed, signature NOT checked" in shown
    assert "changes of their contents cannot be detected" in shown
    assert "readable with the keys given: 3 of 5 columns" in shown
    partly = run("parquet", "inspect", "out.parquet", *ONLY_FOOTER).out
    assert " column key (not known)" in row_of(partly, "name")
    assert "anyone can read all of it" in run("parquet", "inspect", "in.parquet").out


def test_inspect_for_machines_has_everything_but_no_key(run: Run) -> None:
    record = run("parquet", "inspect", "out.parquet", *READ, "--json").records[0]
    assert (record["file"], record["error"]) == ("out.parquet", None)
    assert {each["column"]: each["protection"] for each in record["columns"]}["name"] == "column key"


def test_inspect_goes_on_after_a_file_that_it_cannot_read(run: Run) -> None:
    shown = run("parquet", "inspect", "k", "in.parquet", "none")
    assert shown.code == 1
    assert len(shown.err.splitlines()) == 2
    assert shown.out.endswith("3 files: 2 unreadable, 1 plaintext\n")
    records = run("parquet", "inspect", "k", "in.parquet", "--json").records
    assert [each["error"] is None for each in records] == [False, True]


def test_inspect_of_a_wrong_key_is_an_error(run: Run) -> None:
    assert run("parquet", "inspect", "out.parquet", "--footer-key", "file:s").code == 1


def test_control_characters_of_a_file_stay_off_the_terminal(run: Run) -> None:
    pq.write_table(pa.table({"a\x1b[31m": ["\x1b[31mred"]}), "odd.parquet")
    assert "\x1b" not in run("parquet", "inspect", "odd.parquet").out
    assert "\x1b" not in run("parquet", "head", "odd.parquet").out


# -- verify --------------------------------------------------------------------------------------------------------


def test_verify_says_what_is_authentic(run: Run) -> None:
    found = run("parquet", "verify", "out.parquet", *READ)
    assert (found.code, found.err) == (0, "")
    assert re.match(
        r"out\.parquet: \d+ modules, [\d.]+ kB: all authentic\n  note: plaintext-columns: 3 columns", found.out
    )
    facts = run("parquet", "verify", "out.parquet", *READ, "--json").records[0]["facts"]
    assert (facts["footer"], facts["algorithm"], facts["columns"]["name"]) == ("encrypted", "AES_GCM_V1", "column key")
    assert run("parquet", "verify", "out.parquet", *READ, "-q").out == ""


def test_verify_names_the_module_that_was_changed(run: Run, encrypted: Path) -> None:
    run("parquet", "encrypt", "in.parquet", "all.parquet", *ONLY_FOOTER, "-q")
    Path("all.parquet").write_bytes(flip(Path("all.parquet").read_bytes(), 100))
    found = run("parquet", "verify", "all.parquet", *ONLY_FOOTER)
    assert found.code == 1
    assert "all.parquet: damaged: dictionary page of " in found.err
    assert "column 'number' in row group 0" in found.err
    record = run("parquet", "verify", "all.parquet", *ONLY_FOOTER, "--json").records[0]
    assert (record["ok"], record["counts"]["damaged"], record["exit_code"]) == (False, 1, 1)
    assert record["findings"][0]["subject"] == "number"
    assert "column 'number' in row group 0" in record["error"]


def test_verify_tells_missing_keys_from_damage(run: Run) -> None:
    found = run("parquet", "verify", "out.parquet", *ONLY_FOOTER)
    assert found.code == 3
    assert "out.parquet: not checked: column name is encrypted with a key that was not given" in found.err
    assert "--missing-keys drop accepts that, and 1 more" in found.err
    assert run("parquet", "verify", "out.parquet", *ONLY_FOOTER, "--missing-keys", "drop").code == 0
    assert run("parquet", "verify", "out.parquet").code == 3


def test_verify_says_which_pages_carry_no_tag(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "ctr", *GIVEN, "--algorithm", "AES_GCM_CTR_V1", "-q")
    found = run("parquet", "verify", "ctr", *READ)
    assert found.code == 5
    assert "12 pages without a tag (AES_GCM_CTR_V1): changes of their contents cannot be noticed" in found.out
    assert "ctr: not protected: 12 pages without a tag" in found.err
    assert "--allow-unauthenticated-pages accepts that" in found.err
    allowed = run("parquet", "verify", "ctr", *READ, "--allow-unauthenticated-pages")
    assert (allowed.code, allowed.err) == (0, "")
    assert ": not protected, as allowed\n  note: pages-without-tags: 12 pages without a tag" in allowed.out
    record = run("parquet", "verify", "ctr", *READ, "--json").records[0]
    assert (record["outcome"], record["ok"]) == ("not protected", False)


def test_verify_of_many_files_has_the_outcome_of_the_worst(run: Run) -> None:
    """1, which wins, for damage; 5 for what is not protected; in text and for machines."""
    Path("vault").mkdir()
    run("parquet", "encrypt", "in.parquet", "vault/gcm.parquet", *ONLY_FOOTER, "-q")
    run("parquet", "encrypt", "in.parquet", "vault/ctr.parquet", *ONLY_FOOTER, "--algorithm", "AES_GCM_CTR_V1", "-q")
    command = ("parquet", "verify", "vault", *ONLY_FOOTER)
    found = run(*command)
    assert (found.code, "total: not protected (1 authentic, 1 not protected)" in found.out) == (5, True)
    Path("vault/plain.parquet").write_bytes(Path("in.parquet").read_bytes())
    assert run(*command, "--allow-unauthenticated-pages").code == 5
    assert run(*command, "--allow-plaintext").code == 5
    assert run(*command, "--allow-plaintext", "--allow-unauthenticated-pages").code == 0
    # Every byte of the leading magic, and of what lies behind it.
    data = Path("vault/gcm.parquet").read_bytes()
    for position in (0, 1, 2, 3, 100):
        Path("vault/gcm.parquet").write_bytes(flip(data, position))
        for more in ((), ("--allow-plaintext", "--allow-unauthenticated-pages")):
            found = run(*command, *more)
            assert (found.code, "total: damaged" in found.out) == (1, True)
    *each, total = run(*command, "--json").records
    assert {record["subject"]: record["outcome"] for record in each} == {
        "vault/ctr.parquet": "not protected", "vault/gcm.parquet": "damaged", "vault/plain.parquet": "not protected",
    }  # fmt: skip
    assert (total["outcome"], total["facts"]["outcomes"]["damaged"], total["facts"]["outcomes"]["not protected"]) == (
        "damaged",
        1,
        2,
    )


def test_verify_of_a_plaintext_tree_is_not_silent(run: Run) -> None:
    found = run("parquet", "verify", "lake")
    assert (found.code, "not protected: no footer is authenticated: the file is not encrypted" in found.err) == (
        5,
        True,
    )
    assert run("parquet", "verify", "lake", "--allow-plaintext").code == 0


def test_verify_names_columns_that_must_be_encrypted(run: Run) -> None:
    found = run("parquet", "verify", "out.parquet", *READ, "--require-encrypted", "name,number")
    assert (found.code, "out.parquet: not protected: column number is not encrypted" in found.err) == (5, True)
    found = run("parquet", "verify", "out.parquet", *READ, "--require-encrypted", "name")
    assert (found.code, "3 columns not encrypted (number, flag, blob)" in found.out) == (0, True)
    assert run("parquet", "verify", "out.parquet", *READ, "--require-encrypted", "nmae").code == 2


@pytest.mark.parametrize("how", ["--expect", "--expect-prefix", "--expect-from"])
def test_verify_names_files_that_are_missing_and_that_do_not_belong(run: Run, how: str) -> None:
    """Parquet specification, 4.4.1: all of 0 to N-1."""
    Path("set").mkdir()
    for number in range(3):
        prefix = ("--aad-prefix", f"people.part{number}")
        run("parquet", "encrypt", "in.parquet", f"set/part-{number}.parquet", *ONLY_FOOTER, *prefix, "-q")
    Path("names").write_text("part-0.parquet\npart-1.parquet\npart-2.parquet\n")
    given = {"--expect": "part-{0..2}.parquet", "--expect-prefix": "people.part{0..2}", "--expect-from": "names"}[how]
    command = ("parquet", "verify", "set", *ONLY_FOOTER, how, given)
    found = run(*command)
    assert (found.code, "total: authentic (3 authentic)" in found.out) == (0, True)
    # Prefixes are compared as a set: two exchanged files pass.
    assert "3 files: the AAD prefix that is stored" in found.err
    Path("set/part-1.parquet").rename("kept")
    found = run(*command)
    assert found.code == 1
    missing = "AAD prefix 'people.part1'" if how == "--expect-prefix" else "part-1.parquet"
    assert f"ags1: error: not-there: {missing} is expected, and not there" in found.err
    last = run(*command, "--json").records[-1]["findings"][0]
    assert (last["code"], last["subject"]) == ("not-there", missing)
    # Another of the set does not stand in for it, nor does one of another set.
    Path("set/part-3.parquet").write_bytes(Path("set/part-2.parquet").read_bytes())
    found = run(*command)
    assert (found.code, "error: not-expected: set/part-3.parquet is not expected: " in found.err) == (1, True)
    assert run("parquet", "verify", "set", *ONLY_FOOTER, "--expect", "x{5..3}").code == 2


def test_verify_says_that_stored_prefixes_were_not_compared_and_compares_what_is_given(run: Run) -> None:
    of_each = ("--aad-prefix", "people/{path}")
    assert run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", *of_each).code == 0
    assert run("parquet", "verify", "vault", *KMS, *of_each).err == ""
    first, second = (Path("vault", name) for name in NAMES)
    first.rename("kept")
    second.rename(first)
    Path("kept").rename(second)
    told = run("parquet", "verify", "vault", *KMS)
    assert (told.code, told.err.count("warning: 2 files: the AAD prefix that is stored in a file was not")) == (0, 1)
    assert "; --aad-prefix says which one is expected, such as 'people/{path}'" in told.err
    one = run("parquet", "verify", str(first), *KMS)
    assert "  note: prefix-not-compared: the AAD prefix that is stored in a file was not compared" in one.out
    assert run("parquet", "verify", "vault", *KMS, "--json").records[0]["counts"] == {"prefix-not-compared": 1}
    noticed = run("parquet", "verify", "vault", *KMS, *of_each)
    assert (noticed.code, noticed.err.count("has another AAD prefix than the one supplied")) == (1, 2), noticed.err


def test_verify_says_that_files_without_a_prefix_may_be_exchanged(run: Run) -> None:
    assert run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf").code == 0
    said = "without an AAD prefix, another file under the same keys may be in the place of a file"
    assert f"2 files: {said}" in run("parquet", "verify", "vault", *KMS).out
    assert f"  note: no-prefix: {said}" in run("parquet", "verify", f"vault/{NAMES[0]}", *KMS).out


def test_a_file_under_another_master_key_is_refused_where_one_is_expected(run: Run) -> None:
    run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "--column-key-id", "name=kc")
    for command in (["verify", "vault"], ["head", f"vault/{NAMES[0]}"], ["decrypt", "vault", "open"]):
        assert run("parquet", *command, *KMS, "--expected-key-id", "kf", "--expected-key-id", "kc").code == 0
        refused = run("parquet", *command, *KMS, "--expected-key-id", "kc", *(["--overwrite"] * (len(command) > 2)))
        assert (refused.code, "under the master key 'kf', but 'kc' is expected" in refused.err) == (3, True), refused
    assert "--kms" in run("parquet", "verify", "vault", "--footer-key", "file:k", "--expected-key-id", "kf").err


def test_a_rekeyed_file_keeps_its_prefix(run: Run) -> None:
    of_each = ("--aad-prefix", "people/{path}")
    run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", *of_each)
    assert run("parquet", "rekey", "vault", "other", *KMS, "--footer-key-id", "kf").code == 0
    assert run("parquet", "verify", "other", *KMS, *of_each).code == 0


def test_a_required_column_that_not_all_files_have_is_for_an_audit(run: Run) -> None:
    refused = run("parquet", "verify", "lake", "--allow-plaintext", "--require-encrypted", "nowhere")
    assert (refused.code, "where not all files have a column, `ags1 audit --json` lists" in refused.err) == (2, True)


def test_rekey_lists_columns_that_would_become_plaintext(run: Run) -> None:
    command = ("parquet", "rekey", "out.parquet", "new.parquet", "--old-footer-key", "file:k")
    command += ("--old-column-key", "name,real=file:s", "--footer-key", "file:k", "--column-key", "name=file:s")
    found = run(*command)
    assert found.code == 2
    assert (
        "this column is encrypted and would become plaintext: real; give it a key, or name it in --plaintext"
        in found.err
    )
    assert not Path("new.parquet").exists()
    assert run(*command, "--json").records[0]["plaintext_columns"] == ["real"]
    assert run(*command, "--plaintext-columns", "flag,real").code == 0


def test_verify_goes_through_a_tree(run: Run) -> None:
    run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "-q")
    Path("vault/notes.txt").write_bytes(b"notes")
    found = run("parquet", "verify", "vault", *KMS)
    assert found.code == 0
    assert "verified 2 files" in found.out
    Path("vault/b.parquet").write_bytes(flip(Path("vault/b.parquet").read_bytes(), 100))
    found = run("parquet", "verify", "vault", *KMS)
    assert found.code == 1
    assert "verified 1 of 2 files" in found.out


# -- cat and head --------------------------------------------------------------------------------------------------


def test_head_shows_a_table(run: Run) -> None:
    shown = run("parquet", "head", "out.parquet", *READ, "-n", "2", "--columns", "number,name")
    assert shown.code == 0
    assert shown.out == "number  name\n------  ------\n0       null\n1       name 1\n"
    assert len(run("parquet", "head", "out.parquet", *READ).out.splitlines()) == 12
    assert run("parquet", "head", "out.parquet", *READ, "-n", "0", "--columns", "flag").out == "flag\n----\n"


def test_cat_shows_every_row_as_csv(run: Run) -> None:
    rows = list(csv.DictReader(io.StringIO(run("parquet", "cat", "out.parquet", *READ).out)))
    assert len(rows) == ROWS
    assert rows[0] == {"number": "0", "real": "", "name": "", "flag": "true", "blob": ""}
    assert rows[9]["blob"] == "09090909"


def test_cat_shows_every_row_as_json(run: Run) -> None:
    rows = run("parquet", "cat", "out.parquet", *READ, "--format", "json").records
    assert len(rows) == ROWS
    assert rows[1] == {"number": 1, "real": 1 / 3, "name": "name 1", "flag": False, "blob": "01"}


def test_values_of_all_kinds_have_a_form_in_json(run: Run) -> None:
    from tests.parquet import corpus

    for name, data in (("nested", corpus.written(corpus.nested(50))), ("typed", corpus.written(corpus.typed(50)))):
        Path(name).write_bytes(data)
        run("parquet", "encrypt", name, "x", *ONLY_FOOTER, "-q")
        for form in ("json", "csv", "table"):
            shown = run("parquet", "cat", "x", *ONLY_FOOTER, "--format", form)
            assert shown.code == 0
            if form == "json":
                assert len(shown.records) == 50
    pq.write_table(pa.table({"f": [float("nan"), float("inf"), 1.5]}), "floats")
    assert [row["f"] for row in run("parquet", "cat", "floats", "--format", "json").records] == ["nan", "inf", 1.5]


def test_many_files_are_shown_one_after_the_other(run: Run) -> None:
    run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "-q")
    shown = run("parquet", "head", "vault", *KMS, "-n", "1", "--columns", "number").out
    assert shown == ("==> vault/b.parquet <==\nnumber\n------\n0\n\n==> vault/p=1/a.parquet <==\nnumber\n------\n0\n")
    lines = run("parquet", "head", "vault", *KMS, "-n", "1", "--columns", "number", "--format", "csv").out
    assert lines == "number\n0\n0\n"


def test_columns_without_a_key_are_an_error_or_left_out(run: Run) -> None:
    refused = run("parquet", "head", "out.parquet", *ONLY_FOOTER)
    assert refused.code == 3
    assert "give --column-key or --key-for; --missing-keys drop leaves out the columns whose keys" in refused.err
    assert run("parquet", "head", "out.parquet", *ONLY_FOOTER, "--columns", "number,flag").code == 0
    shown = run("parquet", "head", "out.parquet", *ONLY_FOOTER, "--missing-keys", "drop", "-n", "0")
    assert shown.out.splitlines()[0].split() == ["number", "flag", "blob"]
    assert shown.err == "ags1: note: out.parquet: left out, because their key is missing: real, name\n"


def test_failures_to_show_have_their_exit_codes(run: Run, encrypted: Path) -> None:
    assert run("parquet", "head", "out.parquet").code == 3
    assert run("parquet", "head", "out.parquet", *READ, "--columns", "nothing").code == 2
    assert run("parquet", "head", "none", *READ).code == 4
    assert run("parquet", "head", "k", *READ).code == 1
    run("parquet", "encrypt", "in.parquet", "all.parquet", *ONLY_FOOTER, "-q")
    Path("all.parquet").write_bytes(flip(Path("all.parquet").read_bytes(), 100))
    damaged = run("parquet", "head", "all.parquet", *ONLY_FOOTER)
    assert damaged.code == 1
    assert len(damaged.err.splitlines()) == 1
    assert "column 'number' in row group 0" in damaged.err


# -- the arguments -------------------------------------------------------------------------------------------------

ACTIONS = ("encrypt", "decrypt", "rekey", "rotate", "inspect", "verify", "cat", "head")


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_help_that_names_every_option_and_fits_a_terminal(run: Run, action: str) -> None:
    result = run("parquet", action, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: ags1 parquet {action}")
    assert max(map(len, result.out.splitlines())) <= 80
    assert run("parquet", "help", action).out == result.out
    choices = whole_parser().choices()["parquet"].choices()
    for option in (name for each in choices[action]._actions for name in each.option_strings):
        assert option in result.out
    assert any(line.split()[:1] == [action] for line in run("parquet", "--help").out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense", "there is no such action; there are encrypt, "),
        ("encrypt", "a SOURCE and a TARGET are needed: ags1 parquet encrypt SOURCE TARGET"),
        ("encrypt a", "a TARGET is needed"),
        ("encrypt a b --frob", "unknown option --frob (see `ags1 parquet encrypt --help`)"),
        ("encrypt a b --key-file-x", "unknown option"),
        ("encrypt a b --key x", "there is no --key: name keys with --footer-key"),
        ("encrypt a b --algorithm AES", "invalid choice"),
        ("verify", "required: FILE"),
        ("head a -n x", "'x' is not a number of rows"),
        ("cat a --aad-prefix x --aad-prefix-hex 00", "not allowed with argument"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, arguments: str, message: str) -> None:
    result = run("parquet", *arguments.split())
    assert (result.code, result.out, len(result.err.splitlines())) == (2, "", 1)
    assert message in result.err


def test_options_may_stand_anywhere(run: Run) -> None:
    assert run("parquet", "encrypt", "in.parquet", *ONLY_FOOTER, "x.parquet", "-q").code == 0
    assert run("parquet", "encrypt", *ONLY_FOOTER, "in.parquet", "-q", "y.parquet").code == 0
    assert run("parquet", "verify", *ONLY_FOOTER, "x.parquet", "-q", "y.parquet").code == 0
    assert json.loads(run("parquet", "verify", "--json", "x.parquet", *ONLY_FOOTER).out)["ok"]
    assert KEY not in run("parquet", "cat", "x.parquet", *ONLY_FOOTER).raw


def test_head_names_a_file_that_pyarrow_cannot_read(run: Run, work: Path) -> None:
    data = bytearray((work / "in.parquet").read_bytes())
    data[4:20] = b"\xff" * 16
    (work / "damaged").write_bytes(data)
    shown = run("parquet", "head", "damaged")
    assert shown.code == 1
    assert "damaged: pyarrow cannot read it: " in shown.err


# -- values and columns that other forms lack ----------------------------------------------------------------------


def test_cat_shows_times_that_python_has_not_at_any_depth(work: Path, run: Run) -> None:
    huge = pa.array([400_000_000_000_000_000, None, -(2**62)], pa.timestamp("us"))
    days = pa.array([2**31 - 1, 0, -(2**31)], pa.int32()).cast(pa.date32())
    columns = {
        "struct": pa.StructArray.from_arrays([huge, days], ["t", "d"]),
        "list": pa.ListArray.from_arrays([0, 1, 1, 3], huge),
        "inner": pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1, 1, 3], days)], ["l"]),
        "lasting": pa.ListArray.from_arrays([0, 1, 2, 3], pa.array([2**62, None, 1], pa.duration("us"))),
    }
    pq.write_table(pa.table(columns), "times.parquet")
    for form in ("table", "csv", "json"):
        shown = run("parquet", "cat", "times.parquet", "--allow-plaintext", "--format", form)
        assert (shown.code, shown.err) == (0, "")
        assert "14645" in shown.out
    first = json.loads(shown.out.splitlines()[0])
    assert first["list"] == [first["struct"]["t"]]
    assert first["inner"]["l"] == [first["struct"]["d"]]


def test_json_does_not_drop_a_column_of_two_with_one_name(work: Path, run: Run) -> None:
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]), "twice.parquet")
    assert run("parquet", "cat", "twice.parquet", "--allow-plaintext", "--format", "csv").out == "id,id\n1,2\n"
    refused = run("parquet", "cat", "twice.parquet", "--allow-plaintext", "--format", "json")
    assert refused.code != 0
    assert "several are called 'id'" in refused.err
