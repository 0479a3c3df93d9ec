"""Key metadata as Iceberg writes it: exact bytes, hostile bytes, and keys that stay where they belong."""

from __future__ import annotations

import base64
import copy
import os
import pickle
import stat
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import ags1
from ags1.cli import main
from ags1.keys import Key, KeyMetadata
from tests import reference
from tests.checks import BUFFER_KINDS, KEY, KEYS, NON_CONTIGUOUS, OTHER_KEY, PREFIX, BufferKind

TEXT_KEY = b"0123456789012345"
LONGEST = (1 << 63) - 1

# Known bytes; an independent encoder made them. Key, AAD prefix, length, encoding.
VECTORS = {
    "K1": (
        TEXT_KEY,
        PREFIX,
        None,
        "01203031323334353637383930313233343502203132333435363738393031323334353600",
    ),
    "K2": (TEXT_KEY, None, None, "0120303132333435363738393031323334350000"),
    "K3": (
        bytes(range(24)),
        bytes(range(0xA0, 0xB0)),
        1_048_620,
        "0130000102030405060708090a0b0c0d0e0f10111213141516170220a0a1a2a3a4a5a6a7a8a9aaabacadaeaf02d8808001",
    ),
    "K4": (
        bytes(range(32)),
        PREFIX,
        36,
        (
            "0140000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
            "0220313233343536373839303132333435360248"
        ),
    ),
    "K5": (TEXT_KEY, None, 2**40 + 7, "01203031323334353637383930313233343500028e8080808040"),
    "K6": (TEXT_KEY, b"", 100_000, "012030313233343536373839303132333435020002c09a0c"),
}

LENGTHS = st.one_of(st.none(), st.integers(0, 300), st.integers(0, LONGEST))
PREFIXES = st.one_of(st.none(), st.binary(max_size=20), st.binary(max_size=300))


def fields(metadata: KeyMetadata) -> tuple[bytes, bytes | None, int | None]:
    """What a key metadata says."""
    return bytes(metadata.encryption_key), metadata.aad_prefix, metadata.file_length


# -- the bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VECTORS)
def test_known_key_metadata_is_written_and_read_byte_for_byte(name: str) -> None:
    key, prefix, length, encoded = VECTORS[name]
    assert KeyMetadata(key, prefix, length).encode().hex() == encoded
    assert fields(KeyMetadata.decode(bytes.fromhex(encoded))) == (key, prefix, length)


@given(st.sampled_from(list(KEYS.values())), PREFIXES, LENGTHS)
@example(KEY, b"", 0)
@example(KEY, bytes(63), 63)
@example(KEY, bytes(64), 64)
@example(KEY, None, LONGEST)
def test_decode_undoes_encode_and_agrees_with_the_reference(
    key: bytes, prefix: bytes | None, length: int | None
) -> None:
    encoded = KeyMetadata(key, prefix, length).encode()
    assert encoded == reference.encode_key_metadata(reference.KeyMetadata(key, prefix, length))
    assert fields(KeyMetadata.decode(encoded)) == (key, prefix, length)


@given(st.sampled_from(list(KEYS.values())), PREFIXES)
def test_the_form_of_iceberg_1_10_without_a_length_is_read(key: bytes, prefix: bytes | None) -> None:
    encoded = reference.encode_key_metadata(reference.KeyMetadata(key, prefix), fields=2)
    assert fields(KeyMetadata.decode(encoded)) == (key, prefix, None)


def test_no_prefix_and_an_empty_prefix_differ_in_bytes_but_not_in_what_they_open() -> None:
    absent, empty = KeyMetadata(KEY), KeyMetadata(KEY, b"")
    assert absent.encode() != empty.encode()
    assert absent != empty
    stream = ags1.encrypt(b"data", KEY)
    for metadata in (absent, empty):
        with ags1.open(stream, key_metadata=KeyMetadata.decode(metadata.encode())) as reader:
            assert reader.read() == b"data"


@given(st.binary(max_size=40))
def test_fields_of_a_later_version_behind_the_last_are_ignored(rest: bytes) -> None:
    encoded = KeyMetadata(KEY, PREFIX, 36).encode()
    assert KeyMetadata.decode(encoded + rest) == KeyMetadata(KEY, PREFIX, 36)


