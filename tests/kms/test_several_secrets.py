"""A local keystore that several secrets open, each by itself: one in a safe, one of a second region."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ags1 import Key, KeyAccessError
from ags1.kms import LocalKms, base, keystore
from tests.checks import KEY, KEYS


@pytest.fixture(autouse=True)
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that a test can afford."""
    monkeypatch.setattr("ags1.kms.keystore.SCRYPT_N", 1 << 10)


def sealed_again(path: Path, content: dict[str, Any]) -> None:
    """Write a changed keystore with the checksum that anybody can compute."""
    content.pop("sha256", None)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**content, "sha256": hashlib.sha256(text.encode()).hexdigest()}))


def several(path: Path) -> dict[str, dict[str, Any]]:
    """A keystore that three secrets open, and those secrets."""
    secrets: dict[str, dict[str, Any]] = {
        "daily": {"key_file": path.with_name("daily.key")},
        "safe": {"password": "break the glass"},
        "region": {"key_file": path.with_name("region.key")},
    }
    for name in ("daily", "region"):
        Key.generate().save(path.with_name(f"{name}.key"))
    store = LocalKms.create(path, {"lake": KEY}, **secrets["daily"])
    assert store.add_secret(**secrets["safe"]) == 2
    assert LocalKms(path, **secrets["safe"]).add_secret(**secrets["region"]) == 3
    return secrets


def test_each_of_several_secrets_opens_the_keystore(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secrets = several(path)
    wrapped = LocalKms(path, **secrets["daily"]).wrap_key(KEYS[16], "lake")
    for secret in secrets.values():
        store = LocalKms(path, **secret)
        assert store.unwrap_key(wrapped, "lake") == KEYS[16]
        store.add_key(f"of {next(iter(secret))} {sorted(store.list_keys())}")
    assert len(LocalKms(path, **secrets["region"]).list_keys()) == 4
    for wrong in ({"password": "break the grass"}, {"key_file": tmp_path / "other.key"}):
        if "key_file" in wrong:
            Key.generate().save(tmp_path / "other.key")
        with pytest.raises(KeyAccessError, match="wrong"):
            LocalKms(path, **wrong).list_keys()


def test_a_changed_secret_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secrets = several(path)
    LocalKms(path, **secrets["safe"]).rotate_password("another glass")
    for secret in (secrets["daily"], secrets["region"], {"password": "another glass"}):
        assert LocalKms(path, **secret).list_keys() == ["lake"]
    with pytest.raises(KeyAccessError, match="wrong"):
        LocalKms(path, **secrets["safe"]).list_keys()


def test_removed_secrets_open_nothing_that_is_written_from_then_on(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secrets = several(path)
    before = json.loads(path.read_text())
    assert LocalKms(path, **secrets["daily"]).keep_one_secret() == 2
    assert LocalKms(path, **secrets["daily"]).list_keys() == ["lake"]
    for name in ("safe", "region"):
        with pytest.raises(KeyAccessError):
            LocalKms(path, **secrets[name]).list_keys()
    after = json.loads(path.read_text())
    assert after["version"] == 1
    assert after["keys"] != before["keys"], "the keys are still sealed under what the removed secrets have"


def test_an_old_copy_and_a_leaked_secret_open_nothing_once_the_others_were_removed(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    secrets = several(path)
    leaked = keystore.Protection.of(path.read_bytes(), password=secrets["safe"]["password"])
    LocalKms(path, **secrets["safe"]).rotate_password("another glass")
    # A secret that is only changed leaves what all of them have wrapped: the guide says so.
    assert list(keystore.parse(path.read_bytes(), leaked)) == ["lake"]
    LocalKms(path, **secrets["daily"]).keep_one_secret()
    LocalKms(path, **secrets["daily"]).add_secret(**secrets["region"])
    with pytest.raises(base.Refusal, match="wrong"):
        keystore.parse(path.read_bytes(), leaked)


def test_no_entry_of_another_keystore_is_taken_for_one_of_this(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "keys.json", tmp_path / "b" / "keys.json"
    for path in (first, second):
        path.parent.mkdir()
    secrets = several(first)
    theirs = several(second)
    content, other = json.loads(first.read_text()), json.loads(second.read_text())
    content["protection"]["secrets"][2] = other["protection"]["secrets"][2]
    sealed_again(first, content)
    for secret in (theirs["region"], secrets["daily"]):
        with pytest.raises(KeyAccessError):
            LocalKms(first, **secret).list_keys()


def test_many_passwords_do_not_make_a_hostile_keystore_expensive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys.json"
    several(path)
    content = json.loads(path.read_text())
    entry = next(each for each in content["protection"]["secrets"] if each["kind"] == "password")
    content["protection"]["secrets"] = [{**entry, "n": 1 << 18}] * 3
    sealed_again(path, content)

    def count(*arguments: Any, **options: Any) -> bytes:
        raise AssertionError("scrypt was run")

    monkeypatch.setattr("hashlib.scrypt", count)
    with pytest.raises(KeyAccessError, match="damaged"):
        LocalKms(path, password="x").list_keys()


def test_there_is_a_limit_of_secrets(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    several(path)
    store = LocalKms(path, key_file=tmp_path / "daily.key")
    for number in range(5):
        Key.generate().save(tmp_path / f"{number}.key")
        store.add_secret(key_file=tmp_path / f"{number}.key")
    with pytest.raises(KeyAccessError, match="8 secrets already"):
        store.add_secret(key_file=tmp_path / "region.key")
    assert store.list_keys() == ["lake"]
