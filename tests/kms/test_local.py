"""LocalKms: the keystore file, its passwords, who may alter it, and who else is writing to it."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import multiprocessing
import os
import stat
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.kms import LocalKms, MemoryKms, keystore
from ags1.storage import AtomicFile
from tests.checks import KEY, KEYS, OTHER_KEY, in_threads

PASSWORD = "correct horse battery staple"
MASTERS = {"lake": KEYS[32], "sea": KEYS[16], "Größe/β": KEYS[24]}


@pytest.fixture(autouse=True)
def _quick_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that a test can afford; the file says how much it is."""
    monkeypatch.setattr(keystore, "SCRYPT_N", 1 << 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A keystore with three keys."""
    LocalKms.create(tmp_path / "keys.json", MASTERS, password=PASSWORD).close()
    return tmp_path / "keys.json"


def opened(path: Path, password: str = PASSWORD) -> LocalKms:
    return LocalKms(path, password=password)


def refused(path: Path, message: str, **secret: Any) -> None:
    """Every use is refused with this message."""
    secret = secret or {"password": PASSWORD}
    calls: list[Callable[[LocalKms], Any]] = [
        lambda client: client.wrap_key(KEY, "lake"),
        lambda client: client.unwrap_key(KEY, "lake"),
        lambda client: client.list_keys(),
        lambda client: client.add_key("new"),
        lambda client: client.rotate_password("new"),
        lambda client: client.rotate_key("lake"),
        lambda client: client.remove_key("lake"),
        lambda client: client.without("lake"),
    ]
    before = path.read_bytes() if path.is_file() else None
    for call in calls:
        with pytest.raises(ags1.KeyAccessError, match=message):
            call(LocalKms(path, **secret))
    assert (path.read_bytes() if path.is_file() else None) == before


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_rotated_key_wraps_with_its_newest_version_and_unwraps_with_all(path: Path) -> None:
    client = opened(path)
    wrapped = [client.wrap_key(KEY, "lake")]
    for version, bits in ((2, 256), (3, 128)):
        assert client.rotate_key("lake", bits=bits) == version
        wrapped.append(client.wrap_key(KEY, "lake"))
    assert opened(path).key_versions() == {"lake": 3, "sea": 1, "Größe/β": 1}
    for each in wrapped:
        assert opened(path).unwrap_key(each, "lake") == KEY
    # The versions are fresh: none of the others unwraps what one wrapped.
    assert opened(path).remove_key("lake", old_versions=True) == 2
    assert opened(path).unwrap_key(wrapped[2], "lake") == KEY
    for each in wrapped[:2]:
        with pytest.raises(ags1.KeyAccessError, match="wrapped with another key"):
            opened(path).unwrap_key(each, "lake")
    assert opened(path).remove_key("lake", old_versions=True) == 0


def test_a_removed_key_is_in_no_cache_and_unwraps_nothing_any_more(path: Path) -> None:
    client = opened(path)
    others = {key_id: client.wrap_key(KEY, key_id) for key_id in MASTERS}
    client.rotate_key("lake")
    wrapped = [others["lake"], client.wrap_key(KEY, "lake")]
    assert [client.unwrap_key(each, "lake") for each in wrapped] == [KEY, KEY]
    before = path.read_bytes()
    with client.without("lake") as rest:
        assert rest.unwrap_key(others["sea"], "sea") == KEY
        with pytest.raises(ags1.KeyAccessError, match="no key with this id"):
            rest.unwrap_key(others["lake"], "lake")
    with client.without("lake", old_versions=True) as rest:
        assert rest.unwrap_key(wrapped[1], "lake") == KEY
        with pytest.raises(ags1.KeyAccessError, match="wrapped with another key"):
            rest.unwrap_key(wrapped[0], "lake")
    assert path.read_bytes() == before
    assert client.remove_key("lake") == 2
    for each in (client, opened(path)):
        for key in wrapped:
            with pytest.raises(ags1.KeyAccessError, match="no key with this id"):
                each.unwrap_key(key, "lake")
        assert each.unwrap_key(others["sea"], "sea") == KEY
        assert each.list_keys() == ["Größe/β", "sea"]


def test_a_key_that_does_not_exist_is_neither_rotated_nor_removed(path: Path) -> None:
    before = path.read_bytes()
    for call in (
        lambda client: client.rotate_key("moon"),
        lambda client: client.remove_key("moon"),
        lambda client: client.remove_key("moon", old_versions=True),
        lambda client: client.without("moon"),
    ):
        with pytest.raises(ags1.KeyAccessError, match="no key with this id; the ids are"):
            call(opened(path))
    assert path.read_bytes() == before


def test_its_wrapped_keys_are_those_of_memory_kms_and_iceberg(path: Path) -> None:
    client, memory = opened(path), MemoryKms(MASTERS)
    for key_id in MASTERS:
        assert memory.unwrap_key(client.wrap_key(KEY, key_id), key_id) == KEY
        assert client.unwrap_key(memory.wrap_key(KEY, key_id), key_id) == KEY


def test_a_keystore_lists_its_keys_in_order(path: Path) -> None:
    assert opened(path).list_keys() == sorted(MASTERS)


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_an_added_key_is_fresh_and_stays(path: Path, bits: int) -> None:
    client = opened(path)
    client.add_key("new", bits=bits)
    wrapped = client.wrap_key(KEY, "new")
    assert opened(path).unwrap_key(wrapped, "new") == KEY
    store = opened(path)._load()
    (added,) = store.keys["new"]
    assert added.bits == bits
    assert bytes(added) not in [bytes(each) for each in MASTERS.values()]


def test_a_given_key_can_be_added(path: Path) -> None:
    opened(path).add_key("given", OTHER_KEY)
    assert MemoryKms({"given": OTHER_KEY}).unwrap_key(opened(path).wrap_key(KEY, "given"), "given") == KEY


def test_a_key_is_not_replaced_by_another_of_its_id(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(ags1.KeyAccessError, match="has a key 'lake' already: what it wrapped would be lost"):
        opened(path).add_key("lake")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("key_id", "error"),
    [("", ValueError), ("a\nb", ValueError), ("a\x1b[2J", ValueError), ("\u2028", ValueError), ("\udcff", ValueError),
     ("x" * 1025, ValueError), (b"lake", TypeError), (None, TypeError)],
)  # fmt: skip
def test_an_id_that_no_one_can_type_is_refused(path: Path, key_id: Any, error: type[Exception]) -> None:
    for call in (
        lambda: opened(path).add_key(key_id),
        lambda: LocalKms.create(path.parent / "new.json", {key_id: KEY}, password=PASSWORD),
    ):
        with pytest.raises(error, match="key id"):
            call()
    assert not (path.parent / "new.json").exists()


def test_an_unknown_id_is_told_with_those_that_there_are(path: Path) -> None:
    with pytest.raises(
        ags1.KeyAccessError, match="'ocean': there is no key with this id; the ids are Größe/β, lake, sea"
    ):
        opened(path).wrap_key(KEY, "ocean")


def test_it_is_found_by_icebergs_property(path: Path) -> None:
    client = LocalKms(password=PASSWORD)
    with pytest.raises(ags1.KeyAccessError, match=r"no keystore was given: set its path, or the property kms\.client"):
        client.wrap_key(KEY, "lake")
    client.initialize({"kms.client.keystore.path": str(path)})
    assert client.list_keys() == sorted(MASTERS)


# -- the file ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_only_the_owner_can_read_the_file_whatever_was_there(path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        path.chmod(0o644)
        opened(path).add_key("new")
        LocalKms.create(path.parent / "other.json", password=PASSWORD)
    finally:
        os.umask(old)
    for each in (path, path.parent / "other.json"):
        assert stat.S_IMODE(each.stat().st_mode) == 0o600


def test_no_key_and_no_password_is_in_the_file(path: Path) -> None:
    text = path.read_bytes()
    for secret in (*MASTERS.values(), PASSWORD.encode()):
        for shown in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert shown not in text


def test_the_format_can_be_read_by_what_its_description_says(path: Path) -> None:
    content = json.loads(path.read_text())
    protection = content["protection"]
    secret = hashlib.scrypt(
        PASSWORD.encode(), salt=base64.b64decode(protection["salt"]), n=protection["n"], r=protection["r"],
        p=protection["p"], dklen=32,
    )  # fmt: skip
    wrapping = hmac.digest(secret, b"wrap", "sha256")
    for key_id, (wrapped,) in content["keys"].items():
        octets = base64.b64decode(wrapped)
        aad = f"ags1-keystore 1 {key_id}".encode()
        assert AESGCM(wrapping).decrypt(octets[:12], octets[12:], aad) == MASTERS[key_id]


def test_create_replaces_nothing(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="exists and was not replaced: its keys would be lost"):
        LocalKms.create(path, password=PASSWORD)
    assert path.read_bytes() == before


def test_a_disk_that_is_full_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AtomicFile, "commit", full)
    for call in (lambda: opened(path).add_key("new"), lambda: opened(path).rotate_password("other")):
        with pytest.raises(OSError, match="No space left"):
            call()
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_missing_keystore_is_to_be_looked_for_where_something_exists(tmp_path: Path) -> None:
    refused(tmp_path / "missing.json", r"there is no keystore .*missing\.json(: look for the one|; `LocalKms.create`)")


def test_a_directory_is_no_keystore(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    refused(tmp_path / "keys", "keys cannot be read: Is a directory")


def test_a_key_that_another_process_added_is_found(path: Path) -> None:
    client, other = opened(path), opened(path)
    assert client.list_keys() == sorted(MASTERS)
    other.add_key("new")
    wrapped = other.wrap_key(KEY, "new")
    assert client.unwrap_key(wrapped, "new") == KEY


def test_an_unchanged_file_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = opened(path)
    client.list_keys()
    monkeypatch.setattr(keystore, "parse", None)
    assert client.list_keys() == sorted(MASTERS)


def _add(path: str, name: str) -> None:
    LocalKms(path, password=PASSWORD).add_key(name)


def test_keys_that_many_processes_and_threads_add_at_once_are_all_there(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_add, args=(str(path), f"process{number}")) for number in range(4)]
    for child in children:
        child.start()
    shared = opened(path)
    in_threads([lambda number=number: shared.add_key(f"thread{number}") for number in range(4)])
    in_threads([lambda number=number: opened(path).add_key(f"own{number}") for number in range(4)])
    for child in children:
        child.join(600)
        assert child.exitcode == 0
    wanted = {f"{kind}{number}" for kind in ("process", "thread", "own") for number in range(4)}
    assert set(opened(path).list_keys()) == wanted | set(MASTERS)


def test_threads_share_one(path: Path) -> None:
    client = LocalKms(path, password=PASSWORD, cache_seconds=0)

    def work() -> bool:
        return all(client.unwrap_key(client.wrap_key(key, "sea"), "sea") == key for key in [*KEYS.values()] * 20)

    assert all(in_threads([work] * 8))


# -- passwords -----------------------------------------------------------------------------------------------


def test_a_wrong_password_is_called_so(path: Path) -> None:
    refused(path, r"keys\.json cannot be opened: the password is wrong$", password="Correct horse")


def test_a_missing_password_is_called_so(path: Path) -> None:
    with pytest.raises(
        ags1.KeyAccessError, match=r"it is protected by a password: give `password_file`, .* AGS1_KMS_PASSWORD"
    ):
        LocalKms(path).list_keys()


def test_the_password_may_stand_in_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_KMS_PASSWORD", PASSWORD)
    assert LocalKms(path).list_keys() == sorted(MASTERS)
    monkeypatch.setenv("AGS1_KMS_PASSWORD", "wrong")
    with pytest.raises(ags1.KeyAccessError, match="the password is wrong"):
        LocalKms(path).list_keys()
    assert opened(path).list_keys() == sorted(MASTERS)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_password_may_stand_in_a_file(path: Path, end: str) -> None:
    (path.parent / "password").write_bytes(PASSWORD.encode() + end.encode())
    assert LocalKms(path, password_file=path.parent / "password").list_keys() == sorted(MASTERS)


def test_spaces_belong_to_a_password(path: Path) -> None:
    (path.parent / "password").write_text(f"{PASSWORD} \n")
    with pytest.raises(ags1.KeyAccessError, match="the password is wrong"):
        LocalKms(path, password_file=path.parent / "password").list_keys()


@pytest.mark.parametrize("kind", ["password", "password_file"])
def test_an_empty_password_is_refused(path: Path, kind: str) -> None:
    (path.parent / "empty").write_text("\n")
    secret = {kind: "" if kind == "password" else path.parent / "empty"}
    refused(path, "the password is empty", **secret)
    with pytest.raises(ags1.KeyAccessError, match="the password is empty"):
        LocalKms.create(path.parent / "new.json", **secret)  # type: ignore[arg-type]


def test_a_password_file_that_cannot_be_read_is_named(path: Path) -> None:
    with pytest.raises(ags1.KeyAccessError, match=r"the password file .*nowhere cannot be read: No such file"):
        LocalKms(path, password_file=path.parent / "nowhere").list_keys()
    (path.parent / "large").write_bytes(bytes(5000))
    with pytest.raises(ags1.KeyAccessError, match="large is not a password file: it has more than 4096 bytes"):
        LocalKms(path, password_file=path.parent / "large").list_keys()


def test_a_password_is_the_same_however_the_keyboard_composed_it(tmp_path: Path) -> None:
    composed, decomposed = (unicodedata.normalize(form, "Schlüssel") for form in ("NFC", "NFD"))
    assert composed != decomposed
    LocalKms.create(tmp_path / "k", MASTERS, password=composed)
    assert opened(tmp_path / "k", decomposed).list_keys() == sorted(MASTERS)


def test_a_password_may_be_any_bytes(tmp_path: Path) -> None:
    LocalKms.create(tmp_path / "k", MASTERS, password=b"\xff\x00\xfe")
    (tmp_path / "password").write_bytes(b"\xff\x00\xfe\n")
    assert LocalKms(tmp_path / "k", password_file=tmp_path / "password").list_keys() == sorted(MASTERS)


def test_the_real_work_of_a_guess_is_not_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    LocalKms.create(tmp_path / "k", MASTERS, password=PASSWORD)
    protection = json.loads((tmp_path / "k").read_text())["protection"]
    assert (protection["n"], protection["r"], protection["p"]) == (131072, 8, 1)
    assert opened(tmp_path / "k").list_keys() == sorted(MASTERS)


def test_only_one_secret_is_taken(path: Path) -> None:
    with pytest.raises(ValueError, match="give one of password, `password_file` and `key_file`"):
        LocalKms(path, password=PASSWORD, key_file=path)


def test_a_keystore_without_protection_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ags1.KeyAccessError, match="could not make a keystore: it needs a password"):
        LocalKms.create(tmp_path / "k", MASTERS)
    assert not (tmp_path / "k").exists()


def test_rotating_the_password_keeps_the_keys_and_shuts_out_the_old_one(path: Path) -> None:
    client = opened(path)
    wrapped = client.wrap_key(KEY, "lake")
    salt = json.loads(path.read_text())["protection"]["salt"]
    client.rotate_password("another")
    assert client.list_keys() == sorted(MASTERS)
    client.add_key("later")
    assert opened(path, "another").unwrap_key(wrapped, "lake") == KEY
    assert json.loads(path.read_text())["protection"]["salt"] != salt
    refused(path, "the password is wrong")


def test_rotating_needs_a_new_password(path: Path) -> None:
    with pytest.raises(ValueError, match="a new password is needed, as password or `password_file`, or a `key_file`"):
        opened(path).rotate_password()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "hex": lambda key: key.hex().encode() + b"\n",
    "base64": lambda key: base64.b64encode(key) + b"\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("length", KEYS)
def test_a_key_file_protects_instead_of_a_password(tmp_path: Path, length: int, form: str) -> None:
    (tmp_path / "protector").write_bytes(FORMS[form](KEYS[length]))
    LocalKms.create(tmp_path / "k", MASTERS, key_file=tmp_path / "protector")
    assert LocalKms(tmp_path / "k", key_file=tmp_path / "protector").list_keys() == sorted(MASTERS)
    (tmp_path / "raw").write_bytes(KEYS[length])
    assert LocalKms(tmp_path / "k", key_file=tmp_path / "raw").list_keys() == sorted(MASTERS)
    (tmp_path / "protector").write_bytes(OTHER_KEY)
    refused(tmp_path / "k", "the key file is wrong$", key_file=tmp_path / "protector")
    refused(tmp_path / "k", "it is protected by a key file: give it as `key_file`")


def test_a_key_file_without_a_key_is_refused_without_showing_it(path: Path) -> None:
    (path.parent / "bad").write_text("seventeen letters")
    refused(path, "bad holds no AES key: it has 17 bytes, but 16, 24 or 32 raw bytes", key_file=path.parent / "bad")


def test_a_password_becomes_a_key_file_and_back(path: Path) -> None:
    (path.parent / "protector").write_bytes(KEY)
    client = opened(path)
    client.rotate_password(key_file=path.parent / "protector")
    assert LocalKms(path, key_file=path.parent / "protector").list_keys() == sorted(MASTERS)
    client.rotate_password(PASSWORD)
    assert opened(path).list_keys() == sorted(MASTERS)


# -- damage and attack ---------------------------------------------------------------------------------------


def test_no_damaged_byte_goes_unnoticed(path: Path) -> None:
    good = path.read_bytes()
    for position in range(0, len(good), 3):
        data = bytearray(good)
        data[position] ^= 0x02
        path.write_bytes(data)
        try:
            if json.loads(data) == json.loads(good):
                continue
        except ValueError:
            pass
        with pytest.raises(ags1.KeyAccessError, match=r"it is damaged|not a keystore|version is unknown"):
            opened(path).list_keys()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_file_that_is_cut_short_is_refused(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(path, "it is not a keystore, or it is damaged")


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"[]", b"null", b"{}", b'{"format": "other"}', b"\xff\xfe", b"[" * 100_000]
)
def test_another_file_is_no_keystore(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    refused(path, "it is not a keystore")


def test_a_huge_file_is_no_keystore(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(keystore.LARGEST + 1)
    refused(path, f"it is not a keystore: it has more than {keystore.LARGEST} bytes")


@pytest.mark.parametrize("version", [0, 3, "1", None, True, 10**30])
def test_another_version_is_not_guessed_at(path: Path, version: Any) -> None:
    alter(path, lambda content: content.update(version=version))
    refused(path, "its version is unknown: .*; a newer ags1 may read it")


def alter(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the file as an attacker would, who can compute its checksum."""
    content = json.loads(path.read_text())
    change(content)
    del content["sha256"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    content["sha256"] = hashlib.sha256(canonical).hexdigest()
    path.write_text(json.dumps(content))


ATTACKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a key dropped": lambda content: content["keys"].pop("lake"),
    "a key renamed": lambda content: content["keys"].update(new=content["keys"].pop("lake")),
    "two keys swapped": lambda content: content["keys"].update(
        lake=content["keys"]["sea"], sea=content["keys"]["lake"]
    ),
    "a key doubled": lambda content: content["keys"].update(new=content["keys"]["lake"]),
    "all keys dropped": lambda content: content["keys"].clear(),
    "a key added": lambda content: content["keys"].update(new=[base64.b64encode(bytes(60)).decode()]),
    "an old version added": lambda content: content["keys"]["lake"].append(content["keys"]["sea"][0]),
    "an old version doubled": lambda content: content["keys"]["lake"].append(content["keys"]["lake"][0]),
    "a member added": lambda content: content.update(note="harmless"),
    "a member of the protection added": lambda content: content["protection"].update(note="harmless"),
    "the seal of zeros": lambda content: content.update(seal=base64.b64encode(bytes(32)).decode()),
    "the seal empty": lambda content: content.update(seal=""),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_altered_file_is_told_from_a_wrong_password(path: Path, attack: str) -> None:
    alter(path, ATTACKS[attack])
    refused(path, "it was changed without its password")


MALFORMED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no keys": lambda content: content.pop("keys"),
    "keys a list": lambda content: content.update(keys=[]),
    "a key a number": lambda content: content["keys"].update(lake=7),
    "a version a number": lambda content: content["keys"].update(lake=[7]),
    "a key without a version": lambda content: content["keys"].update(lake=[]),
    "a version no base64": lambda content: content["keys"].update(lake=["?"]),
    "no seal": lambda content: content.pop("seal"),
    "the check a list": lambda content: content.update(check=[]),
    "no protection": lambda content: content.pop("protection"),
    "an unknown protection": lambda content: content["protection"].update(kind="none"),
    "an unknown derivation": lambda content: content["protection"].update(kdf="none"),
    "no salt": lambda content: content["protection"].pop("salt"),
    "all of the memory": lambda content: content["protection"].update(n=1 << 40),
    "memory of gigabytes": lambda content: content["protection"].update(n=1 << 20, r=16),
    "work of minutes": lambda content: content["protection"].update(n=1 << 20, r=8, p=8),
    "a little more work than is allowed": lambda content: content["protection"].update(n=1 << 19, r=8, p=2),
    "more rounds than scrypt has for this size": lambda content: content["protection"].update(n=1 << 16, r=1),
    "no power of two": lambda content: content["protection"].update(n=100_000),
    "too little work": lambda content: content["protection"].update(n=2),
    "a negative size": lambda content: content["protection"].update(r=-1),
    "a huge size": lambda content: content["protection"].update(r=1 << 30),
    "no parallelism": lambda content: content["protection"].update(p=0),
    "a truth for a number": lambda content: content["protection"].update(p=True),
    "a fraction for a number": lambda content: content["protection"].update(r=8.0),
    "text for a number": lambda content: content["protection"].update(n="1024"),
}


@pytest.mark.parametrize("change", MALFORMED)
def test_a_malformed_file_is_refused_before_any_work_is_done(path: Path, change: str) -> None:
    alter(path, MALFORMED[change])
    refused(path, "it is damaged")


def test_another_salt_looks_like_a_wrong_password(path: Path) -> None:
    alter(path, lambda content: content["protection"].update(salt=base64.b64encode(bytes(16)).decode()))
    refused(path, "the password is wrong")


def test_an_entry_of_another_keystore_under_the_same_password_is_refused(path: Path) -> None:
    other = path.parent / "other.json"
    LocalKms.create(other, {"lake": OTHER_KEY}, password=PASSWORD)
    foreign = json.loads(other.read_text())["keys"]["lake"]
    alter(path, lambda content: content["keys"].update(lake=foreign))
    refused(path, "it was changed without")


def test_no_message_shows_a_password_or_a_key(path: Path) -> None:
    texts = []
    good = path.read_bytes()
    for change in [*ATTACKS.values(), *MALFORMED.values()]:
        path.write_bytes(good)
        alter(path, copy.deepcopy(change))
        with pytest.raises(ags1.KeyAccessError) as caught:
            opened(path).wrap_key(KEY, "lake")
        texts += [str(caught.value), repr(opened(path))]
    shown = "".join(texts)
    for secret in (PASSWORD, KEY.hex(), *(each.hex() for each in MASTERS.values())):
        assert secret not in shown
