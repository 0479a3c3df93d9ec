"""``ags1 kms``: a local keystore from a shell, and keys wrapped and unwrapped as files."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ags1 import dataset, kms
from ags1.cli.kms.clients import client_of
from ags1.errors import KeyAccessError
from ags1.kms import LocalKms, MemoryKms, keystore
from ags1.kms.services import SERVICES
from tests.checks import KEY, KEYS
from tests.cli.conftest import Run, files_below

PASSWORD = "correct horse battery staple"
URL = "local:keys.json"


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keystore, "SCRYPT_N", 1 << 10)
    for name in ("AGS1_KMS", "AGS1_KMS_PASSWORD", "KEYSTORE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(work: Path) -> Path:
    """A keystore with the keys `lake` and `sea`, and its password in the file `pw`."""
    (work / "pw").write_text(f"{PASSWORD}\n")
    LocalKms.create("keys.json", {"lake": KEYS[32], "sea": KEYS[16]}, password=PASSWORD).close()
    return work / "keys.json"


# -- init ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_init_makes_a_keystore_with_keys_for_its_owner_alone(run: Run, work: Path, bits: int) -> None:
    (work / "pw").write_text(PASSWORD)
    result = run(
        *("kms", "init", "--kms", URL, "--password-file", "pw"),
        *("--key-id", "lake", "--key-id", "sea", "--bits", str(bits)),
    )
    assert (result.code, result.err) == (0, "")
    assert result.out == (
        "the keystore keys.json was made, readable by you alone; keep a copy of it and of what opens it\n"
        f"a fresh {bits}-bit key 'lake' was added to keys.json\na fresh {bits}-bit key 'sea' was added to keys.json\n"
    )
    assert stat.S_IMODE((work / "keys.json").stat().st_mode) == 0o600
    client = LocalKms("keys.json", password=PASSWORD)
    assert {name: key.bits for name, (key,) in client._load().keys.items()} == {"lake": bits, "sea": bits}


def test_init_says_nothing_if_it_is_told_to(run: Run, store: Path) -> None:
    made = run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "silent", "-q")
    assert (made.code, made.out, made.err) == (0, "", "")
    assert "silent" in run("kms", "list", "--kms", URL, "--password-file", "pw", "-q").out


def test_init_without_a_key_makes_an_empty_keystore(run: Run, work: Path) -> None:
    (work / "pw").write_text(PASSWORD)
    assert run("kms", "init", "--kms", URL, "--password-file", "pw").code == 0
    assert LocalKms("keys.json", password=PASSWORD).list_keys() == []


def test_init_adds_to_a_keystore_and_replaces_nothing(run: Run, store: Path) -> None:
    assert run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "new").code == 0
    assert LocalKms("keys.json", password=PASSWORD).list_keys() == ["lake", "new", "sea"]
    before = store.read_bytes()
    again = run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "more", "--key-id", "lake")
    assert (again.code, again.err) == (
        9,
        "ags1: keys.json: it has a key 'lake' already: what that wrapped would be lost\n",
    )
    bare = run("kms", "init", "--kms", URL, "--password-file", "pw")
    assert (bare.code, "exists and was not replaced: its keys would be lost" in bare.err) == (9, True)
    assert store.read_bytes() == before


def test_a_dry_run_of_init_changes_nothing(run: Run, store: Path) -> None:
    before = files_below(store.parent)
    result = run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "new", "--dry-run")
    assert (result.code, result.out) == (0, "a fresh 256-bit key 'new' would be added to keys.json\n")
    result = run("kms", "init", "--kms", "local:new.json", "--password-file", "pw", "--dry-run")
    assert "the keystore new.json would be made" in result.out
    assert files_below(store.parent) == before


@pytest.mark.parametrize("key_id", ["", "a\nb", "x" * 1025])
def test_init_refuses_ids_that_no_one_can_type(run: Run, store: Path, key_id: str) -> None:
    result = run("kms", "init", "--kms", "local:new.json", "--password-file", "pw", "--key-id", key_id)
    assert (result.code, "key id" in result.err) == (2, True)
    assert not (store.parent / "new.json").exists()


def test_a_key_file_protects_instead_of_a_password(run: Run, work: Path) -> None:
    assert run("kms", "init", "--kms", URL, "--key-file", "k", "--key-id", "lake").code == 0
    assert run("kms", "list", "--kms", URL, "--key-file", "k").out == "lake\n"
    assert "it is protected by a key file" in run("kms", "list", "--kms", URL).err


# -- keys that go ----------------------------------------------------------------------------------------------


@pytest.fixture
def tenants(store: Path) -> Path:
    """A dataset under `lake`, and one of a tenant under `sea`, which was rewrapped in its second version."""
    for place, text in (("common", "1\n"), ("own", "2\n")):
        (store.parent / "raw" / place).mkdir(parents=True)
        (store.parent / "raw" / place / f"{place}.csv").write_text(text)
    with kms.load(URL, password=PASSWORD) as client:
        dataset.encrypt("raw/common", "common", client, "lake").close()
        with dataset.encrypt("raw/own", "vault", client, "lake") as vault:
            vault.rewrap("sea")
    return store.parent / "vault"


def test_a_tenants_key_is_destroyed_after_what_would_be_lost_was_said(
    run: Run, tenants: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = ("kms", "remove", "vault", "--kms", URL, "--password-file", "pw", "--key-id", "sea")
    before = store.read_bytes()
    said = "vault, version 2: 1 file can't be read without it\n"
    planned = run(*remove, "--dry-run")
    assert (planned.code, planned.out) == (2, said)
    shown = run(*remove, "--dry-run", "--json").records
    assert shown == [{"dataset": "vault", "version": 2, "key_id": "sea", "files": 1}]
    for more, plan in (((), said), (("--json",), f"{json.dumps(shown[0])}\n")):
        refused = run(*remove, *more)
        assert (refused.code, refused.out, "Nobody can be asked here: say --yes" in refused.err) == (2, plan, True)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer in ("n\n", "", "no\n"):
        monkeypatch.setattr("sys.stdin.readline", lambda answer=answer: answer, raising=False)
        refused = run(*remove)
        assert (refused.code, refused.out) == (0, said)
        question = "Destroy the key 'sea' in keys.json? Nobody can read any more what only that opens. [y/N] "
        assert refused.err == f"{question}ags1: nothing was changed\n"
    assert store.read_bytes() == before
    monkeypatch.setattr("sys.stdin.readline", lambda: "y\n", raising=False)
    assert run(*remove).out == f"{said}1 version of 'sea' removed from keys.json; destroy its copies too\n"
    with kms.load(URL, password=PASSWORD) as client, dataset.open("common", client) as common:
        assert client.list_keys() == ["lake"]
        assert common.open("common.csv").read() == b"1\n"
        with pytest.raises(KeyAccessError, match="there is no key with this id"):
            dataset.open("vault", client)


def test_a_version_behind_a_lost_one_needs_its_key_too(run: Run, tenants: Path, store: Path) -> None:
    with kms.load(URL, password=PASSWORD) as client, dataset.open("vault", client) as vault:
        vault.expire(keep=100, older_than=None, grace=0)
    Path("vault/_ags1/v-2.json").unlink()
    assert run("dataset", "cat", "vault", "own.csv", "--version", "1", "--kms", URL, "--password-file", "pw").code == 0
    looked = run("kms", "remove", "vault", "--kms", URL, "--password-file", "pw", "--key-id", "lake", "--dry-run")
    assert (looked.code, looked.out) == (2, "vault, version 1: 1 file can't be read without it\n")


def test_removing_a_key_loses_the_versions_under_it_and_an_unused_key_none(
    run: Run, tenants: Path, store: Path
) -> None:
    remove = ("kms", "remove", "vault", "--kms", URL, "--password-file", "pw", "--key-id")
    assert run(*remove, "lake", "--dry-run").out == ("vault, version 1: 1 file can't be read without it\n")
    assert run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "unused").code == 0
    unnamed = run("kms", "remove", *remove[3:], "unused", "--dry-run")
    assert (unnamed.code, "no dataset or table was named, so nothing was looked at" in unnamed.err) == (0, True)
    result = run(*remove, "unused", "--yes")
    assert result.code == 0
    assert result.out == (
        "of vault, nothing needs the key 'unused' in keys.json\n"
        "1 version of 'unused' removed from keys.json; destroy its copies too\n"
    )
    before = store.read_bytes()
    for arguments, code in ((("moon",), 3), (("sea", "--new-key-file", "x"), 2)):
        assert run(*remove, *arguments, "--yes").code == code
    missing = run("kms", "remove", "nowhere", "--kms", URL, "--password-file", "pw", "--key-id", "sea", "--yes")
    assert missing.code != 0, "a dataset that cannot be looked at must stop the removal"
    assert store.read_bytes() == before


def test_a_table_is_looked_at_with_its_older_metadata_files(run: Run, store: Path) -> None:
    pytest.importorskip("pyiceberg")
    of_store = ("--kms", URL, "--password-file", "pw")
    Path("rows.csv").write_text("id\n1\n")
    assert run("iceberg", "create", "table", *of_store, "--key-id", "lake", "--schema", "rows.csv").code == 0
    assert run("iceberg", "append", "table", "rows.csv", *of_store).code == 0
    remove = ("kms", "remove", "table", *of_store, "--dry-run", "--key-id")
    assert run(*remove, "sea").out == "of table, nothing needs the key 'sea' in keys.json\n"
    lost = run(*remove, "lake", "--json").records
    assert [(each["is_newest"], each["snapshots"], each["table"]) for each in lost] == [(True, 1, "table")]
    assert run("iceberg", "rekey", "table", *of_store, "--new-key-id", "sea", "--expire", "--yes").code == 0
    # What an audit says of it: the expired snapshots are gone, although older metadata files name them.
    assert "may be disabled" in run("iceberg", "audit", "table", *of_store).out
    kept = run(*remove, "lake")
    assert (kept.code, kept.out) == (0, "of table, nothing needs the key 'lake' in keys.json\n")
    # A key that was rotated is still there.
    assert run("kms", "rotate", *of_store, "--key-id", "sea").code == 0
    assert "its newest metadata file: 1 snapshot" in run(*remove, "sea", "--old-versions").out
    assert run("iceberg", "rewrap", "table", *of_store, "--new-key-id", "sea").code == 0
    assert "its newest" not in run(*remove, "sea", "--old-versions").out
    # Two commits at once to a catalog leave two files of a number, and the catalog names one of them.
    last = max(Path("table/metadata").glob("*.metadata.json"))
    other = last.with_name(f"{last.name[:5]}-{'0' * 8}.metadata.json")
    shutil.copy(last, other)
    assert run(*remove, "sea").out.count("its newest metadata file: 1 snapshot") == 2
    other.unlink()
    next(Path("table/metadata").glob("*.json")).write_text("{")
    damaged = run("kms", "remove", "table", *of_store, "--key-id", "lake", "--yes")
    assert (damaged.code, "lake" in run("kms", "list", *of_store).out) == (1, True), damaged.err


def test_a_wrong_key_id_adds_none_of_those_before_it(run: Run, store: Path) -> None:
    before = store.read_bytes()
    refused = run("kms", "init", "--kms", URL, "--password-file", "pw", "--key-id", "new1", "--key-id", "")
    assert (refused.code, store.read_bytes() == before) == (2, True)


def test_commands_in_messages_can_be_pasted(run: Run, store: Path) -> None:
    """The threat: a key id or a path runs a command of its own in the shell of whoever pastes a message."""
    evil = "a; touch owned"
    of_store = ("--kms", URL, "--password-file", "pw", "--key-id", evil)
    assert run("kms", "init", *of_store).code == 0
    said = run("kms", "rotate", *of_store).out
    assert f"--key-id {shlex.quote(evil)}`" in said
    missing = run("encrypt", "plain", "-", "--key-file", "no; key", "--key-metadata-out", "plain.metadata")
    assert "`ags1 keygen 'no; key'` makes one" in missing.err


def test_old_versions_of_a_rotated_key_go_when_nothing_needs_them(run: Run, tenants: Path, store: Path) -> None:
    of_store = ("--kms", URL, "--password-file", "pw", "--key-id", "sea")
    before = store.read_bytes()
    assert run("kms", "rotate", *of_store, "--dry-run").out == "'sea' in keys.json would get version 2\n"
    assert store.read_bytes() == before
    rotated = run("kms", "rotate", *of_store, "--bits", "128")
    assert (rotated.code, "'sea' in keys.json has version 2, a fresh 128-bit key" in rotated.out) == (0, True)
    assert run("kms", "list", *of_store[:4], "--json").records[1] == {"key_id": "sea", "versions": 2}
    old = ("kms", "remove", "vault", *of_store, "--old-versions")
    assert "vault, version 2: 1 file can't be read without it" in run(*old, "--dry-run").out
    with kms.load(URL, password=PASSWORD) as client, dataset.open("vault", client) as vault:
        vault.rewrap("sea")
        vault.expire(keep=1, older_than=None)
    assert run(*old, "--yes").out == (
        "of vault, nothing needs the old versions of 'sea' in keys.json\n"
        "1 version of 'sea' removed from keys.json; destroy its copies too\n"
    )
    with kms.load(URL, password=PASSWORD) as client, dataset.open("vault", client) as vault:
        assert vault.open("own.csv").read() == b"2\n"
    assert run("kms", "rotate", *of_store[:-1], "moon").code == 3


def test_the_password_of_a_keystore_is_changed(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = ("kms", "password", "--kms", URL)
    (store.parent / "pw2").write_text("another\n")
    result = run(*change, "--password-file", "pw", "--new-password-file", "pw2")
    assert (result.code, result.out.startswith("keys.json is opened by the new secret")) == (0, True)
    assert run("kms", "list", "--kms", URL, "--password-file", "pw").code == 3
    assert run("kms", "list", "--kms", URL, "--password-file", "pw2").out == "lake\nsea\n"
    assert run("keygen", "new.key").code == 0
    assert run(*change, "--password-file", "pw2", "--new-key-file", "new.key").code == 0
    assert run("kms", "list", "--kms", URL, "--key-file", "new.key").out == "lake\nsea\n"
    assert (
        "a new password is needed: --new-password-file FILE or --new-key-file FILE"
        in run(*change, "--key-file", "new.key").err
    )
    asked = answers(monkeypatch, PASSWORD, PASSWORD)
    assert run(*change, "--key-file", "new.key").code == 0
    assert asked == ["New password of keys.json: ", "The same again: "]
    assert run("kms", "list", "--kms", URL, "--password-file", "pw").out == "lake\nsea\n"


# -- list ----------------------------------------------------------------------------------------------------


def test_list_shows_the_key_ids(run: Run, store: Path) -> None:
    result = run("kms", "list", "--kms", URL, "--password-file", "pw")
    assert (result.code, result.out, result.err) == (0, "lake\nsea\n", "")
    listed = run("kms", "list", "--kms", URL, "--password-file", "pw", "--json")
    assert listed.records == [{"key_id": "lake", "versions": 1}, {"key_id": "sea", "versions": 1}]


def test_a_wrong_password_is_told_from_a_damaged_file(run: Run, store: Path) -> None:
    (store.parent / "pw").write_text("wrong")
    wrong = run("kms", "list", "--kms", URL, "--password-file", "pw")
    assert (wrong.code, wrong.err) == (
        3,
        "ags1: LocalKms could not list its keys: the keystore keys.json cannot be opened: the password is wrong\n",
    )
    content = json.loads(store.read_text())
    content["keys"]["lake"] = content["keys"]["sea"]
    store.write_text(json.dumps(content))
    assert "it is damaged: restore it from your backup" in run("kms", "list", "--kms", URL, "--password-file", "pw").err


def test_the_variable_stands_for_the_option(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS", URL)
    assert run("kms", "list", "--password-file", "pw").out == "lake\nsea\n"
    assert run("kms", "wrap", "k", "w", "--key-id", "lake", "--password-file", "pw").code == 0
    assert run("kms", "unwrap", "w", "back", "--key-id", "lake", "--password-file", "pw").code == 0
    monkeypatch.delenv("AGS1_KMS")
    assert "--kms local:PATH, or the variable AGS1_KMS" in run("kms", "list").err
    assert "--kms URL or the variable AGS1_KMS" in run("kms", "wrap", "k", "w2", "--key-id", "lake").err


def test_messages_name_options_and_not_arguments_of_python(run: Run, store: Path, work: Path) -> None:
    said = run("kms", "list", "--kms", URL).err
    assert "give --password-file, or the variable AGS1_KMS_PASSWORD" in said
    made = run("kms", "init", "--kms", "local:other.json", "--key-id", "x").err
    assert "it needs a password, as --password-file or in AGS1_KMS_PASSWORD, or a --key-file" in made
    LocalKms.create("by-key.json", key_file="k").close()
    keyed = run("kms", "list", "--kms", "local:by-key.json").err
    assert "it is protected by a key file: give it as --key-file" in keyed


# -- wrap and unwrap -----------------------------------------------------------------------------------------


def test_a_key_is_wrapped_to_a_file_and_back(run: Run, store: Path) -> None:
    secret = ("--kms", URL, "--password-file", "pw", "--key-id", "lake")
    wrapped = run("kms", "wrap", "k", "k.wrapped", *secret)
    assert (wrapped.code, wrapped.out) == (0, "wrapped k to k.wrapped (60 bytes, readable by you alone)\n")
    data = (store.parent / "k.wrapped").read_bytes()
    assert MemoryKms({"lake": KEYS[32]}).unwrap_key(data, "lake") == KEY
    unwrapped = run("kms", "unwrap", "k.wrapped", "k.again", *secret)
    assert (unwrapped.code, unwrapped.out) == (0, "unwrapped k.wrapped to k.again (32 bytes, readable by you alone)\n")
    assert (store.parent / "k.again").read_bytes() == KEY
    for name in ("k.wrapped", "k.again"):
        assert stat.S_IMODE((store.parent / name).stat().st_mode) == 0o600


def test_an_existing_target_is_replaced_only_on_demand(run: Run, store: Path) -> None:
    secret = ("--kms", URL, "--password-file", "pw", "--key-id", "lake")
    result = run("kms", "wrap", "k", "plain", *secret)
    assert (result.code, result.err) == (9, "ags1: plain: it exists and was not replaced (--force replaces it)\n")
    assert run("kms", "wrap", "k", "plain", *secret, "--force").code == 0
    assert len((store.parent / "plain").read_bytes()) == 60


def test_wrap_takes_standard_input_and_output(run: Run, store: Path) -> None:
    secret = ("--kms", URL, "--password-file", "pw", "--key-id", "lake")
    wrapped = run("kms", "wrap", "-", "-", *secret, stdin=b"sixteen byte key").raw
    assert run("kms", "unwrap", "-", "-", *secret, stdin=wrapped).raw == b"sixteen byte key"


def test_a_wrong_key_and_a_damaged_file_leave_no_target(run: Run, store: Path) -> None:
    secret = ("--kms", URL, "--password-file", "pw")
    run("kms", "wrap", "k", "w", *secret, "--key-id", "lake")
    wrong = run("kms", "unwrap", "w", "out", *secret, "--key-id", "sea")
    assert (wrong.code, "'sea': it was wrapped with another key, or it is damaged" in wrong.err) == (3, True)
    unknown = run("kms", "unwrap", "w", "out", *secret, "--key-id", "ocean")
    assert "there is no key with this id; the ids are lake, sea" in unknown.err
    assert not (store.parent / "out").exists()


@pytest.mark.parametrize("size", [0, 4097])
def test_what_is_no_key_is_not_wrapped(run: Run, store: Path, size: int) -> None:
    (store.parent / "file").write_bytes(bytes(size))
    result = run("kms", "wrap", "file", "out", "--kms", URL, "--password-file", "pw", "--key-id", "lake")
    assert (result.code, "keys are wrapped, not files (`ags1 encrypt` is for those)" in result.err) == (3, True)


def test_a_missing_source_is_an_io_error(run: Run, store: Path) -> None:
    result = run("kms", "wrap", "missing", "out", "--kms", URL, "--password-file", "pw", "--key-id", "lake")
    assert (result.code, result.err) == (4, "ags1: missing: No such file or directory\n")


class OwnKms(MemoryKms):
    """A client that a user wrote."""

    def __init__(self) -> None:
        super().__init__({"lake": KEYS[24]})


def test_help_lists_every_service(run: Run) -> None:
    shown = run("kms", "--help").out
    for each in SERVICES.values():
        assert re.search(rf"^  {re.escape(each.form)} +{re.escape(each.what)}$", shown, re.MULTILINE)


def test_help_lists_the_options_that_each_url_takes(run: Run) -> None:
    shown = run("kms", "--help").out.partition("options of a URL")[2]
    lines = {line.split()[0]: set(re.findall(r"\w+", line)) for line in shown.splitlines() if line.startswith("  ")}
    for scheme, form in {**{name: each.form for name, each in SERVICES.items()}, "local": "local:k"}.items():
        with pytest.raises(ValueError, match="has no option 'wrong'; it has ") as refused:
            kms.load(f"{form.partition('?')[0]}?wrong=1")
        taken = set(str(refused.value).partition("; it has ")[2].split(", "))
        assert taken == (lines[scheme] - {scheme}) | {"attempts", "cache_seconds", "check"} | (
            {"timeout"} if scheme != "local" else set()
        )
    assert lines["any"] >= {"attempts", "cache_seconds", "check", "timeout"}


def test_any_service_that_has_a_url_wraps(run: Run, work: Path) -> None:
    result = run("kms", "wrap", "k", "w", "--kms", "module:tests.cli.test_kms.OwnKms", "--key-id", "lake")
    assert result.code == 0
    assert MemoryKms({"lake": KEYS[24]}).unwrap_key((work / "w").read_bytes(), "lake") == KEY


# -- passwords -----------------------------------------------------------------------------------------------


def test_the_password_may_stand_in_the_environment(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS_PASSWORD", PASSWORD)
    assert run("kms", "list", "--kms", URL).out == "lake\nsea\n"


def test_what_is_missing_to_make_a_keystore_is_said_with_its_place(run: Run, work: Path) -> None:
    init = ("kms", "init", "--key-id", "lake", "--kms")
    for more in (("local:new.json", "--key-file", "none.key"), ("local:new.json?key_file=none.key",)):
        missing = run(*init, *more)
        assert missing.code == 3
        assert "there is no key file none.key: `ags1 keygen none.key` makes one" in missing.err
    nowhere = run(*init, "local:none/new.json", "--key-file", "k")
    assert (nowhere.code, "none/new.json: there is no directory none: correct the name, or make it" in nowhere.err) == (
        4,
        True,
    )
    absent = run("kms", "list", "--kms", "local:new.json", "--key-file", "k")
    assert absent.code == 3
    said = f"there is no keystore new.json, which is {work}/new.json from this directory"
    assert absent.err.endswith(f"{said}: look for the one that has the keys; a new one would have others\n")
    assert not (work / "new.json").exists()


def test_without_a_terminal_nothing_is_asked(run: Run, store: Path) -> None:
    result = run("kms", "list", "--kms", URL, stdin=b"")
    assert (result.code, "give --password-file, or the variable AGS1_KMS_PASSWORD" in result.err) == (
        3,
        True,
    )


def answers(monkeypatch: pytest.MonkeyPatch, *typed: str) -> list[str]:
    """A person at a terminal; the questions that were asked."""
    asked: list[str] = []
    left = iter(typed)

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return next(left)

    monkeypatch.setattr("getpass.getpass", ask)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return asked


def test_on_a_terminal_the_password_is_asked_for(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, PASSWORD)
    assert run("kms", "list", "--kms", URL).out == "lake\nsea\n"
    assert asked == ["Password of keys.json: "]


def test_a_new_password_is_asked_for_twice(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, PASSWORD, PASSWORD)
    assert run("kms", "init", "--kms", URL, "--key-id", "lake").code == 0
    assert asked == ["New password of keys.json: ", "The same again: "]
    answers(monkeypatch, PASSWORD, "another")
    result = run("kms", "init", "--kms", "local:new.json")
    assert (result.code, result.err) == (2, "ags1: these were two different passwords: nothing was made\n")
    answers(monkeypatch, "", "")
    assert "an empty password protects nothing" in run("kms", "init", "--kms", "local:new.json").err
    assert not (work / "new.json").exists()


@pytest.mark.timeout(60)
def test_a_real_terminal_does_not_show_the_password(store: Path) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "ags1.cli", "kms", "list", "--kms", URL])
    shown = b""
    try:
        with contextlib.suppress(OSError):
            while not shown.endswith(b"Password of keys.json: ") and (data := os.read(terminal, 1000)):
                shown += data
            os.write(terminal, PASSWORD.encode() + b"\n")
            while data := os.read(terminal, 1000):
                shown += data
    finally:
        os.close(terminal)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert PASSWORD.encode() not in shown
    assert shown.endswith(b"lake\r\nsea\r\n")


def test_no_output_shows_a_key_or_a_password(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS_PASSWORD", PASSWORD)
    shown = ""
    for arguments in ("list", "list --json", "init --key-id n", "wrap k w --key-id lake", "unwrap w u --key-id sea"):
        result = run("kms", *arguments.split(), "--kms", URL)
        shown += result.out + result.err
    for secret in (PASSWORD, *(key.hex() for key in KEYS.values())):
        assert secret not in shown


# -- wrong usage ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("destroy --kms local:k", "there is no such action; there are init, list, rotate, remove, password, wrap"),
        ("lst --kms local:k", "there is no such action; did you mean list? there are"),
        ("rotate --kms local:k", "the following arguments are required: --key-id"),
        ("remove --kms aws: --key-id a", "this is for local keystores"),
        ("rotate --kms local:k --key-id a --old-versions", "unknown option --old-versions"),
        ("list --kms local:k --yes", "unknown option --yes"),
        ("init --kms local:k --new-key-file p", "unknown option --new-key-file"),
        ("password --kms local:k --new-key-file p --new-password-file p", "give one of --new-password-file and"),
        ("list", "this is for local keystores (--kms local:PATH, or the variable AGS1_KMS)"),
        ("list --kms aws:", "a service's keys are made and listed with its own tools"),
        ("init --kms vault:https://v", "this is for local keystores"),
        ("list k --kms local:k", "too many arguments"),
        ("init --kms local:k --key-id a --key-id a", "a --key-id is given twice"),
        ("wrap k w --key-id a", "a KMS is needed: --kms URL or the variable AGS1_KMS, such as local:keys.json"),
        ("wrap k --kms local:k --key-id a", "the following arguments are required: TARGET"),
        ("unwrap a b c --kms local:k --key-id a", "too many arguments"),
        ("wrap k w --kms local:k", "the following arguments are required: --key-id"),
        ("wrap k w --kms oracle: --key-id a", "--kms: there is no KMS 'oracle'"),
        ("wrap k w --kms memory: --key-id a", "--kms: there is no memory: URL"),
        ("wrap k w --kms aws: --key-id a --password-file p", "--password-file and --key-file are for local: keystores"),
        ("list --kms local:k --password-file p --key-file k", "give one of --password-file and --key-file"),
        ("list --kms local: --password-file p", "a local: URL names a keystore"),
    ],
)
def test_wrong_usage_is_told_in_one_line(run: Run, work: Path, arguments: str, message: str) -> None:
    result = run("kms", *arguments.split())
    assert (result.code, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_secret_in_the_url_is_not_repeated(run: Run, work: Path) -> None:
    result = run("kms", "list", "--kms", "local:k?password=s3cr3t")
    assert (result.code, "a KMS URL must not contain a secret (password)" in result.err) == (2, True)
    assert "s3cr3t" not in result.err


def test_raw_bytes_do_not_garble_a_terminal(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    result = run("kms", "unwrap", "k", "-", "--kms", URL, "--password-file", "pw", "--key-id", "lake")
    assert (result.code, "raw bytes would garble the terminal" in result.err) == (2, True)


def test_client_of_is_for_other_commands_too(store: Path) -> None:
    options: Any = type("Options", (), {"kms": URL, "password_file": "pw", "key_file": None})
    client: Callable[..., kms.KeyManagementClient] = client_of
    with client(options) as made:
        assert isinstance(made, LocalKms)


def test_another_secret_is_added_and_removed(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS", "local:keys.json?key_file=daily.key")
    for name in ("daily.key", "safe.key"):
        assert run("keygen", name).code == 0
    assert run("kms", "init", "--key-id", "lake").code == 0
    result = run("kms", "password", "--add-secret", "--new-key-file", "safe.key")
    assert (result.code, "each of 2 secrets" in result.out + result.err) == (0, True)
    safe = ("--kms", "local:keys.json?key_file=safe.key")
    assert run("kms", "list", *safe).code == 0
    result = run("kms", "password", "--only-secret")
    assert (result.code, "1 other secret removed" in result.out + result.err) == (0, True)
    assert run("kms", "list", *safe).code == 3
    assert run("kms", "list").code == 0


def test_a_changed_secret_is_said_with_the_others_that_open_the_keystore(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGS1_KMS", "local:keys.json?key_file=a.key")
    for name in ("a.key", "b.key", "c.key", "d.key"):
        assert run("keygen", name).code == 0
    assert run("kms", "init", "--key-id", "lake").code == 0
    alone = run("kms", "password", "--new-key-file", "b.key").out
    assert alone == "keys.json is opened by the new secret from now on; older copies of it still are by the old one\n"
    monkeypatch.setenv("AGS1_KMS", "local:keys.json?key_file=b.key")
    assert run("kms", "password", "--add-secret", "--new-key-file", "c.key").code == 0
    shared = run("kms", "password", "--new-key-file", "d.key").out
    assert "by the new secret from now on, and by 1 other secret as before; older copies" in shared
    assert run("kms", "list", "--kms", "local:keys.json?key_file=c.key").code == 0
