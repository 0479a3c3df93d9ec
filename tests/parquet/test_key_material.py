"""Key material of the key tools: exact JSON, hostile JSON, and few calls to the KMS."""

from __future__ import annotations

import base64
import contextlib
import copy
import json
import os
import pickle
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ags1 import AuthenticationError, FormatError, Key, KeyAccessError
from ags1.core.gcm import open_message, random_bytes, seal_message
from ags1.kms import MemoryKms
from ags1.parquet import inspect, read_table, verify_file, write_table
from ags1.parquet.keys import key_description, key_material, kms_keys, material_file
from ags1.parquet.keys.key_material import (
    KeyMaterial,
    key_material_path,
    parse_key_metadata,
    parse_store,
    rotate_master_keys,
)
from ags1.parquet.keys.kms_keys import DataKeyUnwrapper, DataKeyWrapper, as_key_service
from ags1.parquet.keys.material import encode_reference, encode_store, unwrap_locally, wrap_locally
from ags1.parquet.keys.material_file import read_key_material
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from tests.checks import flip, in_child, in_threads
from tests.parquet.key_tools import COLUMNS, MASTERS, CountingKms

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "parquet-testing"
KEK_ID = bytes(range(16))


class JavaInMemoryKms:
    """The KMS of parquet-java's own tests: AES-GCM bound to the id of the master key."""

    def wrap_key(self, key: bytes, key_id: str) -> bytes:
        nonce = random_bytes(12)
        return nonce + seal_message(key, MASTERS[key_id], nonce, key_id.encode())

    def unwrap_key(self, wrapped: bytes, key_id: str) -> bytes:
        key = open_message(wrapped[12:], MASTERS[key_id], wrapped[:12], key_id.encode())
        if key is None:
            raise ValueError("another key")
        return key


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


# -- the bytes ---------------------------------------------------------------------------------------------------


def test_known_key_material_is_written_byte_for_byte_and_read() -> None:
    material = KeyMaterial(
        is_footer_key=True, master_key_id="kf", wrapped_dek="d3JhcHBlZA==", kek_id=KEK_ID, wrapped_kek="a2Vr"
    )
    rest = (
        '"isFooterKey":true,"kmsInstanceID":"DEFAULT","kmsInstanceURL":"DEFAULT","masterKeyID":"kf",'
        '"wrappedDEK":"d3JhcHBlZA==","doubleWrapping":true,"keyEncryptionKeyID":"AAECAwQFBgcICQoLDA0ODw==",'
        '"wrappedKEK":"a2Vr"}'
    )
    inside = f'{{"keyMaterialType":"PKMT1","internalStorage":true,{rest}'.encode()
    outside = f'{{"keyMaterialType":"PKMT1",{rest}'.encode()
    assert material.encode(internal=True) == inside
    assert material.encode(internal=False) == outside
    assert parse_key_metadata(inside) == KeyMaterial.decode(outside) == material


def test_a_column_with_single_wrapping_has_no_instance_and_no_key_encryption_key() -> None:
    material = KeyMaterial(is_footer_key=False, master_key_id="kc1", wrapped_dek="d3JhcHBlZA==")
    encoded = material.encode(internal=False)
    assert encoded == (
        b'{"keyMaterialType":"PKMT1","isFooterKey":false,"masterKeyID":"kc1","wrappedDEK":"d3JhcHBlZA==",'
        b'"doubleWrapping":false}'
    )
    assert KeyMaterial.decode(encoded) == material


def test_a_reference_is_written_byte_for_byte_and_read() -> None:
    encoded = b'{"keyMaterialType":"PKMT1","internalStorage":false,"keyReference":"columnKey7"}'
    assert encode_reference("columnKey7") == encoded
    assert parse_key_metadata(encoded) == "columnKey7"


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(st.booleans(), TEXTS, TEXTS, st.none() | st.binary(max_size=20), TEXTS, TEXTS)
def test_decode_undoes_encode(footer: bool, master: str, dek: str, kek_id: bytes | None, kek: str, url: str) -> None:
    material = KeyMaterial(
        is_footer_key=footer,
        master_key_id=master,
        wrapped_dek=dek,
        kek_id=kek_id or None,
        wrapped_kek=kek if kek_id else None,
        kms_instance_url=url if footer else "DEFAULT",
    )
    assert parse_key_metadata(material.encode(internal=True)) == material
    assert parse_store(encode_store({"footerKey": material, "ключ": material})) == {
        "footerKey": material,
        "ключ": material,
    }


