"""``ags1 parquet`` encrypt, decrypt, rekey and rotate: files, trees and where their keys come from."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ags1 import KeyMetadata, parquet
from ags1.core.gcm import Key
from ags1.kms import LocalKms, keystore
from ags1.support.words import size_text
from tests.checks import KEY, OTHER_KEY
from tests.cli.conftest import Run, end_behind_replacement, files_below, write_key
from tests.cli.parquet_work import GIVEN, KMS, NAMES, prepare, table

PARTIAL = parquet.DecryptionConfig(KEY, column_keys=[(["name", "real"], OTHER_KEY[:16])])


@pytest.fixture(autouse=True)
def lake(work: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return prepare(work, monkeypatch)


def check_same(target: str = "back.parquet") -> None:
    assert table(target).equals(table("in.parquet"))


def protections(path: str, decryption: parquet.DecryptionConfig) -> dict[str, str]:
    return {each.column: each.protection for each in parquet.inspect(path, decryption).columns}


# -- one file ------------------------------------------------------------------------------------------------------


def test_a_file_is_encrypted_and_decrypted(run: Run) -> None:
    made = run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN)
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("in.parquet -> out.parquet  ")
    assert protections("out.parquet", PARTIAL) == {
        "number": "plaintext",
        "real": "column key",
        "name": "column key",
        "flag": "plaintext",
        "blob": "plaintext",
    }
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *GIVEN, "-q").out == ""
    check_same()


def test_keys_come_from_the_environment_too(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", KEY.hex())
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", "--footer-key", "env:LAKE_KEY").code == 0
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", "--footer-key", "file:k").code == 0
    check_same()


def test_every_option_of_encrypting_reaches_the_file(run: Run) -> None:
    options = [
        *("--encrypt-all", "--algorithm", "AES_GCM_CTR_V1", "--plaintext-footer", "--aad-prefix", "x/{name}"),
        *("--no-store-aad-prefix", "--footer-key-metadata", "kf", "--column-key-metadata", "name=hex:00ff"),
    ]
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, *options).code == 0
    reading = PARTIAL.with_aad_prefix(b"x/out.parquet")
    found = parquet.inspect("out.parquet", reading)
    assert found.encryption is not None
    assert found.encryption.algorithm == "AES_GCM_CTR_V1"
    assert (found.encryption.footer, found.encryption.aad_prefix) == ("signed", "to be supplied")
    assert found.encryption.footer_key.text == "kf"
    keys = {each.column: (each.protection, each.key and each.key.length) for each in found.columns}
    assert keys["name"] == ("column key", 2)
    assert keys["real"] == ("column key", 0)
    assert keys["blob"] == ("footer key", None)
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *GIVEN).code == 2
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *GIVEN, "--aad-prefix", "x/other").code == 1
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *GIVEN, "--aad-prefix", "x/{name}").code == 0
    check_same()


def test_the_form_of_v2_pages_is_that_which_is_asked_for(run: Run) -> None:
    from tests.parquet import corpus

    Path("v2.parquet").write_bytes(corpus.written(corpus.flat(50), data_page_version="2.0"))
    for options, levels in (((), True), (("--data-page-v2", "java"), False), (("--data-page-v2", "arrow"), True)):
        run("parquet", "encrypt", "v2.parquet", "out.parquet", "--footer-key", "file:k", "--overwrite", *options)
        columns = parquet.inspect("out.parquet", parquet.DecryptionConfig(KEY)).columns
        assert [each.levels_encrypted for each in columns if each.column == "real"] == [levels]


def test_keys_are_found_by_the_key_metadata_of_the_file(run: Run) -> None:
    names = ("--footer-key-metadata", "kf", "--column-key-metadata", "name,real=hex:00ff")
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, *names).code == 0
    keys = ("--key-for", "kf=file:k", "--key-for", "hex:00ff=file:s")
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *keys).code == 0
    check_same()
    missing = run("parquet", "decrypt", "out.parquet", "again.parquet", "--key-for", "kf=file:k")
    assert missing.code == 3
    assert "--key-for has no key for the key metadata of 2 bytes" in missing.err
    assert not Path("again.parquet").exists()


def test_names_of_columns_may_have_commas_and_dots(run: Run) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a,b": [1], "c.d": [2], "e": [{"f": 3, "g": 4}]}), "odd.parquet")
    keys = ("--column-key", r"a\,b,c\.d,e.f=file:s")
    assert run("parquet", "encrypt", "odd.parquet", "out.parquet", "--footer-key", "file:k", *keys).code == 0
    found = parquet.inspect("out.parquet", parquet.DecryptionConfig(KEY)).columns
    assert [each.protection for each in found] == ["column key", "column key", "column key", "plaintext"]


def test_a_result_may_go_to_standard_output(run: Run) -> None:
    Path("out.parquet").write_bytes(run("parquet", "encrypt", "in.parquet", "-", "--footer-key", "file:k").raw)
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", "--footer-key", "file:k").code == 0
    check_same()


def test_a_file_is_keyed_anew(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "a.parquet", *GIVEN)
    old = ("--old-footer-key", "file:k", "--old-column-key", "name,real=file:s")
    refused = run("parquet", "rekey", "a.parquet", "b.parquet", *old, "--footer-key", "file:s")
    assert (refused.code, "could then read them: real, name" in refused.err) == (2, True)
    assert "give them keys, or choose --encrypt-all" in refused.err
    assert run("parquet", "rekey", "a.parquet", "b.parquet", *old, "--footer-key", "file:s", "--encrypt-all").code == 0
    assert run("parquet", "decrypt", "b.parquet", "back.parquet", "--footer-key", "file:s").code == 0
    check_same()
    wrong = run("parquet", "rekey", "a.parquet", "c.parquet", *old[:2], "--footer-key", "file:s", "--encrypt-all")
    assert wrong.code == 3
    assert "give --old-column-key or --old-key-for" in wrong.err


def test_a_file_goes_from_keys_to_a_service_and_to_another_prefix(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "a.parquet", *GIVEN, "--aad-prefix", "one", "--no-store-aad-prefix")
    old = ("--old-footer-key", "file:k", "--old-column-key", "name,real=file:s", "--old-aad-prefix", "one")
    new = (*KMS, "--footer-key-id", "kf", "--aad-prefix", "two", "--encrypt-all")
    assert run("parquet", "rekey", "a.parquet", "b.parquet", *old, *new).code == 0
    assert run("parquet", "rekey", "b.parquet", "c.parquet", *KMS, "--footer-key-id", "next").code == 0
    assert run("parquet", "decrypt", "c.parquet", "back.parquet", *KMS).code == 0
    check_same()


# -- services and key metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--single-wrapping",), ("--external-key-material", "--data-key-bits", "256")])
def test_a_service_wraps_fresh_keys(run: Run, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("--footer-key-id", "kf", "--column-key-id", "name,real=kc")
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *KMS, *keys, *more).code == 0
    assert Path("_KEY_MATERIAL_FOR_out.parquet.json").exists() == ("--external-key-material" in more)
    monkeypatch.setenv("AGS1_KMS", KMS[1])
    assert run("parquet", "decrypt", "out.parquet", "back.parquet").code == 0
    check_same()
    found = parquet.inspect("out.parquet")
    assert found.encryption is not None
    assert found.encryption.footer_key.double_wrapped is not ("--single-wrapping" in more)


def test_iceberg_key_metadata_says_key_and_prefix(run: Run) -> None:
    Path("m").write_bytes(KeyMetadata(Key(KEY[:16]), b"identity").encode())
    Path("m").chmod(0o600)
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", "--key-metadata", "file:m").code == 0
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", "--key-metadata", "m").code == 0
    check_same()
    found = parquet.inspect("out.parquet", parquet.DecryptionConfig(KEY[:16], aad_prefix=b"identity"))
    assert found.encryption is not None
    assert found.encryption.aad_prefix == "to be supplied"
    # Of these pages, nothing would be authenticated.
    other = parquet.EncryptionConfig(
        KEY[:16], aad_prefix=b"identity", store_aad_prefix=False, algorithm="AES_GCM_CTR_V1"
    )
    parquet.encrypt_file("in.parquet", "out.parquet", other)
    for command in (("decrypt", "out.parquet", "other.parquet"), ("verify", "out.parquet")):
        assert "AES_GCM_CTR_V1" in run("parquet", *command, "--key-metadata", "m").err


def test_fresh_key_metadata_is_written_and_not_lost(run: Run) -> None:
    assert run("parquet", "encrypt", "lake", "vault", "--key-metadata-out", "keys").code == 0
    assert set(files_below(Path("keys"))) == {f"{name}.key-metadata" for name in NAMES}
    assert run("parquet", "decrypt", "vault", "back", "--key-metadata", "keys").code == 0
    check_same("back/b.parquet")
    again = run("parquet", "encrypt", "lake", "vault", "--key-metadata-out", "keys")
    assert again.code == 9
    assert "exists and was not replaced: what its key encrypted would be lost" in again.err
    Path("vault/b.parquet").unlink()
    resumed = run("parquet", "encrypt", "lake", "vault", "--key-metadata-out", "keys", "--resume", "--json")
    assert [each["outcome"] for each in resumed.records] == ["done", "finished before"]
    assert run("parquet", "verify", "vault", "--key-metadata", "keys").code == 0


def test_the_fresh_key_of_a_parquet_file_that_is_there_when_the_work_is_ended_stays(
    run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        end_behind_replacement(patched, work / "out.parquet", KeyboardInterrupt())
        more = ("--key-metadata-out", "key", "--durable", "--overwrite")
        result = run("parquet", "encrypt", "in.parquet", "out.parquet", *more)
    assert result.code == 130
    assert "out.parquet may be encrypted already; then its key is in key.pending" in result.err
    assert run("parquet", "verify", "out.parquet", "--key-metadata", "key.pending").code == 0
    refused = run("parquet", "encrypt", "in.parquet", "out.parquet", "--key-metadata-out", "key")
    assert (refused.code, "is the key of out.parquet: it is key now" in refused.err) == (9, True)
    assert run("parquet", "verify", "out.parquet", "--key-metadata", "key").code == 0


# -- trees ---------------------------------------------------------------------------------------------------------


def test_a_tree_under_a_service_goes_and_comes_back(run: Run) -> None:
    Path("lake/_SUCCESS").touch()
    Path("lake/.b.parquet.crc").write_bytes(b"crc")
    made = run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "--aad-prefix", "lake/{path}")
    assert made.code == 0
    assert "encrypted 2 files" in made.out
    assert made.err == ("ags1: note: lake/.b.parquet.crc is left out: it is a checksum of the old file\n")
    assert set(files_below(Path("vault"))) == {*NAMES, "_SUCCESS"}
    assert run("parquet", "decrypt", "vault", "back", *KMS, "--aad-prefix", "lake/{path}").code == 0
    for name in NAMES:
        check_same(f"back/{name}")
    swapped = Path("vault/b.parquet")
    swapped.write_bytes(Path("vault/p=1/a.parquet").read_bytes())
    assert run("parquet", "decrypt", "vault", "back", *KMS, "--aad-prefix", "lake/{path}", "--overwrite").code == 1


def test_given_keys_for_many_files_must_be_meant(run: Run) -> None:
    refused = run("parquet", "encrypt", "lake", "vault", "--footer-key", "file:k")
    assert refused.code == 2
    assert "these keys encrypt 2 files" in refused.err
    assert "--shared-keys" in refused.err
    assert not Path("vault").exists()
    made = run("parquet", "encrypt", "lake", "vault", "--footer-key", "file:k", "--shared-keys")
    assert made.code == 0
    assert "warning: these keys encrypt 2 files, which all count against the 2^32 invocations" in made.err
    quiet = run("parquet", "rekey", "vault", "other", "--old-footer-key", "file:k", "--footer-key", "file:s")
    assert quiet.code == 2


def test_one_prefix_for_many_files_is_warned_of(run: Run) -> None:
    made = run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "--aad-prefix", "same")
    assert made.code == 0
    assert "2 files get the same AAD prefix, so one can take another's place unnoticed: {path}" in made.err


def test_other_files_are_refused_copied_or_left_out(run: Run) -> None:
    Path("lake/notes.txt").write_bytes(b"notes")
    keys = (*KMS, "--footer-key-id", "kf")
    refused = run("parquet", "encrypt", "lake", "vault", *keys)
    assert refused.code == 1
    assert refused.err == (
        "ags1: lake/notes.txt is not a Parquet file: nothing was written; --others copy copies them unencrypted, "
        "--others skip leaves them out, --include '*.parquet' selects\n"
    )
    assert not Path("vault").exists()
    selected = run("parquet", "encrypt", "lake", "vault", *keys, "--include", "*.parquet", "--exclude", "p=1")
    assert selected.code == 0
    assert sorted(files_below(Path("vault"))) == ["b.parquet"]
    none = run("parquet", "encrypt", "lake", "vault", *keys, "--include", "*.parq")
    assert (none.code, none.err) == (
        2,
        "ags1: lake: no file is left by --include '*.parq': correct the patterns\n",
    )
    shutil.rmtree("vault")
    skipped = run("parquet", "encrypt", "lake", "vault", *keys, "--others", "skip", "--json")
    assert [(each["source"], each["outcome"]) for each in skipped.records] == [
        ("lake/notes.txt", "left out"),
        ("lake/b.parquet", "done"),
        ("lake/p=1/a.parquet", "done"),
    ]
    assert run("parquet", "encrypt", "lake", "vault", *keys, "--others", "copy", "--overwrite").code == 0
    assert Path("vault/notes.txt").read_bytes() == b"notes"


def test_columns_that_some_files_lack_are_decided_on_before_anything_is_written(run: Run) -> None:
    for name in ("z", "zz"):
        pq.write_table(pq.read_table("in.parquet").drop_columns(["name"]), f"lake/{name}.parquet")
    keys = (*KMS, "--footer-key-id", "kf", "--column-key-id", "name=kc")
    for command in (("encrypt", *keys), ("rekey", *keys, "--allow-plaintext")):
        refused = run("parquet", command[0], "lake", "vault", *command[1:])
        assert refused.code == 2
        assert refused.err.startswith("ags1: lake/z.parquet lacks a column: there is no column 'name'; ")
        assert refused.err.endswith(
            "; so do lake/zz.parquet: nothing was written; --missing-columns skip encrypts those that a file has\n"
        )
        assert not Path("vault").exists()
        assert run("parquet", command[0], "lake", "vault", *command[1:], "--missing-columns", "skip").code == 0
        assert set(files_below(Path("vault"))) == {*NAMES, "z.parquet", "zz.parquet"}
        shutil.rmtree("vault")


def test_a_glob_stands_for_files(run: Run) -> None:
    made = run("parquet", "encrypt", "lake/**/*.parquet", "vault/", *KMS, "--footer-key-id", "kf")
    assert made.code == 0
    assert sorted(files_below(Path("vault"))) == ["a.parquet", "b.parquet"]


def test_a_run_is_taken_up_where_another_one_ended(run: Run) -> None:
    keys = (*KMS, "--footer-key-id", "kf")
    run("parquet", "encrypt", "lake", "vault", *keys)
    before = Path("vault/b.parquet").read_bytes()
    Path("vault/p=1/a.parquet").unlink()
    again = run("parquet", "encrypt", "lake", "vault", *keys, "--resume")
    assert "vault/b.parquet: finished before\n" in again.out
    assert "encrypted or found finished 2 files" in again.out
    assert Path("vault/b.parquet").read_bytes() == before


def test_what_fails_is_told_and_the_rest_goes_on(run: Run) -> None:
    Path("lake/b.parquet").write_bytes(b"PAR1 damaged PAR1")
    made = run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf")
    assert made.code == 1
    assert "ags1: lake/b.parquet: " in made.err
    assert "encrypted 1 of 2 files" in made.out
    assert list(files_below(Path("vault"))) == ["p=1/a.parquet"]


def test_existing_files_are_kept_unless_they_are_to_be_overwritten(run: Run) -> None:
    Path("out.parquet").write_bytes(b"mine")
    for more in ((), ("--resume",)):
        refused = run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, *more)
        assert (refused.code, "out.parquet: it exists, and nothing was replaced: --overwrite" in refused.err) == (
            9,
            True,
        )
        assert Path("out.parquet").read_bytes() == b"mine"
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, "--overwrite").code == 0
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN, "--resume").code == 0


# -- rotate --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("external", [False, True])
def test_master_keys_are_rotated_in_place(run: Run, external: bool) -> None:
    more = ("--external-key-material",) if external else ()
    keys = ("--footer-key-id", "kf", "--column-key-id", "name=kc")
    run("parquet", "encrypt", "lake", "vault", *KMS, *keys, *more)
    Path("vault/_SUCCESS").touch()
    before = files_below(Path("vault"))
    done = run("parquet", "rotate", "vault", *KMS, "--new-key-id", "kf=next", "--json")
    assert done.code == 0
    assert [each.get("keys") for each in done.records] == [None, *[{"next": 1, "kc": 1}] * len(NAMES)]
    after = files_below(Path("vault"))
    changed = {name for name in before if before[name] != after[name]}
    if external:
        assert changed == {"_KEY_MATERIAL_FOR_b.parquet.json", "p=1/_KEY_MATERIAL_FOR_a.parquet.json"}
        assert "next" in json.loads(after["_KEY_MATERIAL_FOR_b.parquet.json"])["footerKey"]
    else:
        assert changed == set(NAMES)
    assert run("parquet", "verify", "vault", *KMS).code == 0


def test_rotating_a_file_that_has_no_key_material_does_nothing(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN)
    before = Path("out.parquet").read_bytes()
    done = run("parquet", "rotate", "out.parquet", *KMS)
    assert (done.code, done.out) == (0, "out.parquet: left out: it has no key material\n")
    assert Path("out.parquet").read_bytes() == before


def test_the_sum_is_that_of_the_lines(run: Run) -> None:
    records = run("parquet", "encrypt", "lake", "vault", *KMS, "--footer-key-id", "kf", "--json").records
    said = run("parquet", "encrypt", "lake", "again", *KMS, "--footer-key-id", "kf").out.splitlines()[-1]
    assert f"encrypted {len(records)} files, {size_text(sum(each['bytes'] for each in records))}" in said


def test_the_material_of_a_named_file_is_rotated(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "out.parquet", *KMS, "--footer-key-id", "kf", "--external-key-material")
    done = run("parquet", "rotate", "out.parquet", *KMS, "--new-key-id", "kf=next")
    assert (done.code, done.out, done.err) == (0, "out.parquet: keys re-wrapped: 1 under 'next'\n", "")


@pytest.mark.parametrize("external", [(), ("--external-key-material",)])
def test_a_rotation_that_did_not_happen_is_no_success(run: Run, external: tuple[str, ...]) -> None:
    run("parquet", "encrypt", "in.parquet", "out.parquet", *KMS, "--footer-key-id", "kf", *external)
    before = files_below(Path("."))
    missing = "no key is under 'misspelt' of --new-key-id, and nothing was written: keys are under 'kf'. Correct the id"
    # Whether somebody has a key under the new id says nothing about a misspelt old one.
    for more in (
        ("misspelt=next",),
        ("kf=next", "--new-key-id", "misspelt=kx"),
        ("misspelt=kf", "--new-key-id", "kf=next"),
    ):
        done = run("parquet", "rotate", "out.parquet", *KMS, "--new-key-id", *more)
        assert (done.code, missing in done.err) == (2, True)
    assert files_below(Path(".")) == before
    assert run("parquet", "rotate", "out.parquet", *KMS, "--new-key-id", "kf=next").code == 0
    before = files_below(Path("."))
    done = run("parquet", "rotate", "out.parquet", *KMS, "--new-key-id", "kf=next")
    assert (done.code, done.err.count("already")) == (9, 1)
    assert files_below(Path(".")) == before


@pytest.mark.parametrize("external", [(), ("--external-key-material",)])
def test_a_column_under_the_new_id_does_not_excuse_a_misspelt_old_one(run: Run, external: tuple[str, ...]) -> None:
    keys = ("--footer-key-id", "kf", "--column-key-id", "name=kc")
    run("parquet", "encrypt", "in.parquet", "out.parquet", *KMS, *keys, *external)
    before = files_below(Path("."))
    done = run("parquet", "rotate", "out.parquet", *KMS, "--new-key-id", "misspelt=kc")
    assert (done.code, "keys are under 'kc', 'kf'" in done.err) == (2, True)
    assert files_below(Path(".")) == before


def test_verify_says_that_a_wrong_footer_key_is_wrong(run: Run) -> None:
    Key.generate(128).save("right.key")
    Key.generate(128).save("wrong.key")
    for more, said in (
        ((), "footer: wrong key"),
        (("--plaintext-footer",), "signed footer: its signature does not verify: wrong footer key"),
    ):
        run("parquet", "encrypt", "in.parquet", f"{said}.parquet", "--footer-key", "file:right.key", *more)
        done = run("parquet", "verify", f"{said}.parquet", "--footer-key", "file:wrong.key")
        assert done.code == 1
        assert f"error: damaged: {said}, wrong AAD prefix" in done.out
        assert "not encrypted" not in done.out


# -- wrong usage ---------------------------------------------------------------------------------------------------


def test_rekey_moves_files_to_another_service(run: Run) -> None:
    LocalKms.create("other.json", {"kx": bytes(range(32))}, key_file="kek").close()
    other = "local:other.json?key_file=kek"
    assert run("parquet", "encrypt", "in.parquet", "here", *KMS, "--footer-key-id", "kf", "-q").code == 0
    moved = run("parquet", "rekey", "here", "there", *KMS, "--new-kms", other, "--footer-key-id", "kx", "-q")
    assert (moved.code, moved.err) == (0, "")
    assert run("parquet", "decrypt", "there", "back", "--kms", other, "-q").code == 0
    assert table("back") == table("in.parquet")
    assert run("parquet", "verify", "there", *KMS, "-q").code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("encrypt in.parquet out", 2, "a key is needed: --footer-key file:PATH or env:NAME"),
        ("decrypt in.parquet out", 2, "a key is needed: --footer-key file:PATH or env:NAME, --kms URL"),
        ("rekey in.parquet out --footer-key file:k", 2, "a key is needed: --old-footer-key"),
        ("encrypt in.parquet out --footer-key k", 2, "--footer-key needs a key as file:PATH or env:NAME"),
        ("encrypt in.parquet out --footer-key file:", 2, "--footer-key needs a key as file:PATH or env:NAME"),
        ("encrypt in.parquet out --footer-key file:none", 3, "the key file none cannot be read"),
        ("encrypt in.parquet out --footer-key env:NONE", 3, "the environment variable NONE is not set"),
        ("encrypt in.parquet out --footer-key file:in.parquet", 3, "in.parquet is not a key file"),
        (
            "encrypt in.parquet out --footer-key file:k --column-key ssn",
            2,
            "argument --column-key: needs COLUMNS=file:PATH",
        ),
        ("encrypt in.parquet out --footer-key file:k --column-key ,a=file:s", 2, "there is an empty column name"),
        (
            "encrypt in.parquet out --footer-key file:k --column-key nam=file:s",
            2,
            "no column 'nam'; did you mean 'name'",
        ),
        ("encrypt in.parquet out --footer-key file:k --footer-key-id kf", 2, "are different ways to say the keys"),
        ("encrypt in.parquet out --footer-key file:k --single-wrapping", 2, "has no meaning with --footer-key"),
        ("encrypt in.parquet out --footer-key-id kf", 2, "a KMS is needed: --kms URL"),
        ("encrypt in.parquet out --key-metadata k --plaintext-footer", 2, "has no meaning with --key-metadata"),
        ("encrypt in.parquet out --key-metadata k --algorithm AES_GCM_CTR_V1", 2, "--algorithm has no meaning"),
        ("encrypt in.parquet out --key-metadata k --aad-prefix x", 2, "already has an AAD prefix"),
        ("encrypt in.parquet out --footer-key file:k --no-store-aad-prefix", 2, "needs an --aad-prefix"),
        ("encrypt in.parquet out --footer-key file:k --aad-prefix=", 2, "an empty AAD prefix"),
        ("encrypt in.parquet out --footer-key file:k --footer-key-metadata hex:x", 2, "is not hexadecimal"),
        ("encrypt in.parquet out --footer-key file:k --column-key-metadata x", 2, "needs COLUMNS=TEXT"),
        (
            "encrypt in.parquet out --kms local:keys.json --footer-key-id kf --column-key-id kc",
            2,
            "needs COLUMNS=ID",
        ),
        ("encrypt in.parquet out --kms local:keys.json?key_file=kek --footer-key-id none", 3, "none"),
        ("encrypt - out --footer-key file:k", 2, "standard input cannot be one"),
        ("encrypt none out --footer-key file:k", 4, "none: No such file"),
        ("encrypt k out --footer-key file:k", 1, "k: "),
        ("encrypt in.parquet in.parquet --footer-key file:k", 2, "the same file"),
        (
            "decrypt in.parquet out --footer-key file:k",
            1,
            "if that is intended, give --allow",
        ),
        ("decrypt in.parquet out --footer-key file:k --key-for x", 2, "argument --key-for: needs METADATA=file:PATH"),
        ("rotate in.parquet", 2, "a KMS is needed"),
        (
            "rotate in.parquet --kms local:keys.json?key_file=kek --new-key-id x",
            2,
            "argument --new-key-id: needs OLD=NEW",
        ),
        ("rotate k --kms local:keys.json?key_file=kek", 0, ""),
        ("verify k --footer-key file:k", 1, "k: "),
        ("verify -", 2, "standard input cannot be one"),
    ],
)
def test_failures_are_one_line_with_a_way_out(run: Run, arguments: str, code: int, message: str) -> None:
    Path("out").unlink(missing_ok=True)
    result = run("parquet", *arguments.split())
    assert (result.code, message in result.err) == (code, True), result.err
    assert len(result.err.splitlines()) == (code != 0)
    assert not Path("out").exists()


def test_an_encrypted_file_is_pointed_to_rekey(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "a.parquet", *GIVEN)
    result = run("parquet", "encrypt", "a.parquet", "b.parquet", *GIVEN)
    assert result.code == 9
    assert "is encrypted already: use `ags1 parquet rekey` to encrypt it in another way" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--footer-key", KEY.hex()),
        ("--footer-key", f"file:{KEY.hex()}"),
        ("--footer-key", f"env:{KEY.hex()}"),
        ("--footer-key", "file:k", "--column-key", f"name={KEY.hex()}"),
        ("--footer-key", "file:k", "--column-key", f"name=file:{KEY.hex()}"),
        ("--key", KEY.hex()),
    ],
)
def test_a_key_among_the_arguments_is_refused_and_not_repeated(run: Run, arguments: tuple[str, ...]) -> None:
    # The fixture looks for the key in all that is shown.
    assert run("parquet", "encrypt", "in.parquet", "out.parquet", *arguments).code == 2
    assert not Path("out.parquet").exists()


def test_a_key_that_others_can_read_is_warned_of_once(run: Run, lake: Path) -> None:
    write_key(lake / "k", KEY, 0o644)
    made = run(
        "parquet", "encrypt", "in.parquet", "out.parquet", "--footer-key", "file:k", "--column-key", "name=file:k"
    )
    assert made.code == 0
    assert made.err.count("other users can read the key file k") == 1


def test_the_target_of_a_refused_file_stays(run: Run) -> None:
    run("parquet", "encrypt", "in.parquet", "out.parquet", *GIVEN)
    data = bytearray(Path("out.parquet").read_bytes())
    data[-40] ^= 1
    Path("out.parquet").write_bytes(data)
    Path("back.parquet").write_bytes(b"mine")
    assert run("parquet", "decrypt", "out.parquet", "back.parquet", *GIVEN, "--overwrite").code == 1
    assert Path("back.parquet").read_bytes() == b"mine"
    assert sorted(name for name in os.listdir() if "tmp" in name) == []


# -- a service that refuses all --------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["decrypt", "verify"])
@pytest.mark.parametrize("jobs", ["1", "4"])
def test_a_wrong_password_is_tried_once_and_told_once(
    command: str, jobs: str, run: Run, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keystore, "SCRYPT_N", 1 << 10)
    (work / "pw").write_text("right")
    (work / "bad").write_text("wrong")
    LocalKms.create("p.json", {"kf": KEY}, password="right").close()
    for number in range(20):
        (work / "many").mkdir(exist_ok=True)
        (work / "many" / f"{number:02}.parquet").write_bytes((work / "in.parquet").read_bytes())
    made = run("parquet", "encrypt", "many", "vault", "--kms", "local:p.json", "--password-file", "pw", *FOOTER)
    assert made.code == 0, made.err
    tries: list[object] = []
    derive = keystore._derive
    monkeypatch.setattr(keystore, "_derive", lambda *given: (tries.append(None), derive(*given))[1])
    target = ["back"] if command == "decrypt" else []
    more = ["-j", jobs] if command == "decrypt" else []
    done = run("parquet", command, "vault", *target, "--kms", "local:p.json", "--password-file", "bad", *more)
    assert done.code == 3
    assert len(tries) == 1
    assert done.err.count("the password is wrong") == 1
    assert "19 files not tried: each would fail for the same reason" in done.err
    assert "; 1 failed" in done.out
    asked = run("parquet", command, "vault", *target, "--kms", "local:p.json", "--password-file", "bad", "--json")
    assert len([each for each in asked.records if each.get("subject") != "total"]) == 20
    assert sum("not tried" in str(each["error"]) for each in asked.records) == 19


def test_a_key_that_one_file_lacks_stops_no_other(run: Run, work: Path) -> None:
    run("parquet", "encrypt", "lake", "vault", *KMS, *FOOTER)
    LocalKms.create("less.json", {"other": KEY}, key_file="kek").close()
    done = run("parquet", "decrypt", "vault", "back", "--kms", "local:less.json?key_file=kek")
    assert (done.code, done.err.count("there is no key with this id")) == (3, len(NAMES))


FOOTER = ("--footer-key-id", "kf")
