"""No file is read, rewritten or called whole that is less protected, or other, than the caller said."""

from __future__ import annotations

import copy
import io
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ags1.errors import AuthenticationError, FormatError
from ags1.parquet import (
    DecryptionConfig,
    EncryptionConfig,
    PlaintextColumnsError,
    decrypt_file,
    encrypt_file,
    inspect,
    open,
    read_table,
    rekey_file,
    verify_file,
)
from tests.parquet import corpus, handmade, public_files, reference_writer
from tests.parquet.reference import open_encrypted, open_plain
from tests.parquet.reference_thrift import BINARY, I64, LIST, STRUCT, Sequence, Struct
from tests.parquet.reference_writer import Encryption, write_plain

FOOTER_KEY = b"footer key, 24 bytes ..."
KEY = b"column key, 32 bytes ..........."
OTHER_KEY = b"another, 16 byte"
RANDOM = random.Random(20)


def table(rows: int = 200) -> pa.Table:
    return pa.table({"id": range(rows), "ssn": [f"s{each}" for each in range(rows)], "salary": range(rows)})


def written(**options: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(table(), target, **options)
    return target.getvalue()


def encrypted(data: bytes, **options: Any) -> bytes:
    target = io.BytesIO()
    encrypt_file(data, target, EncryptionConfig(FOOTER_KEY, **options))
    return target.getvalue()


def decrypted(data: bytes, config: DecryptionConfig, **options: Any) -> bytes:
    target = io.BytesIO()
    decrypt_file(data, target, config, **options)
    return target.getvalue()


def rekeyed(data: bytes, reading: DecryptionConfig, config: EncryptionConfig, **options: Any) -> bytes:
    target = io.BytesIO()
    rekey_file(data, target, reading, config, **options)
    return target.getvalue()


# -- the first four bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["encrypted", "signed", "plaintext"])
@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize(
    "read",
    [
        lambda data, config: open(data, config),
        lambda data, config: read_table(data, config),
        lambda data, config: inspect(data, config),
        lambda data, config: inspect(data),
        lambda data, config: decrypted(data, config),
        lambda data, config: rekeyed(data, config, EncryptionConfig(KEY, encrypt_all=True)),
    ],
    ids=["open", "read_table", "inspect", "inspect without keys", "decrypt_file", "rekey_file"],
)
def test_a_damaged_beginning_is_noticed(mode: str, size: str, read: Any) -> None:
    rows = 200 if size == "small" else 60_000
    target = io.BytesIO()
    pq.write_table(table(rows), target, compression="none", use_dictionary=False)
    data = target.getvalue()
    assert (len(data) > 64 << 10) == (size == "large")
    if mode != "plaintext":
        data = encrypted(data, plaintext_footer=mode == "signed")
    config = DecryptionConfig(FOOTER_KEY, allow_plaintext=True)
    right = data[:4]
    # The other magic among them, and one bit.
    wrong = [b"PARE" if right == b"PAR1" else b"PAR1", bytes([right[0] ^ 1]) + right[1:], RANDOM.randbytes(4)]
    for beginning in wrong:
        with pytest.raises(FormatError, match=r"begins with b.* and ends with b'PAR[1E]': damaged"):
            read(beginning + data[4:], config)


# -- columns that become plaintext -----------------------------------------------------------------------------


@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_re_keying_puts_columns_under_the_footer_key_only_if_told_to(plaintext_footer: bool) -> None:
    """Whoever has the footer key could then read the columns that were kept from them."""
    secret = encrypted(written(), column_keys={"ssn": KEY, "salary": KEY}, plaintext_footer=plaintext_footer)
    reading = DecryptionConfig(FOOTER_KEY, column_keys={"ssn": KEY, "salary": KEY})
    with pytest.raises(
        ValueError, match="could then read them: ssn, salary; give them keys, or choose `encrypt_all"
    ) as no:
        rekeyed(secret, reading, EncryptionConfig(OTHER_KEY))
    assert "these columns have keys of their own" in str(no.value)
    shared = rekeyed(secret, reading, EncryptionConfig(OTHER_KEY, encrypt_all=True))
    again = rekeyed(shared, DecryptionConfig(OTHER_KEY), EncryptionConfig(FOOTER_KEY))
    assert read_table(again, DecryptionConfig(FOOTER_KEY)) == table()


@pytest.mark.parametrize("before", [{}, {"column_keys": {"ssn": KEY, "salary": KEY}}])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_re_keying_refuses_to_decrypt_columns_that_nobody_named(before: Any, plaintext_footer: bool) -> None:
    secret = encrypted(written(), plaintext_footer=plaintext_footer, **before)
    reading = DecryptionConfig(FOOTER_KEY, column_keys=before.get("column_keys"))
    new = EncryptionConfig(FOOTER_KEY, column_keys={"ssn": OTHER_KEY})
    lost = ["salary"] if before else ["id", "salary"]
    target = io.BytesIO()
    with pytest.raises(PlaintextColumnsError, match="encrypted and would become plaintext") as found:
        rekey_file(secret, target, reading, new)
    assert found.value.columns == lost
    assert target.getvalue() == b""
    assert isinstance(found.value, ValueError)
    for name in lost:
        assert name in str(found.value)
    if len(lost) > 1:
        with pytest.raises(PlaintextColumnsError) as found:
            rekeyed(secret, reading, new, plaintext_columns=["id"])
        assert found.value.columns == ["salary"]
    changed = rekeyed(secret, reading, new, plaintext_columns=lost)
    opened = open_encrypted(changed, FOOTER_KEY, {"ssn": OTHER_KEY})
    found_now = {chunk.path[0]: chunk.encryption for chunk in opened.chunks}
    assert found_now == {"id": "plaintext", "ssn": "column key", "salary": "plaintext"}


def test_columns_that_were_plaintext_need_not_be_named() -> None:
    secret = encrypted(written(), column_keys={"ssn": KEY})
    reading = DecryptionConfig(FOOTER_KEY, column_keys={"ssn": KEY})
    assert rekeyed(secret, reading, EncryptionConfig(KEY, column_keys={"ssn": OTHER_KEY}))
    with pytest.raises(TypeError, match="plaintext_columns must be an iterable of column names, not one name"):
        rekeyed(secret, reading, EncryptionConfig(KEY, column_keys={}), plaintext_columns="ssn")


# -- columns that have another key than the reader's -------------------------------------------------------------


READERS: dict[str, Any] = {
    "open": lambda data, config: open(data, config).read(),
    "read_table": read_table,
    "read_table of another column": lambda data, config: read_table(data, config, ["id"]),
    "decrypt_file": decrypted,
    "rekey_file": lambda data, config: rekeyed(data, config, EncryptionConfig(KEY, encrypt_all=True)),
}


@pytest.mark.parametrize("plaintext_footer", [False, True])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"column_keys": {"salary": OTHER_KEY}},
            "column 'ssn' in row group 0 is not encrypted, although `column",
        ),
        ({"column_keys": {}}, "column 'ssn' in row group 0 is not encrypted, although `column_keys` has a key"),
        ({}, "column 'ssn' in row group 0 is encrypted with the footer key, although `column_keys` has a key for it"),
    ],
)
def test_a_column_with_a_key_must_be_encrypted_with_it(
    reader: str, options: Any, text: str, plaintext_footer: bool
) -> None:
    secret = encrypted(written(), plaintext_footer=plaintext_footer, **options)
    keys = {**options.get("column_keys", {}), "ssn": KEY}
    with pytest.raises(AuthenticationError, match=text):
        READERS[reader](secret, DecryptionConfig(FOOTER_KEY, column_keys=keys))
    allowed = DecryptionConfig(FOOTER_KEY, column_keys=keys, allow_plaintext=True)
    assert READERS[reader](secret, allowed)
    # Names of groups and of columns that the file does not have mean nothing here.
    assert READERS[reader](
        secret, DecryptionConfig(FOOTER_KEY, column_keys={**options.get("column_keys", {}), "x": KEY})
    )