def test_members_are_read_by_name_and_unknown_ones_are_passed_over() -> None:
    material = KeyMaterial(is_footer_key=False, master_key_id="kc1", wrapped_dek="d3Jh")
    members = json.loads(material.encode(internal=True))
    shuffled = json.dumps({**dict(reversed(members.items())), "later": [1, None]}, indent=2)
    assert parse_key_metadata(shuffled.encode()) == material


GOOD: dict[str, Any] = {
    "keyMaterialType": "PKMT1",
    "internalStorage": True,
    "isFooterKey": True,
    "masterKeyID": "kf",
    "wrappedDEK": "d3Jh",
    "doubleWrapping": True,
    "keyEncryptionKeyID": "AAEC",
    "wrappedKEK": "a2Vr",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_member_that_is_missing_or_of_a_wrong_type_is_named(name: str) -> None:
    with pytest.raises(FormatError, match=rf"the key material has no {name}"):
        parse_key_metadata(json.dumps({key: value for key, value in GOOD.items() if key != name}).encode())
    wrong: Any
    for wrong in (None, 5, 1.5, [], {}, "true" if isinstance(GOOD[name], bool) else True):
        with pytest.raises(FormatError, match=f"^{name} of the key material must be .*, not "):
            parse_key_metadata(json.dumps({**GOOD, name: wrong}).encode())


@pytest.mark.parametrize("name", ["kmsInstanceID", "kmsInstanceURL"])
def test_the_instance_may_be_missing_but_is_a_text(name: str) -> None:
    assert isinstance(parse_key_metadata(json.dumps(GOOD).encode()), KeyMaterial)
    with pytest.raises(FormatError, match=f"{name} of the key material must be a string, not a number"):
        parse_key_metadata(json.dumps({**GOOD, name: 1}).encode())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "key metadata of 0 bytes is not JSON of the key tools"),
        (b"kf", "key metadata of 2 bytes is not JSON of the key tools"),
        (b"\xff\xfe", "is not JSON of the key tools"),
        (b"[" * 100_000, "is not JSON of the key tools"),
        (b"9" * 10_000, "is not JSON of the key tools"),
        (b"[]", "key metadata must be a JSON object of the key tools (PKMT1), not a list"),
        (b'{"a":1,"a":2}', "key metadata has a member twice"),
        (b'{"masterKeyID":"\\ud800"}', "is not JSON of the key tools"),
        (b'{"keyMaterialType":"PKMT2"}', "keyMaterialType is 'PKMT2'; only PKMT1 is supported"),
        (json.dumps({**GOOD, "masterKeyID": ""}).encode(), "masterKeyID of the key material is empty"),
        (
            json.dumps({**GOOD, "masterKeyID": "k" * 5000}).encode(),
            "masterKeyID of the key material has 5000 ",
        ),
        (
            json.dumps({**GOOD, "keyEncryptionKeyID": "*"}).encode(),
            "keyEncryptionKeyID of the key material is not base64",
        ),
        (b'{"keyMaterialType":"PKMT1","internalStorage":false}', "the key material has no keyReference"),
    ],
    ids=range(13),
)
def test_hostile_key_metadata_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_key_metadata(data)
    assert message in str(caught.value)


@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_arbitrary_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with pytest.raises(FormatError):
        parse_key_metadata(data)


def test_hostile_key_material_files_are_refused_and_the_key_is_named() -> None:
    with pytest.raises(FormatError, match="has 'footerKey' as an object; it must be a string with JSON in it"):
        parse_store(b'{"footerKey":{}}')
    with pytest.raises(
        FormatError, match=r"^'columnKey0' of the key material file: the key material has no keyMaterial"
    ):
        parse_store(b'{"columnKey0":"{}"}')