@pytest.mark.parametrize("kind", [kind for kind in BUFFER_KINDS if 48 % kind.itemsize == 0], ids=str)
def test_any_kind_of_buffer_is_decoded(kind: BufferKind) -> None:
    encoded = KeyMetadata(KEY, b"8 bytes.").encode()
    encoded += bytes(48 - len(encoded))
    assert KeyMetadata.decode(kind.make(encoded)) == KeyMetadata(KEY, b"8 bytes.")


# -- hostile bytes -------------------------------------------------------------------------------------------

KEY_FIELD = b"\x01\x40" + KEY
VARINT_OF_2_TO_THE_63 = b"\x80" * 9 + b"\x02"


@pytest.mark.parametrize(
    ("encoded", "error", "message"),
    [
        (b"", ags1.TruncatedError, "key metadata ends before the version byte"),
        (b"\x00", ags1.FormatError, "Cannot resolve schema for version: 0 of key metadata"),
        (b"\x02", ags1.FormatError, "Cannot resolve schema for version: 2 .*may be wrapped"),
        (b"\x80" + KEY_FIELD[1:], ags1.FormatError, "Cannot resolve schema for version: 128"),
        (b"\xff", ags1.FormatError, "Cannot resolve schema for version: 255"),
        (b"\x01", ags1.TruncatedError, "ends before the end of encryption_key"),
        (b"\x01\x80", ags1.TruncatedError, "ends before the end of encryption_key"),
        (
            b"\x01\x40",
            ags1.TruncatedError,
            "ends inside encryption_key: more bytes announced than the 0 that are left",
        ),
        (KEY_FIELD[:-1], ags1.TruncatedError, "inside encryption_key: more bytes announced than the 31"),
        (b"\x01\x00\x00\x00", ags1.FormatError, "encryption_key of 0 bytes; AES keys have 16, 24 or 32"),
        (b"\x01\x1e" + bytes(20), ags1.FormatError, "encryption_key of 15 bytes"),
        (b"\x01\x42" + bytes(40), ags1.FormatError, "encryption_key of 33 bytes"),
        (b"\x01\x01" + bytes(40), ags1.FormatError, "negative length in encryption_key"),
        (b"\x01" + b"\xff" * 9 + b"\x01", ags1.FormatError, "negative length in encryption_key"),
        (
            b"\x01\xfe" + b"\xff" * 8 + b"\x01",
            ags1.TruncatedError,
            "more bytes announced than the 0 that are left",
        ),
        (b"\x01" + b"\xff" * 9 + b"\x02", ags1.FormatError, "more than 64 bits in encryption_key"),
        (b"\x01" + b"\x80" * 10 + b"\x01", ags1.FormatError, "more than 64 bits in encryption_key"),
        (b"\x01" + b"\x80" * 1000, ags1.FormatError, "more than 64 bits in encryption_key"),
        (KEY_FIELD, ags1.TruncatedError, "ends before the end of aad_prefix"),
        (KEY_FIELD + b"\x04\x00\x00", ags1.FormatError, "union branch in aad_prefix that is neither 0"),
        (KEY_FIELD + b"\x01\x00\x00", ags1.FormatError, "union branch in aad_prefix that is neither 0"),
        (KEY_FIELD + b"\x02", ags1.TruncatedError, "ends before the end of aad_prefix"),
        (
            KEY_FIELD + b"\x02\x20" + bytes(15),
            ags1.TruncatedError,
            "inside aad_prefix: more bytes announced than the 15",
        ),
        (KEY_FIELD + b"\x02\x03", ags1.FormatError, "negative length in aad_prefix"),
        (KEY_FIELD + b"\x00\x06", ags1.FormatError, "union branch in file_length that is neither 0"),
        (KEY_FIELD + b"\x00\x02", ags1.TruncatedError, "ends before the end of file_length"),
        (KEY_FIELD + b"\x00\x02\x80", ags1.TruncatedError, "ends before the end of file_length"),
        (KEY_FIELD + b"\x00\x02\x01", ags1.FormatError, "has a negative file_length"),
        (
            KEY_FIELD + b"\x00\x02" + VARINT_OF_2_TO_THE_63,
            ags1.FormatError,
            "more than 64 bits in file_length",
        ),
    ],
)
def test_each_defect_of_key_metadata_is_told_apart(encoded: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        KeyMetadata.decode(encoded)
    assert type(caught.value) is error


@pytest.mark.parametrize("name", VECTORS)
def test_every_truncation_is_noticed_but_the_one_that_iceberg_1_10_makes(name: str) -> None:
    encoded = bytes.fromhex(VECTORS[name][3])
    key, prefix, _, _ = VECTORS[name]
    without_length = len(reference.encode_key_metadata(reference.KeyMetadata(key, prefix), fields=2))
    for length in range(len(encoded)):
        if length == without_length:
            assert KeyMetadata.decode(encoded[:length]) == KeyMetadata(key, prefix)
            continue
        with pytest.raises(ags1.TruncatedError):
            KeyMetadata.decode(encoded[:length])


def check_decode_is_total(encoded: bytes) -> None:
    """Decoding succeeds as the reference's does, or raises a FormatError."""
    try:
        expected = reference.decode_key_metadata(encoded)
    except reference.ReferenceFailure:
        expected = None
    try:
        metadata = KeyMetadata.decode(encoded)
    except ags1.FormatError:
        assert expected is None
    else:
        assert expected is not None
        assert fields(metadata) == (expected.encryption_key, expected.aad_prefix, expected.file_length)


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_or_refused_with_a_format_error(encoded: bytes) -> None:
    check_decode_is_total(encoded)
    check_decode_is_total(b"\x01" + encoded)
    check_decode_is_total(KEY_FIELD + encoded)


@given(st.sampled_from([bytes.fromhex(vector[3]) for vector in VECTORS.values()]), st.data())
def test_any_damage_is_decoded_or_refused_with_a_format_error(encoded: bytes, data: st.DataObject) -> None:
    position = data.draw(st.integers(0, len(encoded) - 1))
    replaced = data.draw(st.binary(max_size=12))
    check_decode_is_total(encoded[:position] + replaced + encoded[position + data.draw(st.integers(0, 12)) :])


@pytest.mark.parametrize("wrong", ["text", None, 1, [1], object()])
def test_only_bytes_are_decoded(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"must be a bytes-like object.*not {type(wrong).__name__}"):
        KeyMetadata.decode(wrong)


@pytest.mark.parametrize("make", NON_CONTIGUOUS.values(), ids=NON_CONTIGUOUS)
def test_memory_with_gaps_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="must be C-contiguous"):
        KeyMetadata.decode(make())
    with pytest.raises(ValueError, match="must be C-contiguous"):
        KeyMetadata(KEY, make())


