"""``ags1 iceberg``: its arguments, which metadata file follows another, and what stays off the command line.

Real tables are in tests/iceberg/test_cli.py.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("pyiceberg")

from ags1.cli import main
from ags1.cli.iceberg.opening import warnings_as_lines
from ags1.cli.parser import parse, whole_parser
from ags1.cli.spelling import option_of
from ags1.errors import FormatError, KeyAccessError
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile, UntrustedLengthWarning
from ags1.keys import Key, KeyMetadata
from ags1.support.arguments import spell_by
from tests.checks import KEY
from tests.cli.conftest import Run

ACTIONS = (
    "inspect", "files", "scan", "audit", "verify", "cat", "rewrap", "prune",
    "encrypt", "decrypt", "rekey", "expire", "clean",
    "create", "append", "delete", "compact", "maintain",
)  # fmt: skip


# -- the arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_help_that_names_every_option_and_fits_a_terminal(run: Run, work: Path, action: str) -> None:
    result = run("iceberg", action, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: ags1 iceberg {action} TABLE")
    assert max(map(len, result.out.splitlines())) <= 80
    assert run("iceberg", "help", action).out == result.out
    choices = whole_parser().choices()["iceberg"].choices()
    assert set(choices) == set(ACTIONS)
    for option in (name for each in choices[action]._actions for name in each.option_strings):
        assert option in result.out
    assert any(line.split()[:1] == [action] for line in run("iceberg", "--help").out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nonsense t", "there is no such action; there are inspect, "),
        ("scan", "required: TABLE"),
        ("create - --key-id k --schema s.csv", "argument TABLE: - is a stream"),
        ("scan a b", "too many arguments (see `ags1 iceberg scan --help`)"),
        ("scan a --frob", "unknown option --frob (see `ags1 iceberg scan --help`)"),
        ("scan a --key x", "there is no --key: a table's keys come from its KMS, --kms URL"),
        ("scan a --snapshot 1 --as-of 2020-01-01", "not allowed with argument --snapshot"),
        ("scan a --limit -1", "argument --limit"),
        ("scan a --format xml", "invalid choice"),
        ("files a --ref main --snapshot 1", "not allowed with"),
        ("files a --snapshot last", "'last' is neither the id of a snapshot"),
        ("cat a", "required: FILE"),
        ("rewrap a", "are required: --new-key-id"),
        ("rekey a --data-keys", "`ags1 iceberg rekey` gives every file a new key"),
        ("rekey a --key-id k", "unknown option --key-id: did you mean --new-key-id?"),
        ("verify a --keyid k", "unknown option --keyid: did you mean --expected-key-id?"),
        ("verify a --threads 0", "is not a number of 1 or more"),
        ("scan a --length-policy none", "invalid choice"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, work: Path, arguments: str, message: str) -> None:
    result = run("iceberg", *arguments.split())
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


def test_a_catalog_that_is_not_configured_is_named_in_words_of_this_command(run: Run, work: Path) -> None:
    result = run("iceberg", "encrypt", "db.people", "--catalog", "misspelt", "--key-id", "k", "--kms", "local:k")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "there is no catalog 'misspelt' in PyIceberg's configuration, which has " in result.err


@pytest.mark.parametrize("command", ["verify", "encrypt --key-id k", "rewrap --new-key-id k"])
def test_the_name_of_a_table_where_a_path_belongs_leads_to_the_option(run: Run, work: Path, command: str) -> None:
    action, *more = command.split()
    result = run("iceberg", action, "db.people", *more)
    assert (result.code, result.err.count("\n")) == (4, 1)
    assert result.err.endswith(
        "there is no such metadata file or directory; for a table of a catalog, give --catalog\n"
    )
    assert "--catalog" not in run("iceberg", action, "./db.people", *more).err


def test_a_new_table_is_not_made_where_its_catalog_was_forgotten(run: Run, work: Path) -> None:
    (work / "rows.csv").write_text("id\n1\n")
    run("kms", "init", "--kms", "local:keys.json", "--keystore-key-file", "k", "--key-id", "lake")
    make = ("--schema", "rows.csv", "--key-id", "lake", "--kms", "local:keys.json?key_file=k")
    made = run("iceberg", "create", "db.events", *make)
    assert (made.code, made.err.count("\n")) == (2, 1)
    assert "give --catalog; for a new directory say ./db.events" in made.err
    assert not (work / "db.events").exists()
    for place in ("./db.events", "events"):
        assert "give --catalog" not in run("iceberg", "create", place, *make).err


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-01", "2026-11-01T00:00:00"),
        ("2026-11-01T12:30:00Z", "2026-11-01T12:30:00+00:00"),
        ("2026-11-21T07:16:41.981Z", "2026-11-21T07:16:41.981000+00:00"),
        ("1795245401981", 1795245401981),
    ],
)
def test_a_time_may_have_the_form_that_inspect_shows(text: str, value: object) -> None:
    found = parse(["iceberg", "scan", "t", "--as-of", text]).as_of
    assert (found if isinstance(found, int) else found.isoformat()) == value


# -- properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["s3.secret-access-key=abcdef", "s3.session-token=abcdef", "adls.account-key=abcdef", "gcs.oauth2.token=abcdef"],
)
def test_a_secret_among_the_properties_is_refused_and_not_repeated(run: Run, work: Path, text: str) -> None:
    result = run("iceberg", "scan", "t.metadata.json", "--property", text)
    assert result.code == 2
    name = text.partition("=")[0]
    assert f"say {name}=env:NAME" in result.err
    assert "abcdef" not in result.err


def test_properties_reach_the_file_io(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ags1.cli.iceberg.opening import properties_of

    monkeypatch.setenv("THE_SECRET", "abc=def")
    options = parse(
        [
            "iceberg",
            "scan",
            "t",
            "--property",
            "s3.secret-access-key=env:THE_SECRET",
            "--property",
            "s3.access-key-id=me",
        ]
    )
    assert properties_of(options) == {"s3.secret-access-key": "abc=def", "s3.access-key-id": "me"}
    with pytest.raises(KeyAccessError, match="the environment variable NOBODY_HAS_IT is not set"):
        properties_of(parse(["iceberg", "scan", "t", "--property", "s3.session-token=env:NOBODY_HAS_IT"]))


@pytest.mark.parametrize("text", ["nothing", "=x", "ags1.kms=local:x"])
def test_other_properties_are_refused(run: Run, work: Path, text: str) -> None:
    assert run("iceberg", "scan", "t.metadata.json", "--property", text).code == 2


@pytest.mark.parametrize("more", [(), ("--catalog", "lake")], ids=["metadata file", "catalog"])
def test_a_property_that_would_have_no_effect_is_refused_and_the_right_name_said(
    run: Run, work: Path, more: tuple[str, ...]
) -> None:
    result = run("iceberg", "prune", "db.t", "--property", "s3.endpont=http://127.0.0.1", *more)
    assert result.code == 2
    assert "'s3.endpont' would have no effect" in result.err
    assert "such as 's3.endpoint'" in result.err


def test_a_property_that_no_catalog_has_is_refused_before_any_is_loaded(run: Run, work: Path) -> None:
    result = run(
        "iceberg", "prune", "db.t", "--catalog", "lake", "--property", "type=sql", "--property", "urii=sqlite:"
    )
    assert result.code == 2
    assert "'urii' would have no effect" in result.err
    assert "such as 'uri'" in result.err


# -- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "advice"),
    [
        ("trusted", "--length-policy metadata-hint, or --length-policy file"),
        ("metadata-hint", "only --length-policy file"),
    ],
)
def test_a_file_without_a_trusted_length_leads_to_the_option(work: Path, policy: str, advice: str) -> None:
    known = KnownFile(str(work / "plain"), "manifest", "avro", KeyMetadata(Key(KEY)), None)
    before = spell_by(option_of)
    try:
        with pytest.raises(FormatError, match=advice):
            EncryptedFileIO({"ags1.length-policy": policy}).new_input(known.path).plaintext(known)
    finally:
        spell_by(before)


def test_lengths_that_nothing_vouches_for_are_warned_of_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_lines():
        for number in range(30):
            for _ in range(2):
                warnings.warn(f"file {number}: opened without a trusted length", UntrustedLengthWarning, stacklevel=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ags1: warning: file 0: opened without a trusted length"
    assert lines[-1] == "ags1: warning: 10 more files without a trusted length"
    assert len(lines) == 21


def test_a_damaged_metadata_file_is_told_without_a_traceback(run: Run, work: Path) -> None:
    Path("00001-a.metadata.json").write_text('{"snapshots": 7}')
    for action in ("inspect", "files", "audit", "verify", "prune"):
        result = run("iceberg", action, "00001-a.metadata.json")
        assert result.code == 1
        assert len(result.err.splitlines()) == 1


def test_each_action_names_the_extra_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    actions = ("inspect", "files", "scan", "audit", "verify", "rewrap --new-key-id a", "prune", "decrypt", "expire")
    for package in ("pyiceberg", "pyarrow", "fastavro", "pyroaring"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            for action in actions:
                assert main(["iceberg", *action.split(), "t"]) != 0
                said = capsys.readouterr().err
                assert f"Iceberg tables need {package}: pip install 'ags1[iceberg]'" in said, action
