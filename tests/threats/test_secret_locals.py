"""No key stands in the local variables of a failing call: of a KMS, a table's keys, a dataset, a Parquet file.

Tools that print the locals of every frame (pytest -l, rich, sentry) print those of ags1's frames too.
"""

from __future__ import annotations

import base64
import itertools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import dataset, kms, parquet
from ags1.iceberg import EncryptionKeys
from ags1.kms import keystore
from ags1.parquet.keys.kms_keys import DataKeyUnwrapper, DataKeyWrapper, as_key_service
from ags1.parquet.keys.material import KeyMaterial, wrap_locally
from tests.checks import damage, every
from tests.iceberg.key_lists import KEK, MASTERS, OTHER_KEK, kek_entry, keys_of, list_entry
from tests.threats.test_secrets import assert_silent

SECRET = bytes.fromhex("d1e5a7c3f90b64823b7dce1f2a98e4567c0db3f1a6587e9943c28fb5e06d174a")
Failing = Callable[[Path], object]


class Denied(Exception):
    """What a service says."""


class Service:
    """A KMS of the user's own that notes each key that it sees, and misbehaves as it is told."""

    def __init__(self, **behaviour: Any) -> None:
        self.behaviour = behaviour
        self.seen: set[bytes] = set()
        self.under: dict[str, bytes] = {**MASTERS, "kf": bytes(range(60, 76)), "new": bytes(range(70, 86))}

    def wrap_key(self, key: Any, wrapping_key_id: str) -> bytes:
        self.seen.add(bytes(key))
        if "wrap" in self.behaviour:
            return self.behaviour["wrap"](bytes(key), wrapping_key_id)  # type: ignore[no-any-return]
        return kms.MemoryKms(self.under).wrap_key(key, wrapping_key_id)

    def unwrap_key(self, wrapped_key: Any, wrapping_key_id: str) -> bytes:
        key = kms.MemoryKms(self.under).unwrap_key(wrapped_key, wrapping_key_id)
        self.seen.add(key)
        if "unwrap" in self.behaviour:
            return self.behaviour["unwrap"](key, wrapping_key_id)  # type: ignore[no-any-return]
        return key


class Client(kms.KeyManagementClient):
    """The same as a client of ags1's base class."""

    def __init__(self, service: Service) -> None:
        super().__init__(attempts=2, sleep=lambda _: None)
        self._inner = service

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        return self._inner.wrap_key(key, key_id)

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        return self._inner.unwrap_key(wrapped, key_id)

    def supports_key_generation(self) -> bool:
        return "generate" in self._inner.behaviour

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        found: tuple[bytes, bytes] = self._inner.behaviour["generate"]
        self._inner.seen.add(found[0])
        return found


def raising(error: type[Exception]) -> Callable[..., Any]:
    def fail(key: bytes, key_id: str) -> bytes:
        raise error(f"not for {key_id}")

    return fail


def echoing(key: bytes, key_id: str) -> bytes:
    raise Denied(f"you sent {key!r}, {key.hex()} and {base64.b64encode(key).decode()}")


MISBEHAVIOUR: dict[str, dict[str, Any]] = {
    "wrap is denied": {"wrap": raising(Denied)},
    "wrap times out": {"wrap": raising(TimeoutError)},
    "wrap is refused": {"wrap": raising(ags1.KeyAccessError)},
    "wrap is not there": {"wrap": raising(NotImplementedError)},
    "wrap lacks a module": {"wrap": raising(ImportError)},
    "wrap echoes": {"wrap": echoing},
    "wrap returns the key": {"wrap": lambda key, _: b"here: " + key},
    "wrap returns text": {"wrap": lambda key, _: key.hex()},
    "wrap returns nothing": {"wrap": lambda *_: b""},
    "unwrap is denied": {"unwrap": raising(Denied)},
    "unwrap is refused": {"unwrap": raising(ags1.KeyAccessError)},
    "unwrap returns half": {"unwrap": lambda key, _: key[:-1]},
    "unwrap returns text": {"unwrap": lambda key, _: key.hex()},
    "unwrap returns another": {"unwrap": lambda key, _: bytes(len(key))},
}