# -- the object ----------------------------------------------------------------------------------------------


def test_a_key_metadata_has_what_it_was_given() -> None:
    key = Key(KEY)
    metadata = KeyMetadata(key, bytearray(PREFIX), 36)
    assert metadata.encryption_key is key
    assert (metadata.aad_prefix, metadata.file_length) == (PREFIX, 36)
    assert fields(KeyMetadata(memoryview(KEY))) == (KEY, None, None)
    assert fields(KeyMetadata(encryption_key=KEY, aad_prefix=PREFIX, file_length=0)) == (KEY, PREFIX, 0)


@pytest.mark.parametrize("kind", BUFFER_KINDS, ids=str)
def test_key_and_prefix_may_be_any_kind_of_buffer(kind: BufferKind) -> None:
    assert fields(KeyMetadata(kind.make(KEY), kind.make(PREFIX))) == (KEY, PREFIX, None)
    if kind.may_be_empty:
        assert KeyMetadata(KEY, kind.make(b"")).aad_prefix == b""


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((b"short",), ValueError, "key must be 16, 24 or 32 bytes .* got 5"),
        (("text",), TypeError, "key must be a bytes-like object .* not str"),
        ((None,), TypeError, "key must be a bytes-like object .* not NoneType"),
        ((KEY, "text"), TypeError, "aad_prefix must be a bytes-like object, not str; encode it first"),
        ((KEY, 5), TypeError, "must be a bytes-like object .* not int"),
        ((KEY, None, -1), ValueError, r"file_length must be 0 to 2\^63 - 1 bytes, got -1"),
        (
            (KEY, None, 1 << 63),
            ValueError,
            r"file_length must be 0 to 2\^63 - 1 bytes, got 9223372036854775808",
        ),
        ((KEY, None, 36.0), TypeError, "file_length must be an integer or None, not float"),
        ((KEY, None, "36"), TypeError, "file_length must be an integer or None, not str"),
        ((KEY, None, True), TypeError, "file_length must be an integer or None, not bool"),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        KeyMetadata(*arguments)
    assert not isinstance(caught.value, ags1.Ags1Error)


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_generate_makes_fresh_keys_and_fresh_prefixes(bits: int) -> None:
    made = [KeyMetadata.generate(bits) for _ in range(100)]
    assert {metadata.encryption_key.bits for metadata in made} == {bits}
    assert {len(metadata.aad_prefix or b"") for metadata in made} == {16}
    assert {metadata.file_length for metadata in made} == {None}
    assert len({bytes(metadata.encryption_key) for metadata in made}) == 100
    assert len({metadata.aad_prefix for metadata in made}) == 100