def test_a_column_with_the_footer_key_has_that_key() -> None:
    secret = encrypted(written())
    assert read_table(secret, DecryptionConfig(FOOTER_KEY, column_keys={"ssn": FOOTER_KEY})).equals(table())


# -- what a plaintext footer shows -------------------------------------------------------------------------------


def test_a_plaintext_footer_shows_nothing_of_encrypted_columns_but_what_is_listed() -> None:
    """Known fields, and unknown ones of any number, beside the pages of the column and in its metadata."""
    numbers = sorted(RANDOM.sample(range(18, 32_000), 5))
    secrets = [f"secret {each}".encode() for each in (*numbers, *numbers, "pair")]

    def change(footer: Struct) -> None:
        for group in footer[4]:
            for fields in group[1]:
                if fields[3][3].items[0] != b"ssn":
                    continue
                for at, number in enumerate(numbers):
                    fields[3].put(number, BINARY, secrets[at])
                    fields.put(number, BINARY, secrets[len(numbers) + at])
                pair = Struct().put(1, BINARY, b"note").put(2, BINARY, secrets[-1])
                fields[3].put(8, LIST, Sequence(STRUCT, [pair]))

    plain = write_plain(open_plain(written()), finish=change)
    assert all(each in plain for each in secrets)
    for plaintext_footer in (False, True):
        secret = encrypted(plain, column_keys={"ssn": KEY}, plaintext_footer=plaintext_footer)
        assert not [each for each in secrets if each in secret]
        keys = DecryptionConfig(FOOTER_KEY, column_keys={"ssn": KEY})
        back = decrypted(secret, keys)
        # What is in the metadata comes back.
        assert all(back.count(each) >= 1 for each in {*secrets})
        assert back.count(b"secret") == (6 if plaintext_footer else 11)
    visible = open_encrypted(secret, FOOTER_KEY, {"ssn": KEY}).footer[4].items[0][1].items[1][3]
    assert set(visible.fields) <= {1, 2, 3, 4, 5, 6, 7, 9, 10, 11}
    assert not verify_file(secret, keys).having("contradiction")
    assert pq.read_table(io.BytesIO(back)).equals(table())