def clients(behaviour: dict[str, Any]) -> dict[str, tuple[Service, Any]]:
    own, inner = Service(**behaviour), Service(**behaviour)
    return {"foreign": (own, own), "ags1": (inner, Client(inner))}


def table_of(service: Service) -> EncryptionKeys:
    service.seen |= {KEK, OTHER_KEK}
    return keys_of(kek_entry(), list_entry())


def of_dataset(directory: Path, service: Service) -> dataset.Dataset:
    (directory / "raw").mkdir()
    (directory / "raw" / "a").write_bytes(bytes(5000))
    (directory / "raw" / "b").write_bytes(bytes(5000))
    good = Service()
    dataset.encrypt(directory / "raw", directory / "vault", good, "lake").close()
    opened = dataset.open(directory / "vault", good)
    service.seen |= good.seen
    return opened


def material_of(service: Service) -> KeyMaterial:
    good = Service()
    made = DataKeyWrapper(as_key_service(good)).wrap(ags1.Key(SECRET), "kf", is_footer_key=True)
    service.seen |= good.seen | {SECRET}
    return made


def work_of(directory: Path) -> dict[str, Callable[[Service, Any], object]]:
    """Calls with a KMS in their hands."""
    return {
        "wrap_key": lambda service, client: as_key_service(client).wrap(ags1.Key(SECRET), "kf"),
        "unwrap": lambda service, client: table_of(service).unwrap("list", client),
        "add": lambda service, client: keys_of().add_manifest_list_key(ags1.KeyMetadata(SECRET), client, "lake"),
        "rewrap": lambda service, client: table_of(service).rewrap(Service(), "new", client),
        "dataset.encrypt": lambda service, client: _encrypted(directory, client),
        "dataset.rewrap": lambda service, client: of_dataset(directory, service).rewrap("new", client),
        "dataset.open": lambda service, client: _reopened(directory, service, client),
        "DataKeyWrapper": lambda service, client: DataKeyWrapper(as_key_service(client)).wrap(
            ags1.Key(SECRET), "kf", is_footer_key=True
        ),
        "DataKeyUnwrapper": lambda service, client: DataKeyUnwrapper(as_key_service(client)).unwrap(
            material_of(service)
        ),
        "rewrap_key_metadata": lambda service, client: parquet.rewrap_key_metadata(
            material_of(service).encode(internal=True), client
        ),
    }  # fmt: skip


def _encrypted(directory: Path, client: Any) -> None:
    (directory / "raw").mkdir()
    (directory / "raw" / "a").write_bytes(bytes(5000))
    with dataset.encrypt(directory / "raw", directory / "vault", client, "lake") as made:
        made.open("a").read()


def _reopened(directory: Path, service: Service, client: Any) -> None:
    of_dataset(directory, service).close()
    with dataset.open(directory / "vault", client) as opened:
        opened.open("a").read()


WORK = tuple(work_of(Path()))