def test_generate_makes_256_bits_unless_told_otherwise() -> None:
    assert KeyMetadata.generate().encryption_key.bits == 256
    with pytest.raises(ValueError, match="bits must be 128, 192 or 256, got 512"):
        KeyMetadata.generate(512)


def test_with_length_changes_the_length_and_nothing_else() -> None:
    metadata = KeyMetadata(KEY, PREFIX, 36)
    longer = metadata.with_length(37)
    assert fields(longer) == (KEY, PREFIX, 37)
    assert fields(metadata.with_length(None)) == (KEY, PREFIX, None)
    assert metadata.file_length == 36
    assert longer.encryption_key is metadata.encryption_key
    with pytest.raises(ValueError, match="file_length must be 0"):
        metadata.with_length(-1)


def test_key_metadata_is_equal_if_every_field_is() -> None:
    metadata = KeyMetadata(KEY, PREFIX, 36)
    assert metadata == KeyMetadata(Key(KEY), bytearray(PREFIX), 36)
    for other in (
        KeyMetadata(OTHER_KEY, PREFIX, 36),
        KeyMetadata(KEY, b"other", 36),
        KeyMetadata(KEY, None, 36),
        KeyMetadata(KEY, PREFIX, 37),
        KeyMetadata(KEY, PREFIX),
        metadata.encode(),
        KEY,
        None,
    ):
        assert metadata != other
        assert other != metadata


def test_key_metadata_cannot_be_changed_or_hashed() -> None:
    metadata = KeyMetadata(KEY, PREFIX, 36)
    for name in ("encryption_key", "aad_prefix", "file_length", "anything"):
        with pytest.raises(AttributeError):
            setattr(metadata, name, None)
    with pytest.raises(TypeError, match="unhashable"):
        hash(metadata)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_key_metadata_cannot_be_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied: it holds a key; send it wrapped by a KMS"):
        pickle.dumps(KeyMetadata(KEY), protocol)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
def test_key_metadata_cannot_be_copied_unnoticed(duplicate: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="cannot be pickled or copied"):
        duplicate(KeyMetadata(KEY))


# -- no key where it does not belong -------------------------------------------------------------------------


@pytest.mark.parametrize("show", [repr, str, "{}".format, lambda metadata: repr([metadata])])
def test_key_metadata_shows_sizes_and_no_bytes(show: Callable[[Any], str]) -> None:
    shown = show(KeyMetadata(KEY, PREFIX, 36))
    assert "ags1.KeyMetadata(encryption_key=<AES-256 redacted>, aad_prefix=<16 bytes>, file_length=36)" in shown
    assert shown == show(KeyMetadata(OTHER_KEY, bytes(16), 36))
    assert "aad_prefix=None, file_length=None" in show(KeyMetadata(KEY))