# -- wrapping here -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_a_locally_wrapped_key_is_nonce_ciphertext_and_tag_bound_to_the_aad(bits: int) -> None:
    key, kek = Key.generate(bits), Key.generate(128)
    wrapped = wrap_locally(key, kek, KEK_ID)
    data = base64.b64decode(wrapped)
    assert len(data) == 12 + bits // 8 + 16
    assert open_message(data[12:], kek, data[:12], KEK_ID) == bytes(key)
    assert unwrap_locally(wrapped, kek, KEK_ID) == key
    for wrapping, aad in ((Key.generate(128), KEK_ID), (kek, flip(KEK_ID, 3))):
        with pytest.raises(AuthenticationError, match="wrappedDEK failed authentication"):
            unwrap_locally(wrapped, wrapping, aad)
    with pytest.raises(AuthenticationError):
        unwrap_locally(base64.b64encode(flip(data, 14)).decode(), kek, KEK_ID)


@pytest.mark.parametrize("length", [0, 28, 43, 45, 61])
def test_a_locally_wrapped_key_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(FormatError, match=f"wrappedDEK has {length} bytes; a wrapped AES key has 44, 52 or 60"):
        unwrap_locally(base64.b64encode(bytes(length)).decode(), Key.generate(128), b"")


# -- files under a KMS -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("internal", [True, False])
@pytest.mark.parametrize("bits", [128, 192, 256])
def test_keys_that_were_written_are_found_again(tmp_path: Path, double: bool, internal: bool, bits: int) -> None:
    config = EncryptionConfig.from_kms(
        MemoryKms(MASTERS),
        "kf",
        {"kc1": ["ssn", "a"], "kc2": ["salary"]},
        double_wrapping=double,
        internal_key_material=internal,
        data_key_bits=bits,
        kek_bits=bits,
        encrypt_all=True,
    )
    file = config.for_file()
    columns = file.columns(COLUMNS)
    target = tmp_path / "x.parquet"
    stored = file.external_key_material()
    assert (stored is None) == internal
    if stored is not None:
        assert file.footer_key_metadata == encode_reference("footerKey")
        assert sorted(json.loads(stored)) == ["columnKey0", "columnKey1", "columnKey2", "columnKey3", "footerKey"]
        assert key_material_path(target) == str(tmp_path / "_KEY_MATERIAL_FOR_x.parquet.json")
        Path(key_material_path(target)).write_bytes(stored)
    reading = DecryptionConfig.from_kms(MemoryKms(MASTERS)).for_file(target)
    assert reading.footer_key(file.footer_key_metadata) == file.footer_key
    assert file.footer_key.bits == bits
    own = [column for column in columns if column is not None and not column.with_footer_key]
    assert len({bytes(column.key) for column in own} | {bytes(file.footer_key)}) == 5
    for path, column in zip(COLUMNS, columns, strict=True):
        assert column is not None
        if not column.with_footer_key:
            assert column.key.bits == bits
            assert reading.column_key(path, column.key_metadata) == column.key


def test_every_file_has_fresh_keys_and_a_column_keeps_its_own() -> None:
    config = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", {"kc1": ["ssn", "salary"]})
    keys = set()
    for _ in range(3):
        file = config.for_file()
        columns = file.columns(COLUMNS)
        again = file.columns(COLUMNS)
        assert [column and column.key for column in columns] == [column and column.key for column in again]
        keys |= {bytes(file.footer_key)} | {bytes(column.key) for column in columns if column}
    assert len(keys) == 9


def test_the_instance_is_said_with_the_footer_key() -> None:
    file = EncryptionConfig.from_kms(
        MemoryKms(MASTERS), "kf", {"kc1": ["ssn"]}, kms_instance_id="eu", kms_instance_url="https://kms"
    ).for_file()
    assert file.footer_key_metadata is not None
    footer = parse_key_metadata(file.footer_key_metadata)
    assert isinstance(footer, KeyMaterial)
    assert (footer.kms_instance_id, footer.kms_instance_url) == ("eu", "https://kms")
    column = file.columns([("ssn",)])[0]
    assert column is not None
    assert b"kmsInstance" not in (column.key_metadata or b"")