# -- lengths that leave headers out (PARQUET-816) ----------------------------------------------------------------

OLD = [
    b"parquet-mr",
    b" parquet-mr ",
    b"parquet-mr version 1.2.8",
    b"parquet-mr version 1.2.8 (build x)",
    b"parquet-mr version 1.2",
    b"parquet-mr version 1",
    b"parquet-mr version x",
    b"parquet-mr version 1.2.8-cdh5.1",
    b"parquet-mr version (build 7)",
    b"parquet-mr version 0.99.99",
    b"parquet-mr version 1.10b (build x)",
]
NEW = [
    b"",
    b"parquet-mr version",
    b"parquet-mr version 1.2.9",
    b"parquet-mr version 1.13.1 (build x)",
    b"parquet-mr version 2",
    b"PARQUET-MR",
    b"parquet-cpp-arrow version 1.2.8",
    b"impala version 1.2.8 (build x)",
    b"parquet-mr-x",
    b"parquet-mr version 1.2.10",
]


def _through_pyarrow(data: bytes) -> pa.Table | None:
    """Rows as PyArrow reads them; None if it cannot, or if they are wrong."""
    try:
        found = pq.read_table(io.BytesIO(data), use_threads=False)
    except OSError:
        return None
    return found if found.equals(table()) else None