# Text and hex of it are unmistakable wherever they appear.
LOUD_KEY = b"SECRET-SECRET-SECRET-SECRET-SECR"


def shows_the_key(error: BaseException) -> bool:
    """Whether any four bytes of the loud key appear in an error, its causes or its attributes."""
    shown = "".join(traceback.format_exception(type(error), error, None))
    chained: BaseException | None = error
    while chained is not None:
        shown += repr(chained.args) + repr(vars(chained))
        chained = chained.__cause__ or chained.__context__
    pieces = {LOUD_KEY[start : start + 4] for start in range(len(LOUD_KEY) - 3)}
    return any(piece.decode() in shown or piece.hex() in shown.replace(" ", "") for piece in pieces)


def raised(call: Callable[[], Any]) -> BaseException:
    """What the call raises."""
    with pytest.raises((ValueError, TypeError, ags1.Ags1Error)) as caught:
        call()
    return caught.value


def test_the_search_for_the_key_finds_it() -> None:
    assert shows_the_key(ValueError(LOUD_KEY))
    assert shows_the_key(ValueError(LOUD_KEY[3:8].hex(" ")))


@pytest.mark.parametrize("length", [15, 17, 31])
def test_no_error_about_a_key_of_a_wrong_size_shows_it(length: int) -> None:
    loud = LOUD_KEY[:length]
    for call in (
        lambda: Key(loud),
        lambda: Key(loud.decode()),
        lambda: KeyMetadata(loud),
        lambda: ags1.encrypt(b"", loud),
        lambda: ags1.decrypt(b"", loud),
        lambda: ags1.encrypt_many([b""], [loud]),
        lambda: ags1.open(b"", key=loud),
        lambda: KeyMetadata.decode(b"\x01" + bytes([2 * length]) + loud + b"\x00\x00"),
    ):
        assert not shows_the_key(raised(call))


def test_no_error_of_decoding_shows_the_key() -> None:
    encoded = KeyMetadata(LOUD_KEY, PREFIX, 36).encode()
    attempts = [encoded[:length] for length in range(len(encoded))]
    attempts += [bytes([version]) + encoded[1:] for version in (0, 2, 83, 255)]
    attempts += [encoded[:1] + bytes([length]) + encoded[2:] for length in range(256) if length != 0x40]
    attempts += [encoded[:34] + bytes([octet]) + encoded[35:] for octet in range(3, 256)]
    # The key itself, in place of its metadata.
    attempts += [LOUD_KEY, LOUD_KEY[1:]]
    refused = []
    for attempt in attempts:
        try:
            KeyMetadata.decode(attempt)
        except ags1.FormatError as error:
            refused.append(error)
    assert len(refused) > 300
    assert not [error for error in refused if shows_the_key(error)]


def test_no_error_of_decrypting_shows_the_key() -> None:
    stream = ags1.encrypt(b"data", OTHER_KEY)
    for data in (stream, stream[:-1], b"", b"PAR1" * 10, LOUD_KEY.lower()):
        assert not shows_the_key(raised(lambda data=data: ags1.decrypt(data, LOUD_KEY)))
        assert not shows_the_key(raised(lambda data=data: ags1.decrypt(data, Key(LOUD_KEY), length=1)))


# -- Key.load --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 24, 32])
@pytest.mark.parametrize("form", ["raw", "hex", "hex and a newline", "base64", "base64 and a newline"])
def test_a_key_is_loaded_from_a_file_in_every_form(size: int, form: str, tmp_path: Path) -> None:
    octets = bytes(range(200, 200 + size))
    data = octets.hex().encode() if "hex" in form else base64.b64encode(octets) if "base64" in form else octets
    path = tmp_path / "key"
    path.write_bytes(data + (b"\n" if "newline" in form else b""))
    if len(data) in (16, 24, 32) and form in ("hex", "base64"):
        # Text of a shorter key that could be raw bytes of a longer one.
        with pytest.warns(UserWarning, match="taken as a raw"):
            assert bytes(Key.load(path)) == data
        return
    for each in (path, str(path), f"file:{path}"):
        assert Key.load(each) == octets


