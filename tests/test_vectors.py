"""The published vectors through the reference and through every way that ags1 has of reading a stream."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

import ags1
from ags1.iceberg import EncryptionKeys
from ags1.kms import MemoryKms
from tests import reference
from tests.checks import every
from tests.conformance import generate, loader, outcomes
from tests.conformance.__main__ import load as load_implementation
from tests.conformance.outcomes import GROUPS

STREAMS = loader.load_streams()
KEY_METADATA = loader.load_key_metadata()
WRAPPED_KEYS = loader.load_wrapped_keys()
GOOD = [vector for vector in STREAMS if vector.good]
PIECE = 100_003
MIB = 1 << 20

ERRORS = {
    "not-ags1": ags1.FormatError,
    "bad-block-length": ags1.FormatError,
    "trailing-block": ags1.FormatError,
    "extended": ags1.FormatError,
    "truncated": ags1.TruncatedError,
    "authentication": ags1.AuthenticationError,
}
METADATA_ERRORS = {
    "unknown-version": ags1.FormatError,
    "malformed": ags1.FormatError,
    "truncated": ags1.TruncatedError,
    "bad-key-length": ags1.FormatError,
}

WRAP_ERRORS = {
    "authentication": ags1.AuthenticationError,
    "truncated": ags1.TruncatedError,
    "malformed": ags1.FormatError,
    "key-access": ags1.KeyAccessError,
}

# Known long before these files were: an independent decoder made them.
KNOWN_STREAMS = {
    "text-empty": "4147533100001000000000000000000000000000d44c5715769e2fd3c4bf36aee812ea74",
    "text-iceberg": "4147533100001000000000000000000000000000c56517a1e1325059aaec3649725133e42048d77bd72ea9",
    "text-hello": ("4147533100001000000000000000000000000000c4631eafeb60768cc042215d4c85fe441b2eba786b1922afa5c4"),
}
KNOWN_DIGESTS = {
    "mib-block": (1048612, "0cab8dbc6d2d3f59415e7c5fc3e2f5a8ebd65d76fb2c6dbe70a27136a4db8c2d"),
    "mib-block-plus-1": (1048641, "46a7678de4cb40597d85f2a1c14f5a46609acb6b0dcc4ed7311251c764ca533d"),
    "mib-2-blocks": (2097216, "ce3a189521ae0a7344cbc6a00b5cc13d201b5cd5f0b92bf2fb204dda5c23d95b"),
}
KNOWN_KEY_METADATA = {
    "prefix-no-length": "01203031323334353637383930313233343502203132333435363738393031323334353600",
    "no-prefix": "0120303132333435363738393031323334350000",
    "key24": ("0130000102030405060708090a0b0c0d0e0f10111213141516170220a0a1a2a3a4a5a6a7a8a9aaabacadaeaf02d8808001"),
    "key32-empty-file": (
        "0140000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f0220313233343536373839303132333435360248"
    ),
    "long-file": "01203031323334353637383930313233343500028e8080808040",
    "empty-prefix": "012030313233343536373839303132333435020002c09a0c",
}


def by_name(vector: loader.StreamVector | loader.KeyMetadataVector | loader.WrappedKeyVector) -> str:
    """Name a vector in pytest's output."""
    return vector.name