@pytest.mark.parametrize("created_by", OLD + NEW)
@pytest.mark.parametrize("where", ["memory", "path", "file object"])
def test_no_chunk_is_copied_with_a_length_that_its_pages_contradict(
    created_by: bytes, where: str, tmp_path: Path
) -> None:
    """Who is old is who is old for Arrow, which reads the rows; what others left out is refused, not copied wrong."""
    # The dictionary of the last column ends the row group: a byte that is missing there is one of a page.
    data = handmade.without_dictionary_headers(written(compression="none", store_schema=False), created_by)
    old = created_by in OLD
    expected = _through_pyarrow(data)
    assert (expected is not None) == old
    source: Any = data
    if where != "memory":
        (tmp_path / "source.parquet").write_bytes(data)
        source = tmp_path / "source.parquet"
    if where == "file object":
        source = _Unnamed(data)
    target = io.BytesIO()
    config = EncryptionConfig(FOOTER_KEY, column_keys={})
    if not old:
        with pytest.raises(FormatError, match="column '"):
            encrypt_file(source, target, config)
        return
    encrypt_file(source, target, config)
    assert read_table(target.getvalue(), DecryptionConfig(FOOTER_KEY)).equals(table())
    assert _through_pyarrow(decrypted(target.getvalue(), DecryptionConfig(FOOTER_KEY))) is not None


def _with_empty_group(data: bytes, at: int, created_by: bytes) -> bytes:
    """The file with a row group more, which has no rows and whose chunks start where those behind it do."""

    def change(footer: Struct) -> None:
        empty = copy.deepcopy(footer[4][at])
        for chunk in empty[1]:
            chunk[3].put(5, I64, 0).put(6, I64, 0).put(7, I64, 0)
        footer[4].items.insert(at, empty.put(2, I64, 0).put(3, I64, 0).remove(5, 6, 7))
        for group in footer[4]:
            group.remove(7)
        footer.put(6, BINARY, created_by)

    return write_plain(open_plain(data), finish=change)


@pytest.mark.parametrize("created_by", [b"parquet-mr", b"parquet-mr version 1.2.8 (build x)"])
@pytest.mark.parametrize("with_key", ["ssn", "city"])
def test_an_empty_chunk_of_an_old_writer_takes_no_page_of_another_column(created_by: bytes, with_key: str) -> None:
    rows = pa.table({"ssn": [f"078-05-{n:04}" for n in range(60)], "city": [f"city of {n}" for n in range(60)]})
    out = io.BytesIO()
    pq.write_table(rows, out, row_group_size=20, compression="none", use_dictionary=False, write_statistics=False)
    for at in range(3):
        data = _with_empty_group(out.getvalue(), at, created_by)
        assert pq.read_table(io.BytesIO(data)).equals(rows)
        secret = encrypted(data, column_keys={with_key: KEY})
        assert rows[with_key][20 * at].as_py().encode() not in secret
        keys = DecryptionConfig(FOOTER_KEY, column_keys={with_key: KEY})
        assert not verify_file(secret, keys).having("contradiction")
        assert pq.read_table(io.BytesIO(decrypted(secret, keys))).equals(rows)


@pytest.mark.parametrize("where", ["memory", "path", "file object"])
def test_damage_that_a_checksum_shows_is_not_copied(where: str, tmp_path: Path) -> None:
    plain = written(write_page_checksum=True, compression="none", use_dictionary=False)
    for column in range(3):
        chunk = pq.ParquetFile(io.BytesIO(plain)).metadata.row_group(0).column(column)
        data = bytearray(plain)
        data[chunk.data_page_offset + chunk.total_compressed_size - 1 - RANDOM.randrange(100)] ^= 1 << RANDOM.randrange(
            8
        )
        source: Any = bytes(data)
        if where != "memory":
            (tmp_path / "source.parquet").write_bytes(data)
            source = tmp_path / "source.parquet"
        if where == "file object":
            source = _Unnamed(bytes(data))
        with pytest.raises(FormatError, match=f"column '{chunk.path_in_schema}'.*its CRC does not match"):
            encrypt_file(source, io.BytesIO(), EncryptionConfig(FOOTER_KEY, column_keys={"ssn": KEY}))


def test_a_file_whose_num_values_is_too_low_is_rekeyed_and_decrypted_as_it_was_encrypted() -> None:
    def change(footer: Struct) -> None:
        footer[4][0][1][1][3].put(5, I64, 1)

    data = write_plain(open_plain(written()), finish=change)
    keys = DecryptionConfig(FOOTER_KEY)
    secret = encrypted(data)
    again = io.BytesIO()
    rekey_file(secret, again, keys, EncryptionConfig(FOOTER_KEY))
    for each in (secret, again.getvalue()):
        assert not verify_file(each, keys).having("damaged")
        assert len(pq.read_table(io.BytesIO(decrypted(each, keys)), columns=["id"])) == 200