def test_a_key_is_loaded_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", LOUD_KEY.hex())
    assert Key.load("env:LAKE_KEY") == LOUD_KEY
    monkeypatch.setenv("LAKE_KEY", base64.b64encode(LOUD_KEY).decode())
    assert Key.load("env:LAKE_KEY") == LOUD_KEY


def test_keys_and_key_metadata_are_saved_for_their_owner_alone_and_never_over_a_file(tmp_path: Path) -> None:
    key, metadata = Key.generate(192), KeyMetadata(LOUD_KEY, b"prefix", 99)
    previous = os.umask(0)
    try:
        for name, secret, load in (
            ("new.key", key, Key.load),
            ("new.key-metadata", metadata, KeyMetadata.load),
        ):
            path = tmp_path / name
            secret.save(path)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert load(path) == load(str(path)) == secret
            before = path.read_bytes()
            for taken in (path, tmp_path / f"link to {name}"):
                if taken != path:
                    taken.symlink_to(tmp_path / "elsewhere")
                with pytest.raises(FileExistsError, match="exists and was not replaced"):
                    secret.save(taken)
            assert path.read_bytes() == before
            assert not (tmp_path / "elsewhere").exists()
            with pytest.raises(FileNotFoundError):
                secret.save(tmp_path / "nowhere" / name)
    finally:
        os.umask(previous)


def test_a_key_that_could_not_be_written_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        Key.generate().save(tmp_path / "new.key")
    assert not list(tmp_path.iterdir())


def test_key_metadata_that_cannot_be_loaded_is_told_without_it(tmp_path: Path) -> None:
    path = tmp_path / "some.key-metadata"
    with pytest.raises(ags1.KeyAccessError, match=r"the key metadata file .* cannot be read: No such file"):
        KeyMetadata.load(path)
    for content in (b"", b"text", LOUD_KEY, bytes(5000)):
        path.write_bytes(content)
        with pytest.raises(ags1.KeyAccessError, match=r"key.metadata") as caught:
            KeyMetadata.load(path)
        assert LOUD_KEY.decode("latin-1") not in str(caught.value)
    with pytest.raises(TypeError, match=r"call encode\(\)"):
        bytes(KeyMetadata(LOUD_KEY))


def test_what_the_command_line_writes_is_loaded(tmp_path: Path) -> None:
    for form in ("raw", "hex", "base64"):
        path = tmp_path / form
        assert main(["keygen", str(path), "--format", form]) == 0
        assert Key.load(path).bits == 256


@pytest.mark.parametrize(
    ("where", "error", "message"),
    [
        ("nowhere.key", ags1.KeyAccessError, "the key file nowhere.key cannot be read: No such file"),
        ("file:nowhere.key", ags1.KeyAccessError, "the key file nowhere.key cannot be read"),
        ("env:NO_SUCH_VARIABLE", ags1.KeyAccessError, "the environment variable NO_SUCH_VARIABLE is not set"),
        ("env:", ValueError, "env: needs the name of a variable"),
        ("file:", ValueError, "file: needs the name of a file"),
        (LOUD_KEY.hex(), ValueError, "this looks like a key itself: give that to ags1.Key"),
        (f"env:{LOUD_KEY.hex()}", ValueError, "this looks like a key itself"),
        (b"key", TypeError, "a path, file:PATH or env:NAME, not from bytes"),
        (7, TypeError, "int"),
    ],
)
def test_a_key_that_cannot_be_loaded_is_told_without_it(
    where: object, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message) as caught:
        Key.load(where)  # type: ignore[arg-type]
    assert LOUD_KEY.hex() not in str(caught.value)


def test_a_file_that_holds_no_key_is_told_by_its_length(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(LOUD_KEY + b"x")
    with pytest.raises(ags1.KeyAccessError, match="holds no AES key: it has 33 bytes") as caught:
        Key.load(tmp_path / "k")
    assert not shows_the_key(caught.value)
    (tmp_path / "k").write_bytes(bytes(5000))
    with pytest.raises(ags1.KeyAccessError, match="is not a key file: it has more than 4096 bytes"):
        Key.load(tmp_path / "k")