def decrypt(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt in one call."""
    return ags1.decrypt(stream, vector.key, aad_prefix=vector.aad_prefix or b"", length=vector.length)


def decrypt_one_thread(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt in one call on the calling thread."""
    return ags1.decrypt(stream, vector.key, aad_prefix=vector.aad_prefix or b"", length=vector.length, threads=1)


def decrypt_three_threads(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt in one call on three threads."""
    return ags1.decrypt(stream, vector.key, aad_prefix=vector.aad_prefix or b"", length=vector.length, threads=3)


def into(vector: loader.StreamVector, stream: bytes, threads: int | None) -> bytes:
    """Decrypt into memory of the caller, which no failure may leave plaintext in."""
    out = bytearray(len(vector.plaintext()) if vector.good else len(stream))
    try:
        size = ags1.decrypt_into(
            stream,
            out,
            vector.key,
            aad_prefix=vector.aad_prefix or b"",
            length=vector.length,
            threads=threads,
        )
    except ags1.Ags1Error:
        assert not any(out), "unauthenticated or partial plaintext was left behind"
        raise
    assert size == len(out)
    return bytes(out)


def decrypt_into_one_thread(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt into memory of the caller on the calling thread."""
    return into(vector, stream, 1)


def decrypt_into_three_threads(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt into memory of the caller on three threads."""
    return into(vector, stream, 3)


def decrypt_many(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt three times in one batch, with one key each."""
    prefixes = [vector.aad_prefix or b""] * 3
    lengths = None if vector.length is None else [vector.length] * 3
    results = ags1.decrypt_many([stream] * 3, [vector.key] * 3, aad_prefixes=prefixes, lengths=lengths)
    first, *others = (bytes(result) for result in results)
    assert others == [first, first]
    return first


def decrypt_many_behind_good(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Decrypt behind a good stream, with one key for all."""
    neighbour = reference.encrypt(b"neighbour", vector.key, b"n", 4)
    first, second = ags1.decrypt_many(
        [neighbour, stream],
        vector.key,
        aad_prefixes=[b"n", vector.aad_prefix or b""],
        lengths=[len(neighbour), len(stream) if vector.length is None else vector.length],
        threads=2,
    )
    assert bytes(first) == b"neighbour"
    return bytes(second)


def open_and_read(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Read a stream object to its end in one call."""
    prefix = vector.aad_prefix or b""
    with ags1.open(stream, "rb", key=vector.key, aad_prefix=prefix, length=vector.length) as reader:
        return reader.read()


def open_and_read_pieces(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Read a stream object to its end in pieces, on three threads."""
    prefix = vector.aad_prefix or b""
    pieces = []
    with ags1.open(stream, "rb", key=vector.key, aad_prefix=prefix, length=vector.length, threads=3) as reader:
        while piece := reader.read(PIECE):
            pieces.append(piece)
    return b"".join(pieces)


def positional_reads(vector: loader.StreamVector, stream: bytes) -> bytes:
    """Read everything from the back to the front, by position."""
    prefix = vector.aad_prefix or b""
    with ags1.Reader(stream, vector.key, aad_prefix=prefix, length=vector.length, threads=1) as reader:
        assert reader.encrypted_length == len(stream)
        assert reader.length_trusted is (vector.length is not None)
        assert reader.block_length == vector.block_length
        starts = range(0, max(reader.size, 1), PIECE)
        pieces = [reader.pread(start, PIECE) for start in reversed(starts)]
    return b"".join(reversed(pieces))


WAYS: list[Callable[[loader.StreamVector, bytes], bytes]] = [
    decrypt,
    decrypt_one_thread,
    decrypt_three_threads,
    decrypt_into_one_thread,
    decrypt_into_three_threads,
    decrypt_many,
    decrypt_many_behind_good,
    open_and_read,
    open_and_read_pieces,
    positional_reads,
]


@every("vector", STREAMS, ids=by_name)
def test_reference_has_the_stated_outcome(vector: loader.StreamVector) -> None:
    prefix = vector.aad_prefix or b""
    if vector.good:
        assert reference.decrypt(vector.stream(), vector.key, prefix, vector.length) == vector.plaintext()
        return
    with pytest.raises(reference.ReferenceFailure) as caught:
        reference.decrypt(vector.stream(), vector.key, prefix, vector.length)
    assert caught.value.outcome == vector.expect


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@every("vector", STREAMS, ids=by_name)
def test_ags1_has_the_stated_outcome(
    vector: loader.StreamVector, way: Callable[[loader.StreamVector, bytes], bytes]
) -> None:
    stream = vector.stream()
    if vector.good:
        assert way(vector, stream) == vector.plaintext()
        return
    with pytest.raises(ERRORS[vector.expect]) as caught:
        way(vector, stream)
    if vector.expect != "truncated":
        assert not isinstance(caught.value, ags1.TruncatedError)


@every("vector", GOOD, ids=by_name)
def test_ags1_writes_what_the_reference_reads(vector: loader.StreamVector) -> None:
    plaintext, prefix = vector.plaintext(), vector.aad_prefix or b""
    block_length = vector.block_length
    assert block_length is not None
    for threads in (1, 3):
        written = ags1.encrypt(plaintext, vector.key, aad_prefix=prefix, block_length=block_length, threads=threads)
        assert len(written) == vector.stream_length
        assert written[:8] == vector.stream()[:8]
        assert reference.decrypt(written, vector.key, prefix, len(written)) == plaintext


@every("vector", GOOD, ids=by_name)
def test_lengths_follow_from_each_other(vector: loader.StreamVector) -> None:
    block_length = vector.block_length
    assert block_length is not None
    size = len(vector.plaintext())
    assert ags1.encrypted_length(size, block_length) == vector.stream_length
    assert ags1.plaintext_length(vector.stream_length, block_length) == size


def test_no_nonce_is_drawn_twice() -> None:
    written = [ags1.encrypt(bytes(1000), bytes(16), block_length=10) for _ in range(2)]
    nonces = [stream[start : start + 12] for stream in written for start in range(8, len(stream), 38)]
    assert len(set(nonces)) == len(nonces) == 200


@pytest.mark.parametrize("threads", [1, 2, 3, None])
@pytest.mark.parametrize(
    ("size", "block_length"),
    [(0, MIB), (1000, MIB), (70_000, MIB), (1_200_000, MIB), (1000, 64), (65, 64)],
)
def test_batches_of_short_streams(size: int, block_length: int, threads: int | None) -> None:
    # Far below the block length, so that many streams fall to one worker at a time.
    count = 2_000_000 // (size + 1000)
    plaintexts = [bytes([index % 251]) * size for index in range(count)]
    prefixes = [b"file %d" % index for index in range(count)]
    key = bytes(range(16))
    streams = ags1.encrypt_many(plaintexts, key, aad_prefixes=prefixes, block_length=block_length, threads=threads)
    for plaintext, stream, prefix in zip(plaintexts, streams, prefixes, strict=True):
        assert reference.decrypt(bytes(stream), key, prefix) == plaintext
    back = ags1.decrypt_many(streams, key, aad_prefixes=prefixes, threads=threads)
    assert [bytes(each) for each in back] == plaintexts


@pytest.mark.parametrize("name", KNOWN_STREAMS)
def test_short_streams_have_their_known_bytes(name: str) -> None:
    (vector,) = (vector for vector in STREAMS if vector.name == name)
    assert vector.stream().hex() == KNOWN_STREAMS[name]


@pytest.mark.parametrize("name", KNOWN_DIGESTS)
def test_long_streams_have_their_known_digests(name: str) -> None:
    (vector,) = (vector for vector in STREAMS if vector.name == name)
    stream = vector.stream()
    assert (len(stream), hashlib.sha256(stream).hexdigest()) == KNOWN_DIGESTS[name]


@pytest.mark.parametrize("name", KNOWN_KEY_METADATA)
def test_key_metadata_has_its_known_bytes(name: str) -> None:
    (vector,) = (vector for vector in KEY_METADATA if vector.name == name)
    assert vector.encoded.hex() == KNOWN_KEY_METADATA[name]


@every("vector", KEY_METADATA, ids=by_name)
def test_reference_decodes_key_metadata(vector: loader.KeyMetadataVector) -> None:
    if not vector.good:
        with pytest.raises(reference.ReferenceFailure) as caught:
            reference.decode_key_metadata(vector.encoded)
        assert caught.value.outcome == vector.expect
        return
    assert reference.decode_key_metadata(vector.encoded) == vector.key_metadata
    if vector.canonical is not None:
        assert reference.encode_key_metadata(vector.key_metadata, vector.canonical) == vector.encoded


@every("vector", KEY_METADATA, ids=by_name)
def test_ags1_decodes_key_metadata(vector: loader.KeyMetadataVector) -> None:
    if not vector.good:
        with pytest.raises(METADATA_ERRORS[vector.expect]):
            ags1.KeyMetadata.decode(vector.encoded)
        return
    decoded, fields = ags1.KeyMetadata.decode(vector.encoded), vector.key_metadata
    assert (decoded.aad_prefix, decoded.file_length) == (fields.aad_prefix, fields.file_length)
    # The key is compared through its encoding, which does not depend on how a Key gives out its bytes.
    assert decoded.encode() == reference.encode_key_metadata(fields)
    made = ags1.KeyMetadata(fields.encryption_key, fields.aad_prefix, fields.file_length)
    assert made.encode() == reference.encode_key_metadata(fields)


@every("vector", WRAPPED_KEYS, ids=by_name)
def test_ags1_opens_wrapped_keys(vector: loader.WrappedKeyVector) -> None:
    keys = EncryptionKeys.from_table_metadata({"format-version": 3, "encryption-keys": vector.entries()})
    kms = MemoryKms({"master": vector.octets("master_key")})
    if vector.expect != "success":
        with pytest.raises(WRAP_ERRORS[vector.expect]):
            keys.unwrap("list", kms)
        return
    opened = keys.unwrap("list", kms, table_key_id="master")
    assert opened == ags1.KeyMetadata.decode(vector.octets("key_metadata"))
    assert kms.unwrap_key(vector.octets("wrapped_kek"), "master") == vector.octets("kek")


def test_generator_makes_the_stored_files() -> None:
    files = generate.render_all()
    for name, data in files.items():
        assert (loader.DIRECTORY / name).read_bytes() == data, name
    stored = {f"streams/{path.name}" for path in (loader.DIRECTORY / "streams").iterdir()}
    assert stored == {name for name in files if name.startswith("streams/")}


@pytest.mark.parametrize("group", GROUPS)
def test_cases_are_what_their_schema_says(group: str) -> None:
    schema = json.loads((loader.DIRECTORY / "schema.json").read_text())
    document = json.loads((loader.DIRECTORY / f"{group}.json").read_text())
    jsonschema.validate(document, schema)
    assert document["group"] == group


def test_nothing_in_the_directory_leads_out_of_it() -> None:
    for path in loader.DIRECTORY.rglob("*"):
        assert not path.is_symlink()
        if path.suffix == ".md":
            links = re.findall(r"\]\(([^)]+)\)", path.read_text())
            assert [link for link in links if link.startswith(("..", "/"))] == []
    assert (loader.DIRECTORY / "LICENSE").read_text() == (loader.DIRECTORY.parents[1] / "LICENSE").read_text()


# What PyArrow is known not to read; docs/compatibility.md explains it.
DISAGREEMENTS = {"ags1": set[str](), "pyarrow": {"v2-java-form"}}


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_whole_tables_and_parquet_files_are_read_as_the_cases_say(name: str) -> None:
    results = list(outcomes.run(load_implementation(name), ("parquet", "tables")))
    assert {result.case for result in results if result.outcome == "failed"} == DISAGREEMENTS[name]
    assert sum(result.outcome == "passed" for result in results) > 40


def test_a_reader_that_ignores_what_it_should_refuse_fails_its_cases() -> None:
    def careless(case: dict[str, Any]) -> object:
        return outcomes.expected("parquet", {"rows": "parquet/rows.json"})

    implementation = outcomes.Implementation(lambda: "careless", lambda: contextlib.nullcontext({"parquet": careless}))
    results = list(outcomes.run(implementation, ("parquet", "tables")))
    failed = {result.case for result in results if result.outcome == "failed"}
    assert failed == {case["name"] for case in loader.load("parquet") if case["expect"] == "refused"}
    assert {result.outcome for result in results if result.group == "tables"} == {"not read"}


def test_every_outcome_is_covered() -> None:
    assert {vector.expect for vector in STREAMS} == {"success", *ERRORS}
    assert {vector.expect for vector in KEY_METADATA} == {"success", *METADATA_ERRORS}
    assert {vector.expect for vector in WRAPPED_KEYS} == {"success", *WRAP_ERRORS}
