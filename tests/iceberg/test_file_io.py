"""The FileIO alone: what it opens, with which key, and what it refuses."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ags1
from ags1 import FormatError, KeyAccessError, KeyMetadata, TruncatedError
from ags1.iceberg import EncryptedFileIO, UntrustedLengthWarning
from ags1.iceberg.files.file_io import KnownFile
from ags1.iceberg.metadata.locations import local_path
from ags1.kms import MemoryKms
from ags1.parquet import encrypt_file
from ags1.parquet.keys.properties import EncryptionConfig

KEY = KeyMetadata(bytes(range(16)), b"0123456789abcdef")
PLAIN = bytes(range(256)) * 40


class EmptyKms(MemoryKms):
    """What a URL can name."""

    def __init__(self) -> None:
        super().__init__({})


def write(path: Path, plain: bytes = PLAIN) -> KeyMetadata:
    """Write an AGS1 file; return its key metadata with the length."""
    path.write_bytes(ags1.encrypt(plain, KEY.encryption_key, aad_prefix=KEY.aad_prefix or b""))
    return KEY.with_length(path.stat().st_size)


def learned(file_io: EncryptedFileIO, path: Path, key: KeyMetadata | None, **changes: Any) -> str:
    """Make a file known; return its location."""
    location = str(path)
    fields = {"kind": "data", "file_format": "avro", "length_hint": None} | changes
    file_io.keys._files[location] = KnownFile(location, key_metadata=key, **fields)
    return location


def read(file_io: EncryptedFileIO, location: str) -> bytes:
    with file_io.new_input(location).open() as stream:
        return bytes(stream.read())


# -- which file is what ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("file_format", ["avro", "puffin"])
def test_ags1_files_open_as_plaintext(tmp_path: Path, file_format: str) -> None:
    file_io, path = EncryptedFileIO(), tmp_path / "file"
    location = learned(file_io, path, write(path), file_format=file_format)
    assert read(file_io, location) == PLAIN
    with file_io.new_input(location).open() as stream:
        stream.seek(1000)
        assert stream.read(5) == PLAIN[1000:1005]
    assert len(file_io.new_input(location)) == path.stat().st_size
    assert file_io.new_input(location).exists()
    assert not file_io.new_input(str(tmp_path / "nothing")).exists()


def test_parquet_opens_as_a_plaintext_view(tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.parquet", tmp_path / "file.parquet"
    table = pa.table({"x": list(range(1000))})
    pq.write_table(table, plain)
    encrypt_file(plain, path, EncryptionConfig.for_iceberg(KEY))
    file_io = EncryptedFileIO()
    location = learned(file_io, path, KEY.with_length(path.stat().st_size), file_format="parquet")
    with file_io.new_input(location).open() as view:
        assert pq.read_table(view) == table
    learned(file_io, path, KEY.with_length(path.stat().st_size + 1), file_format="parquet")
    with pytest.raises(TruncatedError, match=r"file\.parquet: has [0-9]+ bytes, but its key metadata says"):
        file_io.new_input(location).open()


def test_encrypted_files_of_other_formats_are_refused(tmp_path: Path) -> None:
    file_io, path = EncryptedFileIO(), tmp_path / "file.orc"
    location = learned(file_io, path, write(path), file_format="orc")
    with pytest.raises(FormatError, match=r"file\.orc: encrypted files of the format orc are not supported"):
        file_io.new_input(location).open()


def test_a_plaintext_file_needs_permission(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    path.write_bytes(PLAIN)
    strict, lenient = EncryptedFileIO(), EncryptedFileIO({"ags1.allow-plaintext": "true"})
    location = learned(strict, path, None)
    with pytest.raises(KeyAccessError, match=r"file\.parquet: this data file is not encrypted; open the table with"):
        strict.new_input(location).open()
    learned(lenient, path, None)
    assert read(lenient, location) == PLAIN


@pytest.mark.parametrize(("magic", "what"), [(b"AGS1", "an AGS1 stream"), (b"PARE", "an encrypted Parquet file")])
def test_an_encrypted_file_that_nothing_named_is_refused(tmp_path: Path, magic: bytes, what: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(magic + bytes(100))
    with pytest.raises(KeyAccessError, match=f"file: is {what}, and its key is not known: read the table's metadata"):
        EncryptedFileIO().new_input(str(path)).open()


def test_any_other_file_is_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"{}")
    assert read(EncryptedFileIO(), str(path)) == b"{}"
    assert read(EncryptedFileIO(), path.as_uri()) == b"{}"
    with EncryptedFileIO().new_input(str(path)).open(seekable=False) as stream:
        assert stream.read() == b"{}"


# -- lengths --------------------------------------------------------------------------------------------------


def test_a_trusted_length_finds_a_cut_file(tmp_path: Path) -> None:
    file_io, path = EncryptedFileIO(), tmp_path / "file"
    location = learned(file_io, path, write(path))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TruncatedError, match=r"file: has .* but its trusted length is"):
        read(file_io, location)


def test_without_a_length_the_policy_decides(tmp_path: Path) -> None:
    path = tmp_path / "file"
    stored = write(path).file_length
    for hint in (stored, len(PLAIN)):
        trusted = EncryptedFileIO()
        location = learned(trusted, path, KEY, length_hint=hint)
        with pytest.raises(FormatError, match="the key metadata of this data has no file length"):
            trusted.new_input(location).open()
        hinted, by_file = (EncryptedFileIO({"ags1.length-policy": each}) for each in ("metadata-hint", "file"))
        learned(hinted, path, KEY, length_hint=hint)
        assert read(hinted, location) == PLAIN
        learned(by_file, path, KEY, length_hint=hint)
        with pytest.warns(UntrustedLengthWarning, match="file: opened without a trusted length"):
            assert read(by_file, location) == PLAIN
    for policy in ("metadata-hint", "file"):
        file_io = EncryptedFileIO({"ags1.length-policy": policy})
        learned(file_io, path, KEY, length_hint=len(PLAIN) + 1)
        with pytest.raises(TruncatedError, match=f"has {stored} bytes, but the file above it says {len(PLAIN) + 1}"):
            file_io.new_input(location).open()


def test_without_a_hint_only_the_file_itself_is_left(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    hinted = EncryptedFileIO({"ags1.length-policy": "metadata-hint"})
    location = learned(hinted, path, KEY)
    with pytest.raises(FormatError, match="nothing authenticated says how long this data is"):
        hinted.new_input(location).open()
    by_file = EncryptedFileIO({"ags1.length-policy": "file"})
    learned(by_file, path, KEY)
    with pytest.warns(UntrustedLengthWarning, match="file: opened without a trusted length"):
        assert read(by_file, location) == PLAIN


# -- arguments ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"ags1.length-policy": "any"}, "ags1.length-policy must be 'trusted', 'metadata-hint' or 'file', not 'any'"),
        ({"ags1.allow-plaintext": "yes"}, "ags1.allow-plaintext must be true or false, got 'yes'"),
        ({"ags1.kms": "nowhere:"}, "there is no KMS 'nowhere'"),
    ],
)
def test_properties_that_make_no_sense_are_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EncryptedFileIO(properties)


def test_a_copy_has_the_properties_and_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "file"
    properties = {"ags1.kms": f"module:{__name__}.EmptyKms", "ags1.allow-plaintext": "true"}
    with pytest.raises(TypeError, match=r"name the KMS in the property ags1\.kms"):
        pickle.dumps(EncryptedFileIO({}, kms=MemoryKms({})))
    file_io = EncryptedFileIO(properties)
    location = learned(file_io, path, write(path))
    assert read(file_io, location) == PLAIN
    data = pickle.dumps(file_io)
    assert bytes(KEY.encryption_key) not in data
    copy = pickle.loads(data)
    assert copy.properties == file_io.properties
    assert copy.expected == file_io.expected
    with pytest.raises(KeyAccessError, match="its key is not known"):
        copy.new_input(location).open()


# -- writing and deleting -------------------------------------------------------------------------------------


def test_writes_are_refused_and_deletes_are_not(tmp_path: Path) -> None:
    file_io, path = EncryptedFileIO(), tmp_path / "file"
    path.write_bytes(b"x")
    with pytest.raises(PermissionError, match="PyIceberg cannot write to encrypted tables, because it has nowhere"):
        file_io.new_output(str(path))
    file_io.delete(str(path))
    assert not path.exists()
    for each in (path, tmp_path / "other"):
        each.write_bytes(b"x")
        file_io.delete(file_io.new_input(str(each)))
        assert not each.exists()


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b c%20d", "/a/b c%20d"),
        ("file://localhost/a", "/a"),
        ("relative/path", "relative/path"),
        ("file://host/a", None),
        ("s3://bucket/key", None),
    ],
)
def test_paths_on_this_machine(location: str, path: str | None) -> None:
    assert local_path(location) == path


def test_a_plaintext_file_that_nothing_names_needs_permission(tmp_path: Path) -> None:
    path = tmp_path / "unnamed.avro"
    path.write_bytes(b"Obj\x01")
    with pytest.raises(ags1.KeyAccessError, match="nothing that was read of the table names this file"):
        EncryptedFileIO().new_input(str(path)).open()
    allowed = EncryptedFileIO({"ags1.allow-plaintext": "true"})
    assert allowed.new_input(str(path)).open().read() == b"Obj\x01"
