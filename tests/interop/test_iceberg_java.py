"""ags1 and Iceberg's own Java classes read each other's files, and agree on the vectors."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import ags1
from tests import reference
from tests.checks import every
from tests.conformance import loader
from tests.interop.java_peer import JavaError, JavaPeer

# The first test waits for Maven, which may have to fetch everything.
pytestmark = pytest.mark.timeout(900)

MIB = 1 << 20
SIZES = [0, 1, MIB - 1, MIB, MIB + 1, 3 * MIB + 17]
KEYS = {16: b"0123456789012345", 24: bytes(range(24)), 32: bytes(range(32))}
PREFIXES = {"none": None, "empty": b"", "16": b"1234567890123456", "200": bytes(range(200))}
# The vectors state what this release does; an older one is asked about its key metadata only.
VECTORS_CONFIRMED_WITH = "1.12.0"


def by_name(vector: loader.StreamVector | loader.KeyMetadataVector) -> str:
    """Name a vector in pytest's output."""
    return vector.name


def java_read(peer: JavaPeer, stream: bytes, key: bytes, prefix: bytes | None, length: int, at: Path) -> bytes:
    """Decrypt a stream with Iceberg."""
    source, target = at / "stream", at / "decrypted"
    source.write_bytes(stream)
    count = peer.decrypt(key, prefix, length, source, target)
    plaintext = target.read_bytes()
    assert count == len(plaintext)
    return plaintext


def java_write(peer: JavaPeer, plaintext: bytes, key: bytes, prefix: bytes | None, at: Path) -> bytes:
    """Encrypt a plaintext with Iceberg."""
    source, target = at / "plaintext", at / "encrypted"
    source.write_bytes(plaintext)
    length = peer.encrypt(key, prefix, source, target)
    stream = target.read_bytes()
    assert length == len(stream)
    return stream


def test_peer_runs_the_release_that_the_vectors_name(java_peer: JavaPeer) -> None:
    version = java_peer.version()
    assert version.iceberg == VECTORS_CONFIRMED_WITH
    assert version.takes_length


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("size", SIZES)
def test_java_reads_what_ags1_writes(
    java_peer: JavaPeer, tmp_path: Path, size: int, key: bytes, prefix: bytes | None
) -> None:
    plaintext = loader.pattern(size)
    stream = ags1.encrypt(plaintext, key, aad_prefix=prefix or b"")
    assert java_read(java_peer, stream, key, prefix, len(stream), tmp_path) == plaintext


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES.keys())
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
@pytest.mark.parametrize("size", SIZES)
def test_ags1_reads_what_java_writes(
    java_peer: JavaPeer, tmp_path: Path, size: int, key: bytes, prefix: bytes | None
) -> None:
    plaintext = loader.pattern(size)
    stream = java_write(java_peer, plaintext, key, prefix, tmp_path)
    assert len(stream) == ags1.encrypted_length(size)
    for threads in (1, 3):
        decrypted = ags1.decrypt(stream, key, aad_prefix=prefix or b"", length=len(stream), threads=threads)
        assert decrypted == plaintext
    with ags1.open(tmp_path / "encrypted", "rb", key=key, aad_prefix=prefix or b"") as reader:
        assert reader.read() == plaintext
    assert reference.decrypt(stream, key, prefix or b"", len(stream)) == plaintext


def test_java_reads_what_an_ags1_writer_writes(java_peer: JavaPeer, tmp_path: Path) -> None:
    plaintext, key, prefix = loader.pattern(2 * MIB + 4321), KEYS[32], PREFIXES["16"]
    path = tmp_path / "written"
    with ags1.open(path, "wb", key=key, aad_prefix=prefix) as writer:
        for start in range(0, len(plaintext), 70_001):
            writer.write(plaintext[start : start + 70_001])
    java_peer.decrypt_managed(writer.key_metadata.encode(), path, tmp_path / "decrypted")
    assert (tmp_path / "decrypted").read_bytes() == plaintext


RANGES = [
    (0, 10),
    (MIB - 5, 10),
    (3 * MIB + 10, 7),
    (3 * MIB + 10, 100),
    (MIB, MIB),
    (1, 2 * MIB),
    (2 * MIB - 1, 1),
    (3 * MIB + 17, 5),
    (0, 4 * MIB),
    (12345, 0),
]


