"""Keys for the command line: files of every form, variables, metadata, keygen; and what is said when there is none."""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import pytest

import ags1
from ags1.cli import keys as cli_keys
from ags1.support import key_files
from tests.checks import KEY, KEYS, OTHER_KEY
from tests.cli.conftest import PLAIN, Run, files_below, make_tree, write_key

FORMS = {
    "raw": lambda key: key,
    "hex": lambda key: key.hex().encode() + b"\n",
    "hex-upper": lambda key: key.hex().upper().encode() + b"\r\n",
    "base64": lambda key: base64.b64encode(key) + b"\n",
}


# -- key files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", KEYS)
@pytest.mark.parametrize("form", FORMS)
def test_a_key_file_may_be_raw_or_text(run: Run, work: Path, form: str, length: int) -> None:
    write_key(work / "key", FORMS[form](KEYS[length]))
    result = run("encrypt", "plain", "out.ags1", "--key-file", "key", "-q")
    assert (result.code, result.err) == (0, "")
    assert ags1.decrypt((work / "out.ags1").read_bytes(), KEYS[length]) == PLAIN


@pytest.mark.parametrize("data", [b"", b"x", bytes(15), bytes(31), bytes(33), b"00" * 17, b"not a key", bytes(4096)])
def test_a_file_of_another_size_is_no_key_and_its_bytes_are_not_shown(run: Run, work: Path, data: bytes) -> None:
    write_key(work / "key", data)
    result = run("encrypt", "plain", "out", "--key-file", "key")
    assert (result.code, result.out) == (3, "")
    held = f"{len(data)} bytes" if data else "nothing"
    assert f"key holds no AES key: it has {held}, but 16, 24 or 32 raw bytes" in result.err
    assert not (work / "out").exists()


def test_a_large_file_is_no_key(run: Run, work: Path) -> None:
    write_key(work / "key", bytes(4097))
    found = run("encrypt", "plain", "out", "--key-file", "key").err
    assert "key is not a key file: it has more than 4096 bytes" in found


def test_a_key_file_that_cannot_be_read_is_told_with_the_reason(run: Run, work: Path) -> None:
    missing = run("encrypt", "plain", "out", "--key-file", "missing")
    said = "the key file missing cannot be read: No such file or directory"
    assert (missing.code, missing.err) == (3, f"ags1: {said}: `ags1 keygen missing` makes one\n")
    # A new key opens nothing.
    assert run("verify", "plain", "--key-file", "missing").err.endswith(f"{said}\n")
    for command in (("verify", "plain"), ("decrypt", "plain", "out")):
        lost = run(*command, "--key-metadata", "missing/")
        assert (lost.code, "the key metadata missing/ cannot be read: No such" in lost.err) == (3, True)
        assert "give what --key-metadata-out named: a file, or a directory of them" in lost.err
    (work / "directory").mkdir()
    directory = run("encrypt", "plain", "out", "--key-file", "directory")
    assert (directory.code, directory.err) == (3, "ags1: the key file directory cannot be read: Is a directory\n")