def frames_of(error: BaseException) -> list[str]:
    """The local variables of ags1's frames, as tools show them, of an error and of all that hang on it."""
    shown, waiting, known = [], [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in known:
            continue
        known.add(id(each))
        trace = traceback.TracebackException.from_exception(each, capture_locals=True)
        shown += [
            f"{frame.filename}:{frame.lineno} {frame.name} {name}={value}"
            for frame in trace.stack
            if f"{os.sep}ags1{os.sep}" in frame.filename
            for name, value in (frame.locals or {}).items()
        ]
        shown.append(f"{each} {each!r}")
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
    return shown


def assert_no_key(error: BaseException, keys: set[bytes]) -> None:
    shown = frames_of(error)
    for key in keys:
        if len(set(key)) > 1:
            for text in shown:
                assert_silent(text, key)


def test_the_check_itself_sees_the_frames_of_ags1() -> None:
    with pytest.raises(ags1.AuthenticationError) as caught:
        ags1.decrypt(damage(ags1.encrypt(b"x" * 100, SECRET), 50, 1), SECRET)
    with pytest.raises(AssertionError):
        assert_no_key(caught.value, {SECRET})


@pytest.mark.parametrize("name", WORK)
@every("case", itertools.product(MISBEHAVIOUR, ["foreign", "ags1"]))
def test_a_kms_that_fails_leaves_no_key_in_any_frame(name: str, case: tuple[str, str], tmp_path: Path) -> None:
    fault, kind = case
    directory = tmp_path / f"{fault}, {kind}"
    directory.mkdir()
    service, client = clients(MISBEHAVIOUR[fault])[kind]
    try:
        work_of(directory)[name](service, client)
    except Exception as error:
        service.seen.add(SECRET)
        # What another key decrypts with is not secret; what the service echoes, its own frames may show.
        assert_no_key(error, service.seen - {bytes(16), bytes(24), bytes(32)})


@pytest.mark.parametrize("length", [15, 16, 31, 33])
def test_a_generated_key_that_is_refused_is_in_no_frame(length: int) -> None:
    secret = (SECRET * 2)[:length]
    client = Client(Service(generate=(secret, b"" if length == 16 else b"wrapped" * 9)))
    for call in (
        lambda: client.generate_key("lake"),
        lambda: keys_of().add_manifest_list_key(ags1.KeyMetadata(bytes(16)), client, "lake"),
    ):
        with pytest.raises(ags1.KeyAccessError) as caught:
            call()
        assert_no_key(caught.value, {secret})


@pytest.mark.parametrize("length", [8, 40])
def test_a_secret_that_is_no_key_is_in_no_frame_either(length: int) -> None:
    secret = (SECRET * 2)[:length]
    with pytest.raises(ags1.KeyAccessError) as caught:
        Client(Service(wrap=raising(Denied))).wrap_key(secret, "lake")
    assert_no_key(caught.value, {secret})


def bad_key_metadata() -> list[bytes]:
    whole = ags1.KeyMetadata(SECRET, b"p" * 16, 1234).encode()
    return [whole[:20], whole[:40], b"\x02" + whole[1:], b"\x01\x3e" + whole[2:], whole[:34] + b"\x06" + whole[35:]]


@pytest.mark.parametrize("number", range(5))
def test_damaged_key_metadata_stays_out_of_the_frames(number: int) -> None:
    data = bad_key_metadata()[number]
    with pytest.raises(ags1.FormatError) as caught:
        ags1.KeyMetadata.decode(data)
    assert_no_key(caught.value, {SECRET})
    keys = keys_of(kek_entry(), list_entry(plain=data))
    with pytest.raises(ags1.FormatError) as caught:
        keys.unwrap("list", kms.MemoryKms(MASTERS))
    assert_no_key(caught.value, {SECRET, KEK})


def parquet_files(directory: Path) -> dict[str, Callable[[], object]]:
    """Calls that fail on Parquet files, with a key in their hands."""
    plain, sealed, bad = directory / "plain.parquet", directory / "sealed.parquet", directory / "bad.parquet"
    pq.write_table(pa.table({"a": list(range(1000)), "b": ["x" * 20] * 1000}), plain)
    key = ags1.Key(SECRET)
    config = parquet.EncryptionConfig(key)
    parquet.encrypt_file(plain, sealed, config)
    data = bytearray(sealed.read_bytes())
    data[len(data) // 3] ^= 1
    bad.write_bytes(data)
    foot = bytearray(sealed.read_bytes())
    foot[-30] ^= 1
    (directory / "foot.parquet").write_bytes(foot)
    reading = parquet.DecryptionConfig(key)
    other = ags1.Key(SECRET[::-1])
    return {
        "damaged page": lambda: parquet.decrypt_file(bad, directory / "out", reading),
        "damaged footer": lambda: parquet.read_table(directory / "foot.parquet", reading),
        "wrong key": lambda: parquet.read_table(sealed, parquet.DecryptionConfig(other)),
        "rekey": lambda: parquet.rekey_file(bad, directory / "out", reading, parquet.EncryptionConfig(other)),
        "no such column": lambda: parquet.encrypt_file(
            plain, directory / "out", parquet.EncryptionConfig(key, column_keys={"nowhere": key})
        ),
        "not Parquet": lambda: parquet.read_table(_text(directory), reading),
        "nowhere": lambda: parquet.encrypt_file(plain, directory / "no" / "where", config),
    }


def _text(directory: Path) -> Path:
    (directory / "text").write_bytes(b"no Parquet at all, however long it may be")
    return directory / "text"


def test_parquet_files_that_fail_leave_no_key_in_any_frame(tmp_path: Path) -> None:
    for name, call in parquet_files(tmp_path).items():
        try:
            call()
        except (ags1.Ags1Error, OSError, ValueError) as error:
            assert_no_key(error, {SECRET, SECRET[::-1]})
        else:
            pytest.fail(f"{name} did not fail")


def test_a_data_key_that_does_not_open_leaves_no_key_in_any_frame() -> None:
    service = Service()
    material = material_of(service)
    claimed = KeyMaterial(
        is_footer_key=True, master_key_id="kf", kek_id=b"other", wrapped_kek=material.wrapped_kek,
        wrapped_dek=wrap_locally(SECRET, ags1.Key(OTHER_KEK), b"other"),
    )  # fmt: skip
    with pytest.raises(ags1.AuthenticationError) as caught:
        DataKeyUnwrapper(as_key_service(Service())).unwrap(claimed)
    assert_no_key(caught.value, service.seen | {OTHER_KEK, SECRET})


@pytest.mark.parametrize("which", ["manifest", "file", "version"])
def test_a_damaged_dataset_leaves_no_key_in_any_frame(which: str, tmp_path: Path) -> None:
    service = Service()
    of_dataset(tmp_path, service).close()
    control = tmp_path / "vault" / "_ags1"
    files = {
        "manifest": next((control / "manifests").iterdir()),
        "file": next(path for path in (tmp_path / "vault").iterdir() if path.is_file()),
        "version": control / "v-1.json",
    }
    data = bytearray(files[which].read_bytes())
    data[len(data) // 2] ^= 1
    files[which].write_bytes(data)
    reader = Service()
    with pytest.raises((ags1.Ags1Error, ValueError)) as caught:  # noqa: PT012
        with dataset.open(tmp_path / "vault", reader) as opened:
            report = opened.verify()
            assert not report.ok
            opened.decrypt(tmp_path / "out")
    assert_no_key(caught.value, service.seen | reader.seen)


@pytest.mark.parametrize("option", ["password", "password_file", "key_file"])
def test_a_keystore_that_does_not_open_leaves_no_password_in_any_frame(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A guess costs little: there are many here.
    monkeypatch.setattr(keystore, "SCRYPT_N", 1 << 10)
    words = b"zq7Wx-Kp9Lm2-vB4nT8rY"
    (tmp_path / "secret").write_bytes(words)
    kms.LocalKms.create(tmp_path / "keys", password="another one", keys={"lake": SECRET}).close()
    given: Any = words.decode() if option == "password" else tmp_path / "secret"
    client = kms.LocalKms(tmp_path / "keys", **{option: given})
    for call in (
        lambda: client.wrap_key(SECRET, "lake"),
        lambda: client.list_keys(),
        lambda: client.add_key("more", SECRET),
        lambda: client.rotate_password("9KxPz3-mQ7wLt5-Rb1Vy"),
        lambda: kms.LocalKms.create(tmp_path / "keys", {"lake": SECRET}, password=words.decode()),
    ):
        with pytest.raises((ags1.KeyAccessError, FileExistsError)) as caught:
            call()
        assert_no_key(caught.value, {SECRET, words, b"9KxPz3-mQ7wLt5-Rb1Vy"})