def test_seeks_agree(java_peer: JavaPeer, tmp_path: Path) -> None:
    plaintext, key, prefix = loader.pattern(3 * MIB + 17), KEYS[24], PREFIXES["16"]
    path = tmp_path / "stream"
    path.write_bytes(ags1.encrypt(plaintext, key, aad_prefix=prefix))
    length = path.stat().st_size
    size, answers = java_peer.pread(key, prefix, length, path, RANGES)
    with ags1.open(path, "rb", key=key, aad_prefix=prefix, length=length) as reader:
        assert reader.size == size == len(plaintext)
        for (offset, count), (java_count, java_digest) in zip(RANGES, answers, strict=True):
            piece = reader.pread(offset, count)
            assert piece == plaintext[offset : offset + count]
            reader.seek(offset)
            assert reader.read(count) == piece
            assert (java_count, java_digest) == (len(piece), hashlib.sha256(piece).hexdigest())


@pytest.mark.parametrize("length", [None, 0, 36, 1048620, (1 << 40) + 7])
@pytest.mark.parametrize("prefix", [b"", b"1234567890123456", bytes(200)], ids=["empty", "16", "200"])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS.keys())
def test_key_metadata_has_javas_bytes(java_peer: JavaPeer, key: bytes, prefix: bytes, length: int | None) -> None:
    encoded = ags1.KeyMetadata(key, prefix, length).encode()
    assert encoded == java_peer.encode(key, prefix, length)
    assert encoded == reference.encode_key_metadata(reference.KeyMetadata(key, prefix, length))
    decoded = java_peer.decode(encoded)
    assert (decoded.encryption_key, decoded.aad_prefix, decoded.file_length) == (key, prefix, length)


def test_java_reads_key_metadata_without_a_prefix_but_cannot_make_it(java_peer: JavaPeer) -> None:
    encoded = ags1.KeyMetadata(KEYS[16]).encode()
    decoded = java_peer.decode(encoded)
    assert (decoded.encryption_key, decoded.aad_prefix, decoded.file_length) == (KEYS[16], None, None)
    with pytest.raises(JavaError, match="NullPointerException"):
        java_peer.encode(KEYS[16], None, None)


@pytest.mark.parametrize("size", [0, 100, MIB + 5])
@pytest.mark.parametrize("key_length", KEYS)
def test_ags1_opens_a_file_of_javas_encryption_manager(
    java_peer: JavaPeer, tmp_path: Path, key_length: int, size: int
) -> None:
    plaintext = loader.pattern(size)
    source, target = tmp_path / "plaintext", tmp_path / "encrypted"
    source.write_bytes(plaintext)
    encoded, length = java_peer.encrypt_managed(key_length, source, target)
    metadata = ags1.KeyMetadata.decode(encoded)
    assert metadata.file_length == length == target.stat().st_size
    assert metadata.aad_prefix is not None
    assert len(metadata.aad_prefix) == 16
    assert metadata.encode() == encoded
    with ags1.open(target, "rb", key_metadata=metadata) as reader:
        assert reader.length_trusted
        assert reader.read() == plaintext


@pytest.mark.parametrize("size", [0, 100, MIB, MIB + 5])
def test_javas_encryption_manager_opens_a_file_of_ags1(java_peer: JavaPeer, tmp_path: Path, size: int) -> None:
    source, target, back = tmp_path / "plaintext", tmp_path / "encrypted", tmp_path / "back"
    source.write_bytes(loader.pattern(size))
    metadata = ags1.encrypt_file(source, target)
    assert java_peer.decrypt_managed(metadata.encode(), target, back) == size
    assert back.read_bytes() == source.read_bytes()


def test_java_refuses_key_metadata_without_a_length(java_peer: JavaPeer, tmp_path: Path) -> None:
    source = tmp_path / "encrypted"
    source.write_bytes(ags1.encrypt(b"hello", KEYS[16], aad_prefix=b"p"))
    encoded = ags1.KeyMetadata(KEYS[16], b"p").encode()
    with pytest.raises(JavaError, match="length"):
        java_peer.decrypt_managed(encoded, source, tmp_path / "back")