def test_a_key_file_without_permission_is_told(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Root, as which tests may run, may read everything.
    def refuse(path: str, mode: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(key_files, "open", refuse, raising=False)
    result = run("encrypt", "plain", "out", "--key-file", "k")
    assert (result.code, result.err) == (3, "ags1: the key file k cannot be read: Permission denied\n")


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_file_that_others_can_read_is_warned_of_once(run: Run, work: Path, mode: int) -> None:
    make_tree(work)
    write_key(work / "key", KEY, mode)
    result = run("encrypt", "tree", "out", "--key-file", "key", "--aad-prefix", "{path}", "--key-metadata-out", "m")
    assert result.code == 0
    assert result.err == f"ags1: warning: other users can read the key file key (mode {mode:04o}): chmod 600 it\n"


@pytest.mark.parametrize(
    ("data", "bits", "text_bits"),
    [
        (b"0123456789abcdef" * 2, 256, 128),
        (b"AAECAwQFBgcICQoLDA0ODw==", 192, 128),
        (b"AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", 256, 192),
    ],
)
def test_a_raw_key_that_looks_like_text_is_warned_of(
    run: Run, work: Path, data: bytes, bits: int, text_bits: int
) -> None:
    write_key(work / "key", data)
    result = run("encrypt", "plain", "out", "--key-file", "key")
    assert result.code == 0
    assert f"taken as a raw {bits}-bit key. If it is the text of a {text_bits}-bit key, end it" in result.err
    assert data.decode() not in result.err
    assert ags1.decrypt((work / "out").read_bytes(), data) == PLAIN


@pytest.mark.timeout(60)
def test_a_key_from_a_pipe_serves_many_files(run: Run, work: Path) -> None:
    make_tree(work)
    os.mkfifo(work / "pipe")
    feeder = threading.Thread(target=(work / "pipe").write_bytes, args=(KEY,), daemon=True)
    feeder.start()
    assert run("encrypt", "tree", "out", "--key-file", "pipe").code == 0
    feeder.join(600)
    assert ags1.decrypt((work / "out/sub/a.txt.ags1").read_bytes(), KEY) == b"second"


@pytest.mark.timeout(60)
def test_key_metadata_comes_from_a_pipe_as_age_writes_it(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "out.ags1", "--key-metadata-out", "out.key-metadata").code == 0
    os.mkfifo(work / "pipe")
    data = (work / "out.key-metadata").read_bytes()
    feeder = threading.Thread(target=(work / "pipe").write_bytes, args=(data,), daemon=True)
    feeder.start()
    assert run("decrypt", "out.ags1", "back", "--key-metadata", "pipe").code == 0
    feeder.join(600)
    assert (work / "back").read_bytes() == PLAIN


# -- the environment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [KEY.hex(), base64.b64encode(KEY).decode(), f" {KEY.hex()}\n"])
def test_a_key_may_come_from_the_environment(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("LAKE_KEY", text)
    assert run("encrypt", "plain", "out", "--key-env", "LAKE_KEY").code == 0
    assert ags1.decrypt((work / "out").read_bytes(), KEY) == PLAIN


def test_the_command_line_reads_what_load_reads(run: Run, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", bytes(ags1.Key.load("k")).hex())
    for reference in ("k", "file:k", f"file://{work}/k", "env:LAKE"):
        assert bytes(ags1.Key.load(reference)) == bytes(ags1.Key.load("k"))
        assert run("encrypt", "plain", "out.ags1", "--key-file", reference, "--overwrite").code == 0
        assert run("cat", "out.ags1", "--key-file", "k", "--any-length").raw == PLAIN
    missing = run("encrypt", "plain", "new.ags1", "--key-file", "file:none")
    assert (missing.code, "`ags1 keygen none` makes one" in missing.err) == (3, True)
    assert "the environment variable NONE is not set" in run("cat", "out.ags1", "--key-file", "env:NONE").err
    assert run("cat", "out.ags1", "--key-file", "env:").code == 2
    secret = bytes(ags1.Key.load("k")).hex()
    shown = run("cat", "out.ags1", "--key-file", f"env:{secret}").err
    assert secret not in shown
    assert "do not use this key" in shown


def test_a_variable_that_is_not_set_is_named(run: Run, work: Path) -> None:
    result = run("encrypt", "plain", "out", "--key-env", "NO_SUCH_KEY")
    assert (result.code, result.err) == (3, "ags1: the environment variable NO_SUCH_KEY is not set\n")


@pytest.mark.parametrize("text", ["", "x" * 16, "0011", "0" * 33])
def test_a_variable_that_holds_no_key_is_told_without_its_value(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("LAKE_KEY", text)
    result = run("encrypt", "plain", "out", "--key-env", "LAKE_KEY")
    assert result.code == 3
    assert "the environment variable LAKE_KEY holds no AES key" in result.err
    assert "raw" not in result.err
    assert not text or text not in result.err


# -- key metadata --------------------------------------------------------------------------------------------


@pytest.fixture
def metadata(work: Path) -> ags1.KeyMetadata:
    """Of `plain.ags1`, written to `meta`."""
    found = ags1.encrypt_file(work / "plain", work / "plain.ags1")
    write_key(work / "meta", found.encode())
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_metadata_file_has_key_prefix_and_length(run: Run, work: Path, metadata: ags1.KeyMetadata, form: str) -> None:
    write_key(work / "meta", FORMS[form](metadata.encode()))
    result = run("decrypt", "plain.ags1", "back", "--key-metadata", "meta")
    assert (result.code, result.err) == (0, "")
    assert (work / "back").read_bytes() == PLAIN


def test_the_length_in_metadata_shows_a_truncation(run: Run, work: Path) -> None:
    found = ags1.encrypt_file(work / "plain", work / "cut.ags1", block_length=1000)
    write_key(work / "meta", found.encode())
    os.truncate(work / "cut.ags1", 8 + 4 * 1028)
    result = run("verify", "cut.ags1", "--key-metadata", "meta")
    assert result.code == 1
    assert "1028 bytes are missing at its end" in result.err
    untrusted = found.with_length(None)
    write_key(work / "meta", untrusted.encode())
    refused = run("verify", "cut.ags1", "--key-metadata", "meta")
    assert (refused.code, "its key metadata has no length" in refused.err) == (2, True)
    assert run("verify", "cut.ags1", "--key-metadata", "meta", "--any-length").code == 5


def test_a_length_given_by_hand_counts_more_than_the_recorded_one(run: Run, metadata: ags1.KeyMetadata) -> None:
    result = run("verify", "plain.ags1", "--key-metadata", "meta", "--length", "7777")
    assert result.code == 1
    assert "its trusted length is 7777" in result.err


def test_a_prefix_beside_metadata_is_refused(run: Run, metadata: ags1.KeyMetadata) -> None:
    result = run("verify", "plain.ags1", "--key-metadata", "meta", "--aad-prefix", "x")
    assert result.code == 2
    assert "--key-metadata already has an AAD prefix: leave --aad-prefix out" in result.err


def test_a_raw_key_given_as_metadata_is_recognised_and_not_shown(run: Run, metadata: ags1.KeyMetadata) -> None:
    result = run("verify", "plain.ags1", "--key-metadata", "k")
    assert (result.code, result.err) == (
        3,
        "ags1: k holds no key metadata; if it is a key, give it as --key-file\n",
    )


def test_other_files_are_no_metadata(run: Run, work: Path, metadata: ags1.KeyMetadata) -> None:
    write_key(work / "other", b"\x02" * 50)
    result = run("verify", "plain.ags1", "--key-metadata", "other")
    assert result.code == 3
    assert "other holds no key metadata: " in result.err


def test_a_directory_of_metadata_serves_a_tree_with_equal_base_names(run: Run, work: Path) -> None:
    contents = make_tree(work)
    result = run("encrypt", "tree", "vault", "--key-metadata-out", "keys")
    assert (result.code, result.err) == (0, "")
    assert set(files_below(work / "keys")) == {f"{name}.ags1.key-metadata" for name in contents}
    assert run("verify", "vault", "--key-metadata", "keys").code == 0
    assert run("decrypt", "vault", "back", "--key-metadata", "keys").code == 0
    assert files_below(work / "back") == contents
    # One of them alone is found by the end of its path.
    assert run("cat", "vault/sub/a.txt.ags1", "--key-metadata", "keys").out == "second"
    assert run("cat", work / "vault/sub/a.txt.ags1", "--key-metadata", "keys").out == "second"


def test_a_file_that_a_directory_of_metadata_lacks_is_named(run: Run, work: Path) -> None:
    (work / "keys").mkdir()
    result = run("verify", "plain", "--key-metadata", "keys")
    assert (result.code, result.err) == (
        3,
        "ags1: there is no key metadata for plain: no keys/plain.key-metadata\n",
    )


def test_standard_input_has_no_name_to_look_for(run: Run, work: Path) -> None:
    (work / "keys").mkdir()
    result = run("cat", "-", "--key-metadata", "keys", stdin=b"")
    assert result.code == 2
    assert "give one file as --key-metadata" in result.err


# -- none ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments", [("encrypt", "plain", "out"), ("decrypt", "plain", "out"), ("cat", "plain"), ("verify", "plain")]
)
def test_without_a_key_the_options_for_one_are_named(run: Run, work: Path, arguments: tuple[str, ...]) -> None:
    before = files_below(work)
    result = run(*arguments)
    assert result.code == 2
    assert "a key is needed: --key-metadata" in result.err
    assert ("ags1 keygen" in result.err) is (arguments[0] == "encrypt"), "a new key opens nothing"
    assert files_below(work) == before


# -- AAD prefixes --------------------------------------------------------------------------------------------


def test_a_prefix_may_be_text_or_hexadecimal(run: Run, work: Path) -> None:
    assert run("encrypt", "plain", "out", "--key-file", "k", "--aad-prefix", "café").code == 0
    assert ags1.decrypt((work / "out").read_bytes(), KEY, aad_prefix="café".encode()) == PLAIN
    hexadecimal = "café".encode().hex()
    assert run("verify", "out", "--key-file", "k", "--any-length", "--aad-prefix-hex", hexadecimal).code == 5
    assert run("verify", "out", "--key-file", "k", "--any-length").code == 1


def test_a_prefix_that_is_not_hexadecimal_is_refused(run: Run, work: Path) -> None:
    result = run("encrypt", "plain", "out", "--key-file", "k", "--aad-prefix-hex", "xyz")
    assert (result.code, result.err) == (
        2,
        "ags1: argument --aad-prefix-hex: 'xyz' is not hexadecimal (see `ags1 encrypt --help`)\n",
    )


def test_a_name_like_a_placeholder_is_only_a_name() -> None:
    assert cli_keys.aad_prefix("{path}:{name}", "{name}/{path}.ags1") == b"{name}/{path}:{path}"


@pytest.mark.parametrize(
    ("prefix", "meant"), [("{name}", "a.txt"), ("{path}", "sub/a.txt"), ("v1:{path}", "v1:sub/a.txt")]
)
def test_a_prefix_may_name_each_file_of_a_tree(run: Run, work: Path, prefix: str, meant: str) -> None:
    contents = make_tree(work)
    assert run("encrypt", "tree", "vault", "--key-file", "k", "--aad-prefix", prefix).code == 0
    stream = (work / "vault/sub/a.txt.ags1").read_bytes()
    assert ags1.decrypt(stream, KEY, aad_prefix=meant.encode()) == b"second"
    keyed = ("--key-file", "k", "--any-length", "--aad-prefix", prefix)
    assert run("verify", "vault", *keyed).code == 5
    assert run("decrypt", "vault", "back", *keyed).code == 0
    assert files_below(work / "back") == contents


def test_a_prefix_names_the_encrypted_file_in_either_direction(run: Run, work: Path) -> None:
    prefix = ("--key-file", "k", "--aad-prefix", "{name}")
    assert run("encrypt", "plain", "renamed.ags1", *prefix).code == 0
    assert ags1.decrypt((work / "renamed.ags1").read_bytes(), KEY, aad_prefix=b"renamed") == PLAIN
    assert run("decrypt", "renamed.ags1", "back", *prefix, "--any-length").code == 0


@pytest.mark.parametrize("prefix", [(), ("--aad-prefix", "same"), ("--aad-prefix", "{name}")])
def test_files_that_could_be_swapped_unnoticed_are_warned_of(run: Run, work: Path, prefix: tuple[str, ...]) -> None:
    for index, name in enumerate(("a/x", "b/x", "c/x")):
        (work / "many" / name).parent.mkdir(parents=True)
        (work / "many" / name).write_bytes(bytes([index]))
    kept = ("--key-metadata-out", "m")
    made = run("encrypt", "many", "vault", "--key-file", "k", *prefix, *kept)
    assert made.code == 0
    assert made.err == (
        "ags1: warning: 3 files get the same AAD prefix, so one can take another's place unnoticed: "
        "{path} in --aad-prefix gives each its own\n"
    )
    for silent in (("-q",), ("--json",), ("--aad-prefix", "{path}")):
        assert run("encrypt", "many", "vault", "--key-file", "k", *prefix, *silent, *kept, "--overwrite").err == ""
    assert run("encrypt", "many", "vault", "--key-metadata-out", "keys", "--overwrite").err == ""


def test_a_misspelt_name_in_a_prefix_does_not_become_the_prefix_of_all_files(run: Run, work: Path) -> None:
    for action in ("encrypt", "decrypt"):
        result = run(action, "plain", "out", "--key-file", "k", "--aad-prefix", "x/{pth}")
        assert (result.code, result.err.count("\n")) == (2, 1)
        assert "{pth} is unknown: write {path} or {name}" in result.err
        assert not (work / "out").exists()
    assert run("encrypt", "plain", "out", "--key-file", "k", "--aad-prefix", "{not so}").code == 0


def test_between_two_pipes_there_is_no_name_for_a_prefix(run: Run, work: Path) -> None:
    result = run("encrypt", "-", "-", "--key-file", "k", "--aad-prefix", "{name}", stdin=b"")
    assert (result.code, result.out) == (2, "")
    assert "a standard stream, or a path that ends with a slash, has no name for {name}" in result.err


# -- keygen --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [128, 192, 256])
@pytest.mark.parametrize("form", ["raw", "hex", "base64"])
def test_keygen_writes_a_key_of_each_size_in_each_form(run: Run, work: Path, bits: int, form: str) -> None:
    result = run("keygen", "new", "--bits", str(bits), "--format", form)
    assert result.code == 0
    assert f"wrote a fresh {bits}-bit key to new" in result.out
    data = (work / "new").read_bytes()
    raw = {"raw": lambda: data, "hex": lambda: bytes.fromhex(data.decode()), "base64": lambda: base64.b64decode(data)}
    key = raw[form]()
    assert len(key) * 8 == bits
    assert key.hex() not in result.out + result.err
    assert run("encrypt", "plain", "out", "--key-file", "new").code == 0
    assert ags1.decrypt((work / "out").read_bytes(), key) == PLAIN


def test_keygen_makes_a_file_that_only_its_owner_can_read(run: Run, work: Path) -> None:
    run("keygen", "new")
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o600
    (work / "new").chmod(0o666)
    run("keygen", "new", "--force")
    assert stat.S_IMODE((work / "new").stat().st_mode) == 0o600


def test_keygen_never_makes_the_same_key_twice(run: Run, work: Path) -> None:
    run("keygen", "one")
    run("keygen", "two")
    assert (work / "one").read_bytes() != (work / "two").read_bytes()


def test_keygen_keeps_an_existing_file_unless_it_is_forced(run: Run, work: Path) -> None:
    result = run("keygen", "k")
    assert (result.code, result.out) == (9, "")
    assert "k: it exists and was not replaced: what its key encrypted would be lost (--force replaces it)" in result.err
    assert (work / "k").read_bytes() == KEY
    assert run("keygen", "k", "--force").code == 0
    assert (work / "k").read_bytes() != KEY


def test_keygen_does_not_follow_a_dangling_link_unasked(run: Run, work: Path) -> None:
    (work / "link").symlink_to("elsewhere")
    assert run("keygen", "link").code == 9
    assert not (work / "elsewhere").exists()


def test_keygen_writes_to_standard_output(run: Run, work: Path) -> None:
    assert len(run("keygen", "-").raw) == 32
    result = run("keygen", "-", "--format", "hex", "--bits", "128")
    assert len(bytes.fromhex(result.out)) == 16
    assert result.err == ""


def test_keygen_into_a_missing_directory_names_it(run: Run, work: Path) -> None:
    result = run("keygen", "no/key")
    assert (result.code, result.err) == (
        4,
        "ags1: no/key: there is no directory no: correct the name, or make it to write there\n",
    )


def test_a_secret_that_cannot_be_written_leaves_nothing(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    before = files_below(work)
    monkeypatch.setattr("ags1.cli.keys.os.write", fail)
    with pytest.raises(OSError, match="No space left"):
        cli_keys.write_private("secret", OTHER_KEY, replace=False)
    monkeypatch.undo()
    assert files_below(work) == before