class _Unnamed(io.RawIOBase):
    """A file object that can only be read through Python."""

    def __init__(self, data: bytes) -> None:
        self._inner = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._inner.readinto(buffer)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()


def test_the_public_file_without_dictionary_headers_keeps_its_rows() -> None:
    name = "nation.dict-malformed.parquet"
    if not (public_files.DIRECTORY / name).exists():
        # Not among the files that every machine of the tests has; handmade.py makes such files.
        pytest.skip(f"{name} of parquet-testing is not here")
    data = public_files.read(name)
    expected = pq.read_table(io.BytesIO(data))
    for options in ({"column_keys": {}}, {}, {"column_keys": {"name": KEY}}):
        target = io.BytesIO()
        encrypt_file(data, target, EncryptionConfig(FOOTER_KEY, **options))
        back = decrypted(target.getvalue(), DecryptionConfig(FOOTER_KEY, column_keys=options.get("column_keys")))
        assert pq.read_table(io.BytesIO(back)).equals(expected)


@pytest.mark.parametrize("name", [name for name in corpus.CORPUS if name not in corpus.UNREADABLE])
def test_every_file_of_the_corpus_is_still_copied(name: str) -> None:
    """Padding, index pages, pages of unknown types and everything that old writers did are no contradiction."""
    data = corpus.build(name)
    for source in (data, _Unnamed(data)):
        target = io.BytesIO()
        encrypt_file(source, target, EncryptionConfig(FOOTER_KEY, column_keys={}))
        back = decrypted(target.getvalue(), DecryptionConfig(FOOTER_KEY))
        if name != "path-that-is-no-text":
            assert pq.read_table(io.BytesIO(back)).equals(pq.read_table(io.BytesIO(data)))


# -- Bloom filters that are not encrypted ------------------------------------------------------------------------


@pytest.mark.parametrize("with_length", [True, False])
def test_plaintext_bloom_filters_are_named_and_can_be_dropped(with_length: bool) -> None:
    """arrow-rs writes such files."""

    class Layout(reference_writer._Layout):
        def bloom_filter(self, chunk: Any, _fields: Any, metadata: Any, key: Any, place: Any) -> None:
            super().bloom_filter(chunk, _fields, metadata, None, place)
            if not with_length:
                metadata.remove(15)

    plain = corpus.build("bloom-filters-v1")
    data = Layout(open_plain(plain), reference_writer._Sealer(Encryption(FOOTER_KEY))).write()
    keys, new = DecryptionConfig(FOOTER_KEY), EncryptionConfig(KEY)
    text = "its Bloom filter is not encrypted, although the column is; rewrite the file with `drop_bloom_filters=True`"
    assert text in verify_file(data, keys).having("damaged")[0].message
    for refused in (lambda: decrypted(data, keys), lambda: rekeyed(data, keys, new)):
        with pytest.raises(FormatError, match=text):
            refused()
    expected = pq.read_table(io.BytesIO(plain))
    # Whoever asks no filter is not in the way of it.
    assert read_table(data, keys).equals(expected)
    back = decrypted(data, keys, drop_bloom_filters=True)
    assert pq.read_table(io.BytesIO(back)).equals(expected)
    changed = rekeyed(data, keys, new, drop_bloom_filters=True)
    assert verify_file(changed, DecryptionConfig(KEY)).ok
    assert not any(
        chunk.bloom_header for file in (open_plain(back), open_encrypted(changed, KEY)) for chunk in file.chunks
    )
    # A chunk that is copied as it is loses its filter, too.
    same = rekeyed(data, keys, EncryptionConfig(FOOTER_KEY), drop_bloom_filters=True)
    assert verify_file(same, keys).ok