def test_uniform_and_footer_only_encryption_make_one_key() -> None:
    kms = CountingKms()
    uniform = EncryptionConfig.from_kms(kms, "kf", double_wrapping=False).for_file()
    assert all(column is not None and column.with_footer_key for column in uniform.columns(COLUMNS))
    only = EncryptionConfig.from_kms(kms, "kf", {}, double_wrapping=False).for_file()
    assert only.columns(COLUMNS) == [None] * 5
    assert kms.wraps == 2


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("",), {}, ValueError, "footer_key_id has an empty master key id"),
        ((5,), {}, TypeError, "footer_key_id must be the id of a master key, a str, not int"),
        (("kf", ["ssn"]), {}, TypeError, "column_key_ids must be a mapping, not list"),
        (("kf", {"kc1": "ssn"}), {}, TypeError, "is the master key, else {'kc1': ['ssn']}"),
        (("kf", {"kc1": ("a", "x")}), {}, TypeError, "must have a list of column names here, not tuple"),
        (("kf", {"kc1": []}), {}, ValueError, "has an empty list of columns"),
        (("kf", {"kc1": ["ssn"], "kc2": ["ssn"]}), {}, ValueError, "'ssn' is given twice, with different master keys"),
        (("kf",), {"data_key_bits": 100}, ValueError, "data_key_bits must be 128, 192 or 256, not 100"),
        (("kf",), {"kek_bits": 64}, ValueError, "kek_bits must be 128, 192 or 256, not 64"),
        (("kf",), {"cache_seconds": -1}, ValueError, "cache_seconds must not be negative, got -1"),
        (("kf",), {"double_wrapping": 1}, TypeError, "double_wrapping must be True or False, not int"),
        (("kf",), {"internal_key_material": 0}, TypeError, "internal_key_material must be True or False, not int"),
        (("kf",), {"store_aad_prefix": False}, ValueError, "`store_aad_prefix=False` needs `aad_prefix`"),
    ],
    ids=range(13),
)
def test_wrong_arguments_are_named(arguments: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        EncryptionConfig.from_kms(MemoryKms(MASTERS), *arguments, **options)
    assert message in str(caught.value)


def test_what_is_no_kms_is_refused() -> None:
    for config in (lambda kms: EncryptionConfig.from_kms(kms, "kf"), DecryptionConfig.from_kms):
        with pytest.raises(TypeError, match=r"kms must be a KMS URL, a client of ags1.kms or a pyarrow KmsClient"):
            config(object())
        with pytest.raises(ValueError, match="there is no KMS 'nowhere'"):
            config("nowhere:x")


# -- calls and the cache -----------------------------------------------------------------------------------------


def test_key_encryption_keys_are_wrapped_once_for_each_master_key_and_lifetime() -> None:
    clock = Clock()
    kms = CountingKms(clock=clock)
    wrapper = DataKeyWrapper(as_key_service(kms), cache_seconds=600)

    def kek_of(master: str) -> bytes | None:
        return wrapper.wrap(Key.generate(128), master, is_footer_key=False).kek_id

    first = kek_of("kc1")
    assert first is not None
    assert len(first) == 16
    assert kek_of("kc1") == first
    assert kek_of("kc2") != first
    assert kms.wraps == 2
    clock.now = 600
    assert kek_of("kc1") != first
    assert kms.wraps == 3


def test_an_unwrapped_key_encryption_key_is_kept_for_its_lifetime() -> None:
    clock = Clock()
    kms = CountingKms(clock=clock)
    wrapper = DataKeyWrapper(as_key_service(kms))
    materials = [wrapper.wrap(Key.generate(128), "kc1", is_footer_key=False) for _ in range(3)]
    unwrapper = DataKeyUnwrapper(as_key_service(kms), cache_seconds=600)
    for material in materials:
        unwrapper.unwrap(material)
    assert kms.unwraps == 1
    clock.now = 600
    unwrapper.unwrap(materials[0])
    assert kms.unwraps == 2
    keeps_none = DataKeyUnwrapper(as_key_service(kms), cache_seconds=0)
    for material in materials:
        keeps_none.unwrap(material)
    assert kms.unwraps == 5


def test_a_key_encryption_key_is_found_by_its_bytes_not_by_an_id_that_anybody_can_write() -> None:
    kms = MemoryKms(MASTERS)
    unwrapper = DataKeyUnwrapper(as_key_service(kms))
    good = DataKeyWrapper(as_key_service(kms)).wrap(Key.generate(128), "kc1", is_footer_key=False)
    other = DataKeyWrapper(as_key_service(kms)).wrap(Key.generate(128), "kc1", is_footer_key=False)
    unwrapper.unwrap(good)
    claims = KeyMaterial(
        is_footer_key=False, master_key_id="kc1", wrapped_dek=good.wrapped_dek, kek_id=good.kek_id,
        wrapped_kek=other.wrapped_kek,
    )  # fmt: skip
    with pytest.raises(AuthenticationError, match="wrappedDEK failed authentication"):
        unwrapper.unwrap(claims)


def test_threads_that_need_one_key_at_once_make_one_call() -> None:
    kms = CountingKms()
    config = EncryptionConfig.from_kms(kms, "kf")
    files = in_threads([config.for_file] * 8)
    assert kms.wraps == 1
    reading = DecryptionConfig.from_kms(kms)
    found = in_threads(
        [lambda file=file: reading.for_file().footer_key(file.footer_key_metadata) for file in files]  # type: ignore[misc]
    )
    assert kms.unwraps == 1
    assert found == [file.footer_key for file in files]


def test_a_failed_call_is_not_remembered() -> None:
    kms = CountingKms({"other": bytes(15) + b"1"})
    config = EncryptionConfig.from_kms(kms, "kf")
    for _ in range(2):
        with pytest.raises(KeyAccessError, match=r"there is no key with this id; .*did not wrap a key with 'kf'"):
            config.for_file()
    assert kms.wraps == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_makes_key_encryption_keys_of_its_own() -> None:
    kms = MemoryKms(MASTERS)
    wrapper = DataKeyWrapper(as_key_service(kms))

    def kek() -> bytes:
        return wrapper.wrap(Key.generate(128), "kf", is_footer_key=True).kek_id or b""

    mine = kek()
    assert in_child(kek) != mine
    assert kek() == mine


def test_wrappers_are_not_pickled() -> None:
    service = as_key_service(MemoryKms(MASTERS))
    for holder in (DataKeyWrapper(service), DataKeyUnwrapper(service)):
        for way in (pickle.dumps, copy.deepcopy):
            with pytest.raises(TypeError, match="cannot be pickled or copied: it holds keys"):
                way(holder)


# -- a KMS that fails --------------------------------------------------------------------------------------------


class Answering:
    """A KMS that answers, or raises, what it is told to."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def wrap_key(self, key: bytes, key_id: str) -> Any:
        return self._answer(key)

    unwrap_key = wrap_key


def raising(text: Any) -> Any:
    def answer(key: bytes) -> None:
        raise RuntimeError(text(key))

    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: None, "it returned NoneType instead of bytes"),
        (lambda _: b"", "it returned nothing"),
        (lambda _: "text", "it returned str instead of bytes"),
        (lambda key: b"plain:" + key, "it returned bytes that show the key"),
        (raising(lambda _: "no route"), "RuntimeError: no route"),
        (raising(lambda key: f"bad key {key.hex()}"), "its text is left out, because it contains the key"),
        (raising(lambda key: f"bad key {key!r}"), "its text is left out, because it contains the key"),
    ],
)
@pytest.mark.parametrize("double", [True, False])
def test_a_kms_that_does_not_wrap_is_told_without_the_key(answer: Any, message: str, double: bool) -> None:
    with pytest.raises(KeyAccessError, match=r"^Answering did not wrap a key with 'kf': ") as caught:
        EncryptionConfig.from_kms(Answering(answer), "kf", double_wrapping=double).for_file()
    assert message in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_kms_that_does_not_unwrap_is_told() -> None:
    file = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf").for_file()
    for answer, message in (
        (lambda _: b"short", "it returned 5 bytes; an AES key has 16, 24 or 32"),
        (raising(str), "Runtime"),
    ):
        reading = DecryptionConfig.from_kms(Answering(answer)).for_file("x.parquet")
        with pytest.raises(
            KeyAccessError, match=r"^x.parquet: the footer: Answering could not unwrap a key with 'kf': "
        ) as c:
            reading.footer_key(file.footer_key_metadata)
        assert message in str(c.value)
    other = DecryptionConfig.from_kms(MemoryKms({**MASTERS, "kf": MASTERS["kc1"]})).for_file()
    with pytest.raises(KeyAccessError, match="it was wrapped with another key"):
        other.footer_key(file.footer_key_metadata)


def test_material_of_a_kms_client_of_another_kind_is_told() -> None:
    foreign = KeyMaterial(is_footer_key=True, master_key_id="kf", wrapped_dek='{"masterKeyVersion":"NO_VERSION"}')
    with pytest.raises(FormatError, match="wrappedDEK of the key material is not base64: it was wrapped by a KMS cl"):
        DecryptionConfig.from_kms(MemoryKms(MASTERS)).for_file().footer_key(foreign.encode(internal=True))


def test_key_metadata_that_is_none_of_the_key_tools_is_told() -> None:
    with pytest.raises(FormatError, match=r"^x: column ssn: key metadata of 3 bytes is not JSON of the key tools"):
        DecryptionConfig.from_kms(MemoryKms(MASTERS)).for_file("x").column_key(("ssn",), b"kc1")


# -- material beside the file ------------------------------------------------------------------------------------


def test_material_beside_a_file_that_is_missing_or_of_another_file_is_told(tmp_path: Path) -> None:
    config = DecryptionConfig.from_kms(MemoryKms(MASTERS))
    footer, column = encode_reference("footerKey"), encode_reference("columnKey9")
    with pytest.raises(
        KeyAccessError, match=r"\('footerKey'\) is in a file beside the Parquet file, whose location is not"
    ):
        config.for_file().footer_key(footer)
    target = tmp_path / "x.parquet"
    with pytest.raises(
        KeyAccessError, match=r"there is no file .*_KEY_MATERIAL_FOR_x\.parquet\.json: it was lost, or not"
    ):
        config.for_file(target).footer_key(footer)
    stored = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", internal_key_material=False).for_file()
    Path(key_material_path(target)).write_bytes(stored.external_key_material() or b"")
    with pytest.raises(KeyAccessError, match="has no 'columnKey9': it belongs to another file"):
        config.for_file(target).column_key(("ssn",), column)


def test_material_beside_a_file_is_read_once_for_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A stranger's file may have thousands of columns, and be beside a JSON text of megabytes.
    reads = []

    def counted(source: Any) -> bytes:
        reads.append(source)
        return read_key_material(source)

    for module in (kms_keys, key_description):
        monkeypatch.setattr(module, "read_key_material", counted)
    target = tmp_path / "x.parquet"
    config = EncryptionConfig.from_kms(
        MemoryKms(MASTERS), "kf", {"kc1": ["a", "b", "c"]}, internal_key_material=False, plaintext_footer=True
    )
    write_table(pa.table({name: [1, 2] for name in "abcd"}), target, config)
    decryption = DecryptionConfig.from_kms(MemoryKms(MASTERS))
    calls = (lambda: inspect(target), lambda: verify_file(target, decryption))
    for damage in (False, True):
        if damage:
            Path(key_material_path(target)).write_bytes(b"{")
        for call in calls:
            reads.clear()
            with contextlib.suppress(FormatError):
                call()
            assert len(reads) == 1


def test_material_beside_a_remote_file_and_an_open_one_is_found() -> None:
    file = EncryptionConfig.from_kms(MemoryKms(MASTERS), "kf", internal_key_material=False).for_file()
    url = "memory://key-material/part=1/x.parquet"
    file_system = fsspec.filesystem("memory")
    try:
        with fsspec.open(key_material_path(url), "wb") as opened:
            opened.write(file.external_key_material())
        config = DecryptionConfig.from_kms(MemoryKms(MASTERS))
        assert config.for_file(url).footer_key(file.footer_key_metadata) == file.footer_key
        file_system.pipe_file("/key-material/part=1/x.parquet", b"PARE")
        with fsspec.open(url) as source:
            assert config.for_file(source).footer_key(file.footer_key_metadata) == file.footer_key
        report = rotate_master_keys(MemoryKms(MASTERS), "memory://key-material")
        assert [count for _, count in report.rotated] == [1]
        assert config.for_file(url).footer_key(file.footer_key_metadata) == file.footer_key
        # Else a directory of files with keys inside would seem to be done, and the old master key might be destroyed.
        with pytest.warns(UserWarning, match="memory://key-material: there is no key material beside files"):
            assert rotate_master_keys(MemoryKms(MASTERS), "memory://key-material", recursive=False).rotated == []
        assert len(rotate_master_keys(MemoryKms(MASTERS), url).rotated) == 1
    finally:
        file_system.rm("/key-material", recursive=True)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("x.parquet", "_KEY_MATERIAL_FOR_x.parquet.json"),
        ("a/b/x", "a/b/_KEY_MATERIAL_FOR_x.json"),
        ("s3://bucket/x.parquet", "s3://bucket/_KEY_MATERIAL_FOR_x.parquet.json"),
    ],
)
def test_where_key_material_lies(source: str, path: str) -> None:
    assert key_material_path(source) == path
    with pytest.raises(ValueError, match="names no file"):
        key_material_path("a/")


def test_an_absurdly_long_key_material_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(material_file, "_LONGEST", 10)
    Path(key_material_path(tmp_path / "x")).write_bytes(b" " * 11)
    with pytest.raises(FormatError, match="is longer than 10 bytes, the limit for key material"):
        DecryptionConfig.from_kms(MemoryKms(MASTERS)).for_file(tmp_path / "x").footer_key(encode_reference("footerKey"))


def test_the_material_that_parquet_java_stored_unwraps_to_the_keys_of_its_file() -> None:
    file = FIXTURES / "external_key_material_java.parquet.encrypted"
    if not file.exists():
        refuse = pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip
        refuse("needs the files of parquet-testing beside the checkout")
    reading = DecryptionConfig.from_kms(JavaInMemoryKms()).for_file(file)
    data = file.read_bytes()
    crypto_metadata = data[-8 - int.from_bytes(data[-8:-4], "little") : -8]
    reference = crypto_metadata[crypto_metadata.index(b"{") : crypto_metadata.index(b"}") + 1]
    assert parse_key_metadata(reference) == "footerKey"
    footer = reading.footer_key(reference)
    # Compact Thrift: the algorithm's union, its struct, and in that the 8 bytes of aad_file_unique.
    unique = crypto_metadata[crypto_metadata.index(b"\x08") + 1 :][:8]
    module = crypto_metadata[crypto_metadata.index(b"}") + 2 :]
    assert int.from_bytes(module[:4], "little") == len(module) - 4
    plain = open_message(module[16:], footer, module[4:16], unique + b"\x00")
    assert plain is not None
    assert b"integers" in plain
    columns = [reading.column_key((name,), encode_reference(f"columnKey{name}")) for name in "01"]
    length = int.from_bytes(data[4:8], "little")
    opened = [open_message(data[20 : 8 + length], key, data[8:20], unique + b"\x04" + bytes(6)) for key in columns]
    opened += [open_message(data[20 : 8 + length], key, data[8:20], unique + b"\x05" + bytes(4)) for key in columns]
    # The header of the file's first page opens with the key of the first column, and with no other.
    assert sum(each is not None for each in opened) == 1


def test_no_repr_of_key_material_shows_more_than_ids() -> None:
    material = KeyMaterial(is_footer_key=False, master_key_id="kc1", wrapped_dek="d3JhcHBlZA==")
    assert repr(material) == "<ags1.parquet KeyMaterial of a column key, master key 'kc1', single wrapping>"
    with pytest.raises(ValueError, match="give both kek_id and wrapped_kek, or neither"):
        KeyMaterial(is_footer_key=False, master_key_id="kc1", wrapped_dek="d3Jh", kek_id=KEK_ID)
    assert "KeyMaterial" in key_material.__all__


def test_a_file_under_an_attackers_master_key_does_not_pass_for_one_under_the_expected_key(tmp_path: Path) -> None:
    """Whoever can write the file, and use another key of the same service, makes one that opens."""
    service = MemoryKms({"lake": bytes(16), "evil": bytes(range(16))})
    path = tmp_path / "f.parquet"
    write_table(pa.table({"a": [1]}), path, EncryptionConfig.from_kms(service, "evil"))
    assert verify_file(path, DecryptionConfig.from_kms(service)).ok
    expecting = DecryptionConfig.from_kms(service, expected_key_ids=["lake"])
    for call in (verify_file, read_table):
        with pytest.raises(KeyAccessError, match="under the master key 'evil', but 'lake' is expected"):
            call(path, expecting)
    with pytest.raises(TypeError, match="expected_key_ids"):
        DecryptionConfig.from_kms(service, expected_key_ids="lake")