def test_two_field_key_metadata_and_its_file(two_field_peer: JavaPeer, tmp_path: Path) -> None:
    assert not two_field_peer.version().takes_length
    plaintext = loader.pattern(MIB + 5)
    source, target = tmp_path / "plaintext", tmp_path / "encrypted"
    source.write_bytes(plaintext)
    encoded, length = two_field_peer.encrypt_managed(16, source, target)
    assert len(encoded) == 36
    metadata = ags1.KeyMetadata.decode(encoded)
    assert metadata.file_length is None
    with ags1.open(target, "rb", key_metadata=metadata) as reader:
        assert not reader.length_trusted
        assert reader.encrypted_length == length
        assert reader.read() == plaintext
    # What ags1 writes has three fields, and the older release reads that too.
    assert two_field_peer.decrypt_managed(metadata.encode(), target, tmp_path / "back") == len(plaintext)
    assert (tmp_path / "back").read_bytes() == plaintext


@every("vector", loader.load_streams(), ids=by_name)
def test_java_does_what_the_stream_vector_says(
    java_peer: JavaPeer, tmp_path: Path, vector: loader.StreamVector
) -> None:
    stream = vector.stream()
    # This release reads nothing without a length, so a vector without one gets the size of the file.
    length = len(stream) if vector.length is None else vector.length
    try:
        plaintext = java_read(java_peer, stream, vector.key, vector.aad_prefix, length, tmp_path)
    except JavaError as error:
        did = ["refuses", error.java_class]
    else:
        did = ["returns", str(len(plaintext)), hashlib.sha256(plaintext).hexdigest()]
        if vector.good and plaintext == vector.plaintext():
            did = ["accepts"]
    assert did == vector.java


@every("vector", loader.load_key_metadata(), ids=by_name)
def test_java_does_what_the_key_metadata_vector_says(java_peer: JavaPeer, vector: loader.KeyMetadataVector) -> None:
    if vector.java[0] == "refuses":
        with pytest.raises(JavaError) as caught:
            java_peer.decode(vector.encoded)
        assert vector.java == ["refuses", caught.value.java_class]
        return
    assert vector.java == ["accepts"]
    decoded = java_peer.decode(vector.encoded)
    if vector.good:
        fields = vector.key_metadata
        assert (decoded.encryption_key, decoded.aad_prefix) == (fields.encryption_key, fields.aad_prefix)
        assert decoded.file_length == fields.file_length


def test_java_shortens_a_stream_with_a_tail(java_peer: JavaPeer, tmp_path: Path) -> None:
    (vector,) = (vector for vector in loader.load_streams() if vector.name == "mib-tail-01")
    path = tmp_path / "stream"
    path.write_bytes(vector.stream())
    arguments = (vector.key, vector.aad_prefix, vector.stream_length, path)
    # A whole block overhead is taken off for one byte of tail: the length is 27 bytes short, and the bytes
    # behind it come out when the reader goes on and cannot be sought.
    size, _ = java_peer.pread(*arguments, [(0, 1)])
    assert size == 2 * MIB - 27
    _, [(count, _)] = java_peer.pread(*arguments, [(2 * MIB - 100, 1000)])
    assert count == 100
    with pytest.raises(JavaError, match="EOFException"):
        java_peer.pread(*arguments, [(2 * MIB - 26, 1)])
    with pytest.raises(ags1.TruncatedError):
        ags1.decrypt(vector.stream(), vector.key, aad_prefix=vector.aad_prefix)


def test_bench_times_every_round(java_peer: JavaPeer, tmp_path: Path) -> None:
    source, target, back = tmp_path / "plaintext", tmp_path / "encrypted", tmp_path / "back"
    source.write_bytes(loader.pattern(MIB + 5))
    key, prefix = KEYS[16], PREFIXES["16"]
    times = java_peer.bench("encrypt", key, prefix, None, source, target, 3)
    times += java_peer.bench("decrypt", key, prefix, target.stat().st_size, target, back, 3)
    assert len(times) == 6
    assert min(times) > 0
    assert back.read_bytes() == source.read_bytes()
