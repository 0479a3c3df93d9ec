"""``ags1 iceberg``: its arguments, which metadata file follows another, and what stays off the command line.

Real tables are in tests/iceberg_tables/test_cli.py.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyiceberg")

from ags1.cli._iceberg_metadata import Successor
from ags1.cli._iceberg_open import _newest, in_options, version_of, warnings_as_lines
from ags1.cli._iceberg_parser import _parser, parse
from ags1.cli._iceberg_show import Node, _draw_richly, _lines
from ags1.errors import FormatError, KeyAccessError
from ags1.iceberg import EncryptionKeys
from ags1.iceberg._file_keys import KnownFile
from ags1.iceberg.file_io import EncryptedFileIO, UntrustedLengthWarning
from ags1.keys import Key, KeyMetadata
from tests.checks import KEY
from tests.cli.conftest import Run

ACTIONS = ("inspect", "files", "scan", "audit", "verify", "cat", "rewrap", "prune")
UNKNOWN = '"of-version-9" : {"a":[ 1.50, 1E400 ],  "b" : "\\u00e9"}'
OLD = (
    '{ "format-version" : 3,\n  "last-updated-ms":5000, "properties" : {"owner":"me"}, '
    + UNKNOWN
    + ', "snapshots":[], "encryption-keys":[], "metadata-log" : []\n}'
)


def made(text: str | bytes, name: str = "00009-a.metadata.json", *, now: float = 9.0) -> Successor:
    """What follows a metadata file with this content."""
    data = text.encode() if isinstance(text, str) else text
    Path(name).write_bytes(data)
    return Successor(name, EncryptedFileIO(), clock=lambda: now)


# -- the arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ACTIONS)
def test_each_action_has_help_that_names_every_option_and_fits_a_terminal(run: Run, work: Path, action: str) -> None:
    result = run("iceberg", action, "--help")
    assert result.code == 0
    assert result.out.startswith(f"usage: ags1 iceberg {action} TABLE")
    assert max(map(len, result.out.splitlines())) <= 80
    assert run("iceberg", "help", action).out == result.out
    choices = next(each.choices for each in _parser()._actions if each.dest == "action")
    assert isinstance(choices, dict)
    assert set(choices) == set(ACTIONS)
    for option in (name for each in choices[action]._actions for name in each.option_strings):
        assert option in result.out
    assert any(line.startswith(f"  {action} ") for line in run("iceberg", "--help").out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "required: ACTION"),
        ("nonsense t", "invalid choice"),
        ("scan", "required: TABLE"),
        ("scan a b", "too many arguments (see `ags1 iceberg scan --help`)"),
        ("scan a --frob", "unknown option --frob (see `ags1 iceberg scan --help`)"),
        ("scan a --key x", "there is no --key: a table's keys come from its KMS, --kms URL"),
        ("scan a --snapshot 1 --as-of 2020-01-01", "not allowed with argument --snapshot"),
        ("scan a --limit -1", "argument --limit"),
        ("scan a --format xml", "invalid choice"),
        ("files a --all --snapshot 1", "not allowed with"),
        ("cat a", "required: FILE"),
        ("rewrap a", "required: --new-key-id"),
        ("verify a --threads 0", "is not a number of 1 or more"),
        ("scan a --length-policy none", "invalid choice"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, work: Path, arguments: str, message: str) -> None:
    result = run("iceberg", *arguments.split())
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert len(result.err.splitlines()) == 1


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
    found = parse(["scan", "t", "--as-of", text]).as_of
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
    from ags1.cli._iceberg_open import properties_of

    monkeypatch.setenv("THE_SECRET", "abc=def")
    options = parse(
        ["scan", "t", "--property", "s3.secret-access-key=env:THE_SECRET", "--property", "s3.access-key-id=me"]
    )
    assert properties_of(options) == {"s3.secret-access-key": "abc=def", "s3.access-key-id": "me"}
    with pytest.raises(KeyAccessError, match="the environment variable NOBODY_HAS_IT is not set"):
        properties_of(parse(["scan", "t", "--property", "s3.session-token=env:NOBODY_HAS_IT"]))


@pytest.mark.parametrize("text", ["nothing", "=x", "ags1.kms=local:x"])
def test_other_properties_are_refused(run: Run, work: Path, text: str) -> None:
    assert run("iceberg", "scan", "t.metadata.json", "--property", text).code == 2


# -- words ---------------------------------------------------------------------------------------------------------


def test_messages_of_the_library_name_options() -> None:
    for said, option in (
        ("snapshot 1 is encrypted with key 'a': give a KMS", "--kms URL"),
        ("not encrypted; open the table with allow_plaintext=True to read it", "--allow-plaintext"),
        ("x: only the length policy 'file' opens it", "--length-policy file"),
    ):
        with pytest.raises(FormatError, match=option), in_options():
            raise FormatError(said)
    with pytest.raises(FormatError, match=r"^something else$"), in_options():
        raise FormatError("something else")


@pytest.mark.parametrize(
    ("policy", "advice"),
    [("trusted", "say --length-policy metadata-hint, or file"), ("metadata-hint", "only --length-policy file")],
)
def test_a_file_without_a_trusted_length_leads_to_the_option(work: Path, policy: str, advice: str) -> None:
    known = KnownFile(str(work / "plain"), "manifest", "avro", KeyMetadata(Key(KEY)), None, True)
    with pytest.raises(FormatError, match=advice), in_options():
        EncryptedFileIO({"ags1.length-policy": policy}).new_input(known.path).plaintext(known)


def test_lengths_that_nothing_vouches_for_are_warned_of_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings_as_lines():
        for number in range(30):
            for _ in range(2):
                warnings.warn(f"file {number}: opened without a trusted length", UntrustedLengthWarning, stacklevel=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "ags1: warning: file 0: opened without a trusted length"
    assert lines[-1] == "ags1: warning: 10 more files without a trusted length"
    assert len(lines) == 21


def test_a_tree_is_drawn_with_branches_and_without_control_characters() -> None:
    root = Node("t")
    first = root.add("a\x1b[31m")
    first.add("b")
    root.add("c")
    assert list(_lines(root, ("|-- ", "`-- ", "|   "))) == ["t", "|-- a\\x1b[31m", "|   `-- b", "`-- c"]


# -- the metadata file that follows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("00011-a23ed31f.metadata.json", 11),
        ("s3://b/t/metadata/00007-x.gz.metadata.json", 7),
        ("v12.metadata.json", 12),
        ("v12.gz.metadata.json", 12),
        ("metadata.json", None),
        ("00011-x.json", None),
        ("snap-11.avro", None),
    ],
)
def test_the_number_of_a_metadata_file_is_in_its_name(name: str, version: int | None) -> None:
    assert version_of(name) == version


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("00009-a.metadata.json", r"00010-[0-9a-f-]{36}\.metadata\.json"),
        ("99999-a.gz.metadata.json", r"100000-[0-9a-f-]{36}\.gz\.metadata\.json"),
        ("v9.metadata.json", r"v10\.metadata\.json"),
    ],
)
def test_the_next_file_has_the_next_number(work: Path, name: str, following: str) -> None:
    assert re.fullmatch(following, Path(made(OLD, name).new).name)


def test_a_file_without_a_number_has_no_next_one(work: Path) -> None:
    with pytest.raises(FormatError, match="has no number"):
        made(OLD, "final.metadata.json")


def test_only_the_text_of_what_changes_is_replaced(work: Path) -> None:
    successor = made(OLD)
    successor.set_keys(EncryptionKeys())
    successor.set_property("encryption.key-id", "new")
    successor.write()
    text = Path(successor.new).read_text()
    log = json.dumps(
        [{"timestamp-ms": 5000, "metadata-file": str(work / "00009-a.metadata.json")}], separators=(",", ":")
    )
    expected = OLD.replace('"last-updated-ms":5000', '"last-updated-ms":9000')
    expected = expected.replace('{"owner"', '{"encryption.key-id":"new","owner"').replace(
        '"metadata-log" : []', f'"metadata-log" : {log}'
    )
    assert text == expected
    assert UNKNOWN in text


def test_a_property_is_replaced_where_it_stands(work: Path) -> None:
    for before in ('{"a":"1", "k": "old" ,"b":"2"}', '{"k":"old"}', "{}", "null"):
        successor = made(OLD.replace('{"owner":"me"}', before))
        successor.set_property("k", 'n"ew')
        successor.write()
        found = json.loads(Path(successor.new).read_text().replace("1E400", "1"))["properties"]
        assert found["k"] == 'n"ew'
        assert len(found) == (3 if '"a"' in before else 1)


def test_compressed_metadata_stays_compressed(work: Path) -> None:
    successor = made(gzip.compress(OLD.encode()), "00001-a.gz.metadata.json")
    successor.write()
    assert b"9000" in gzip.decompress(Path(successor.new).read_bytes())


def test_the_history_is_as_long_as_the_table_wants_it(work: Path) -> None:
    old: dict[str, Any] = {
        "last-updated-ms": 5,
        "properties": {"write.metadata.previous-versions-max": "3"},
        "metadata-log": [{"timestamp-ms": number, "metadata-file": f"s3://b/{number}"} for number in range(4)],
    }
    successor = made(json.dumps(old))
    successor.write()
    log = json.loads(Path(successor.new).read_text())["metadata-log"]
    assert [each["timestamp-ms"] for each in log] == [2, 3, 5]
    del old["metadata-log"]
    successor = made(json.dumps(old))
    successor.write()
    assert [each["timestamp-ms"] for each in json.loads(Path(successor.new).read_text())["metadata-log"]] == [5]


def test_time_does_not_run_backwards(work: Path) -> None:
    successor = made(OLD, now=1.0)
    successor.write()
    assert '"last-updated-ms":5000' in Path(successor.new).read_text()


def test_locations_are_spelled_as_the_table_spells_them(work: Path) -> None:
    Path("t/metadata").mkdir(parents=True)
    document = {"last-updated-ms": 5, "location": f"file:{work}/t"}
    successor = made(json.dumps(document), "t/metadata/00001-a.metadata.json")
    assert successor.old == f"file:{work}/t/metadata/00001-a.metadata.json"
    successor.write()
    assert successor.new.startswith(f"file:{work}/t/metadata/00002-")
    assert len(os.listdir("t/metadata")) == 2


def test_a_file_that_is_there_is_never_replaced(work: Path) -> None:
    successor = made(OLD, "v9.metadata.json")
    Path("v10.metadata.json").write_text("another's commit")
    with pytest.raises(FileExistsError, match="it exists and was not replaced"):
        successor.write()
    assert Path("v10.metadata.json").read_text() == "another's commit"
    assert not [name for name in os.listdir() if name.endswith("tmp")]


def test_the_new_file_is_as_readable_as_the_old(work: Path) -> None:
    successor = made(OLD)
    Path("00009-a.metadata.json").chmod(0o640)
    successor.write()
    assert Path(successor.new).stat().st_mode & 0o777 == 0o640


def test_a_store_gets_the_new_file_beside_the_old(work: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    location = "memory://lake/t/metadata/00003-a.metadata.json"
    store = fsspec.filesystem("memory")
    store.pipe(location, OLD.encode())
    try:
        file_io = EncryptedFileIO({"py-io-impl": "ags1.iceberg.EncryptedFileIO"})
        file_io._inner["memory"] = _MemoryStore(store)
        successor = Successor(location, file_io)
        successor.write()
        assert successor.new.startswith("memory://lake/t/metadata/00004-")
        assert store.cat(successor.new).startswith(b'{ "format-version" : 3')
    finally:
        store.rm("memory://lake", recursive=True)


def test_a_directory_is_listed_through_fsspec_where_pyarrow_has_no_store(run: Run, work: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    for name in ("00003-a", "00020-b", "00007-c"):
        store.pipe(f"memory://lake/t/metadata/{name}.metadata.json", b"{}")
    try:
        file_io = EncryptedFileIO()
        file_io._inner["memory"] = _MemoryStore(store)
        assert _newest("memory://lake/t/metadata", file_io) == "memory://lake/t/metadata/00020-b.metadata.json"
        assert _newest("memory://lake/t", file_io) is None
        assert _newest("memory://lake/nothing", file_io) is None
    finally:
        store.rm("memory://lake", recursive=True)


class _MemoryStore:
    """As much of a FileIO as is used, over a store in memory."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def new_input(self, location: str) -> Any:
        return _MemoryFile(self._store, location)

    new_output = new_input

    def get_fs(self, scheme: str) -> Any:
        assert scheme == "memory"
        return self._store


class _MemoryFile:
    def __init__(self, store: Any, location: str) -> None:
        self._store, self._location = store, location

    def open(self) -> Any:
        return self._store.open(self._location, "rb")

    def create(self, overwrite: bool) -> Any:
        assert not overwrite
        return self._store.open(self._location, "wb")


def test_metadata_without_a_time_is_refused(work: Path) -> None:
    for value in ('"5"', "null", "true"):
        with pytest.raises(FormatError, match="last-updated-ms must be a whole number"):
            made(OLD.replace("5000", value)).write()


def test_a_damaged_metadata_file_is_told_without_a_traceback(run: Run, work: Path) -> None:
    Path("00001-a.metadata.json").write_text('{"snapshots": 7}')
    for action in ("inspect", "files", "audit", "verify", "prune"):
        result = run("iceberg", action, "00001-a.metadata.json")
        assert result.code == 1
        assert len(result.err.splitlines()) == 1


def test_a_terminal_gets_the_same_tree_from_rich(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    root = Node("t", "head")
    root.add("[bold]a[/bold]\x1b[31m", "bad").add("b")
    assert _draw_richly(root)
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "t",
        "└── [bold]a[/bold]\\x1b[31m",
        "    └── b",
    ]
