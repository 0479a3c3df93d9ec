"""Configurations of Parquet encryption: which key a column gets, whose file it is, and keys that stay put."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ags1
from ags1 import AuthenticationError, FormatError, Key, KeyAccessError, KeyMetadata, parquet
from ags1.kms import MemoryKms
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from tests.checks import BUFFER_KINDS, KEY, KEYS, OTHER_KEY, PREFIX, BufferKind

FOOTER = b"footer key 16 B."
ONE = b"first column key"
TWO = b"second column k."
THREE = b"third column key"
LEAVES = [("id",), ("a", "b", "list", "element"), ("a", "b2"), ("a.b",), ("c", "x"), ("c", "y")]
FLAT = [("id",), ("ssn",), ("salary",)]


def given_keys(config: EncryptionConfig, paths: list[tuple[str, ...]]) -> list[bytes | None]:
    """The key of each column, None for a plaintext one."""
    return [None if column is None else bytes(column.key) for column in config.for_file().columns(paths)]


# -- which columns get which key ---------------------------------------------------------------------------------


def test_without_column_keys_every_column_is_encrypted_with_the_footer_key() -> None:
    columns = EncryptionConfig(FOOTER).for_file().columns(LEAVES)
    assert [column is not None and column.with_footer_key and bytes(column.key) for column in columns] == [FOOTER] * 6


def test_no_column_key_at_all_encrypts_the_footer_only() -> None:
    assert given_keys(EncryptionConfig(FOOTER, column_keys={}), FLAT) == [None, None, None]


def test_columns_that_are_not_named_stay_plaintext_or_take_the_footer_key() -> None:
    names = {"ssn": ONE}
    assert given_keys(EncryptionConfig(FOOTER, column_keys=names), FLAT) == [None, ONE, None]
    config = EncryptionConfig(FOOTER, column_keys=names, encrypt_all=True)
    assert given_keys(config, FLAT) == [FOOTER, ONE, FOOTER]
    columns = config.for_file().columns(FLAT)
    assert [column is not None and column.with_footer_key for column in columns] == [True, False, True]


def test_a_group_name_means_all_leaves_below_it_and_nothing_that_only_starts_alike() -> None:
    paths = [("a", "b", "list", "element"), ("a", "b2"), ("ab",), ("c", "x"), ("c", "y")]
    assert given_keys(EncryptionConfig(FOOTER, column_keys={"a": ONE, "c.x": TWO}), paths) == [
        ONE,
        ONE,
        None,
        TWO,
        None,
    ]
    assert given_keys(EncryptionConfig(FOOTER, column_keys={"a.b": ONE}), paths) == [ONE, None, None, None, None]


def test_the_most_specific_name_counts() -> None:
    config = EncryptionConfig(FOOTER, column_keys={"a": ONE, "a.b.list.element": THREE, "a.b": TWO})
    paths = [("a", "b", "list", "element"), ("a", "b", "other"), ("a", "z")]
    assert given_keys(config, paths) == [THREE, TWO, ONE]


def test_a_group_all_of_whose_leaves_have_names_of_their_own_is_no_error() -> None:
    assert given_keys(EncryptionConfig(FOOTER, column_keys={"c": ONE, "c.x": TWO}), [("c", "x")]) == [TWO]


def test_a_tuple_names_a_column_with_a_dot_in_its_name() -> None:
    config = EncryptionConfig(FOOTER, column_keys={("a.b",): ONE, ("a", "b"): TWO})
    assert given_keys(config, LEAVES) == [None, TWO, None, ONE, None, None]


def test_a_dotted_name_that_means_two_different_paths_is_refused() -> None:
    config = EncryptionConfig(FOOTER, column_keys={"a.b": ONE})
    with pytest.raises(ValueError, match=r"'a\.b' means both \('a', 'b'\) and \('a\.b',\): give the parts"):
        config.for_file().columns(LEAVES)


def test_columns_are_named_by_list_too() -> None:
    pairs = [(["ssn", ("id",)], ONE), ("salary", TWO)]
    assert given_keys(EncryptionConfig(FOOTER, column_keys=pairs), FLAT) == [ONE, ONE, TWO]


def test_two_names_with_different_keys_for_one_column_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'ssn' is given twice, with different keys"):
        EncryptionConfig(FOOTER, column_keys=[(["ssn"], ONE), (["ssn"], TWO)])
    config = EncryptionConfig(FOOTER, column_keys={"c.x": ONE, ("c", "x"): TWO})
    with pytest.raises(
        ValueError, match=r"the column c\.x is meant by 'c\.x' and by \('c', 'x'\), with different keys"
    ):
        config.for_file().columns(LEAVES)
    reading = DecryptionConfig(column_keys={"c.x": ONE, ("c", "x"): TWO}).for_file()
    with pytest.raises(ValueError, match="with different keys"):
        reading.column_key(("c", "x"), None)


def test_two_names_with_one_key_for_one_column_are_fine() -> None:
    config = EncryptionConfig(FOOTER, column_keys=[(["c.x", "c.x"], ONE), ([("c", "x")], ONE)])
    assert given_keys(config, [("c", "x")]) == [ONE]


def test_a_name_that_means_no_column_is_refused_and_the_nearest_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"there is no column 'SNN'; did you mean 'ssn'\?; the file has 3: id, ssn, sal"
    ):
        given_keys(EncryptionConfig(FOOTER, column_keys={"SNN": ONE}), FLAT)
    with pytest.raises(ValueError, match=r"there are no columns 'd', 'e'; the file has no columns"):
        given_keys(EncryptionConfig(FOOTER, column_keys={"d": ONE, "e": ONE}), [])
    many = [(f"column{number}",) for number in range(5000)]
    with pytest.raises(ValueError, match=r"the file has 5000: column0,.*, \.\.\.$") as caught:
        given_keys(EncryptionConfig(FOOTER, column_keys={"other": ONE}), many)
    assert len(str(caught.value)) < 300


NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(st.lists(NAMES, min_size=1, max_size=4).map(tuple), min_size=1, max_size=8, unique=True)


@given(PATHS, st.data())
def test_resolution_is_that_of_the_longest_named_beginning_of_the_path(paths: list[Any], data: st.DataObject) -> None:
    prefixes = sorted({path[:length] for path in paths for length in range(1, len(path) + 1)})
    named = data.draw(st.lists(st.sampled_from(prefixes), unique=True))
    keys = {prefix: bytes([number + 1]) * 16 for number, prefix in enumerate(named)}
    as_text = data.draw(st.lists(st.booleans(), min_size=len(named), max_size=len(named)))
    spelled = {".".join(name) if text else name: keys[name] for name, text in zip(named, as_text, strict=True)}
    expected = []
    for path in paths:
        found = [keys[path[:length]] for length in range(len(path), 0, -1) if path[:length] in keys]
        expected.append(found[0] if found else None)
    assert given_keys(EncryptionConfig(FOOTER, column_keys=spelled), paths) == expected
    reading = DecryptionConfig(FOOTER, column_keys=spelled).for_file()
    for path, key in zip(paths, expected, strict=True):
        if key is None:
            with pytest.raises(KeyAccessError):
                reading.column_key(path, None)
        else:
            assert bytes(reading.column_key(path, None)) == key


def test_key_metadata_goes_with_its_column() -> None:
    config = EncryptionConfig(
        FOOTER,
        column_keys={"ssn": ONE, "salary": TWO},
        footer_key_metadata="kf",
        column_key_metadata={"salary": b"\x00kc2"},
    )
    file = config.for_file()
    assert file.footer_key_metadata == b"kf"
    assert [column and column.key_metadata for column in file.columns(FLAT)] == [None, None, b"\x00kc2"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"column_keys": "ssn"}, TypeError, "column_keys must be a mapping from column name"),
        ({"column_keys": 5}, TypeError, "column_keys must be a mapping from column name"),
        ({"column_keys": ["ssn"]}, TypeError, "pairs of a list of column names and a value"),
        ({"column_keys": [([], ONE)]}, ValueError, "column_keys has an empty list of columns"),
        ({"column_keys": {"": ONE}}, ValueError, "column_keys has an empty column name"),
        ({"column_keys": {(): ONE}}, ValueError, "column_keys has an empty column path"),
        ({"column_keys": {5: ONE}}, TypeError, "neither a str nor a tuple of str: int"),
        ({"column_keys": {"ssn": b"short"}}, ValueError, "the key of column ssn: "),
        ({"column_keys": {"ssn": "0123456789012345"}}, TypeError, "the key of column ssn: "),
        ({"column_keys": {"ssn": bytes(16)}}, ValueError, "the key of column ssn consists of zero bytes"),
        ({"column_key_metadata": {"ssn": b"1"}}, ValueError, "column_key_metadata needs column_keys"),
        (
            {"column_keys": {"ssn": ONE}, "column_key_metadata": {"snn": b"1"}},
            ValueError,
            "`column_key_metadata` names 'snn', for which `column_keys` has no key",
        ),
        (
            {"algorithm": "AES_GCM_V2"},
            ValueError,
            "algorithm must be 'AES_GCM_V1' or 'AES_GCM_CTR_V1', not 'AES_GCM_V2'",
        ),
        ({"data_page_v2": "rust"}, ValueError, "data_page_v2 must be 'java' or 'arrow', not 'rust'"),
        ({"plaintext_footer": "no"}, TypeError, "plaintext_footer must be True or False, not str"),
        ({"encrypt_all": 1}, TypeError, "encrypt_all must be True or False, not int"),
        ({"aad_prefix": "lake"}, TypeError, "aad_prefix must be a bytes-like object, not str"),
        ({"aad_prefix": b""}, ValueError, "aad_prefix must not be empty"),
        ({"store_aad_prefix": False}, ValueError, "`store_aad_prefix=False` needs `aad_prefix`"),
        ({"footer_key_metadata": 5}, TypeError, "footer_key_metadata must be bytes or a str, not int"),
    ],
    ids=str,
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        EncryptionConfig(FOOTER, **arguments)
    assert message in str(caught.value)


def test_a_key_of_zero_bytes_is_refused_for_writing_and_read_with() -> None:
    with pytest.raises(ValueError, match="footer_key consists of zero bytes, which parquet-java refuses"):
        EncryptionConfig(bytes(32))
    assert DecryptionConfig(bytes(32)).for_file().footer_key(None) == Key(bytes(32))


@pytest.mark.parametrize("kind", [kind for kind in BUFFER_KINDS if 16 % kind.itemsize == 0], ids=str)
def test_keys_and_prefixes_are_buffers_of_any_kind(kind: BufferKind) -> None:
    file = EncryptionConfig(kind.make(FOOTER), aad_prefix=kind.make(PREFIX)).for_file()
    assert (bytes(file.footer_key), file.aad_prefix) == (FOOTER, PREFIX)


@pytest.mark.parametrize("length", KEYS)
def test_keys_have_any_size_of_aes(length: int) -> None:
    assert EncryptionConfig(KEYS[length]).for_file().footer_key == Key(KEYS[length])


def test_every_file_has_its_own_part_of_the_aad() -> None:
    config = EncryptionConfig(FOOTER, aad_prefix=PREFIX)
    files = [config.for_file() for _ in range(20)]
    assert {len(file.aad_file_unique) for file in files} == {8}
    assert len({file.aad_file_unique for file in files}) == 20
    assert all(file.file_aad == PREFIX + file.aad_file_unique for file in files)
    bare = EncryptionConfig(FOOTER).for_file()
    assert bare.file_aad == bare.aad_file_unique


def test_a_file_has_what_the_configuration_says() -> None:
    file = EncryptionConfig(
        FOOTER, algorithm="AES_GCM_CTR_V1", plaintext_footer=True, aad_prefix=PREFIX, store_aad_prefix=False,
        data_page_v2="arrow",
    ).for_file()  # fmt: skip
    assert (file.algorithm, file.plaintext_footer, file.store_aad_prefix) == ("AES_GCM_CTR_V1", True, False)
    assert (file.data_page_v2, file.footer_key_metadata, file.external_key_material()) == ("arrow", None, None)


# -- iceberg -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoded", [False, True])
def test_iceberg_files_have_one_key_and_a_prefix_that_is_not_stored(encoded: bool) -> None:
    metadata = KeyMetadata(KEY, PREFIX, 100)
    what: Any = metadata.encode() if encoded else metadata
    file = EncryptionConfig.for_iceberg(what).for_file()
    assert (file.algorithm, file.plaintext_footer, file.store_aad_prefix) == ("AES_GCM_V1", False, False)
    assert (file.aad_prefix, bytes(file.footer_key), file.footer_key_metadata) == (PREFIX, KEY, None)
    assert [column is not None and column.with_footer_key for column in file.columns(FLAT)] == [True] * 3
    reading = DecryptionConfig.for_iceberg(what).for_file()
    assert reading.footer_key(None) == file.footer_key
    assert reading.resolve_aad_prefix(None, True) == PREFIX


@pytest.mark.parametrize("prefix", [None, b""])
def test_iceberg_files_are_not_written_without_a_prefix(prefix: bytes | None) -> None:
    with pytest.raises(ValueError, match="this key metadata has none"):
        EncryptionConfig.for_iceberg(KeyMetadata(KEY, prefix))
    assert DecryptionConfig.for_iceberg(KeyMetadata(KEY, prefix)).for_file().resolve_aad_prefix(None, False) == b""


def test_bytes_that_are_no_key_metadata_are_refused() -> None:
    for config in (EncryptionConfig, DecryptionConfig):
        with pytest.raises(FormatError, match="Cannot resolve schema for version: 255"):
            config.for_iceberg(b"\xff" * 40)


# -- whose file it is --------------------------------------------------------------------------------------------

IS_NEEDED = "the reader must supply it: give `aad_prefix`"
IS_ANOTHER = "has another AAD prefix than the one supplied"
HAS_NONE = "was encrypted without an AAD prefix"


@pytest.mark.parametrize(
    ("supplied", "stored", "supply", "outcome"),
    [
        (None, None, False, b""),
        (None, None, None, b""),
        (None, None, True, IS_NEEDED),
        (None, b"lake", False, b"lake"),
        (None, b"lake", True, IS_NEEDED),
        (None, b"", False, b""),
        (b"lake", None, True, b"lake"),
        (b"lake", None, False, HAS_NONE),
        (b"lake", None, None, HAS_NONE),
        (b"lake", b"lake", False, b"lake"),
        (b"lake", b"lake", None, b"lake"),
        (b"lake", b"lake", True, b"lake"),
        (b"lake", b"sea", False, IS_ANOTHER),
        (b"lake", b"sea", True, IS_ANOTHER),
        (b"lake", b"", False, IS_ANOTHER),
        (b"", b"lake", False, IS_ANOTHER),
        (b"", None, True, b""),
        (b"", None, False, b""),
    ],
)
def test_a_file_of_another_identity_is_refused(
    supplied: bytes | None, stored: bytes | None, supply: bool | None, outcome: bytes | str
) -> None:
    file = DecryptionConfig(FOOTER, aad_prefix=supplied).for_file("lake/x.parquet")
    if isinstance(outcome, bytes):
        assert file.resolve_aad_prefix(stored, supply) == outcome
        return
    error = ValueError if outcome == IS_NEEDED else AuthenticationError
    with pytest.raises(error, match=f"^lake/x.parquet: .*{outcome}"):
        file.resolve_aad_prefix(stored, supply)


# -- finding keys to read with -----------------------------------------------------------------------------------


def test_given_keys_go_before_the_retriever() -> None:
    asked = []

    def retrieve(key_metadata: bytes) -> bytes:
        asked.append(key_metadata)
        return OTHER_KEY

    file = DecryptionConfig(FOOTER, column_keys={"ssn": ONE}, key_retriever=retrieve).for_file()
    assert bytes(file.footer_key(b"kf")) == FOOTER
    assert bytes(file.column_key(("ssn",), b"kc1")) == ONE
    assert asked == []
    assert bytes(file.column_key(("salary",), b"kc2")) == OTHER_KEY
    assert asked == [b"kc2"]


def test_the_retriever_is_asked_once_for_each_key_of_a_file() -> None:
    asked = []

    def retrieve(key_metadata: bytes) -> Key:
        asked.append(key_metadata)
        return Key(OTHER_KEY)

    config = DecryptionConfig(key_retriever=retrieve)
    for _ in range(2):
        file = config.for_file()
        for _ in range(3):
            assert file.footer_key(b"kf") == file.column_key(("ssn",), b"kc") == Key(OTHER_KEY)
    assert asked == [b"kf", b"kc"] * 2


def test_a_missing_key_is_told_by_file_column_and_metadata() -> None:
    file = DecryptionConfig(column_keys={"id": ONE}).for_file("lake/x.parquet")
    with pytest.raises(KeyAccessError, match=r"^lake/x\.parquet: the footer is .* the key metadata 'kf': give `footer"):
        file.footer_key(b"kf")
    with pytest.raises(
        KeyAccessError, match=r"^lake/x\.parquet: column a\.b is .* the key metadata of 4 bytes: give `c"
    ):
        file.column_key(("a", "b"), b"\xff\xfe\x00\x01")
    with pytest.raises(KeyAccessError, match="It has no key metadata: give `column_keys` or `key_retriever`"):
        file.column_key(("a", "b"), None)
    with pytest.raises(KeyAccessError, match="of 65 bytes"):
        file.footer_key(b"k" * 65)
    with pytest.raises(KeyAccessError, match=r"\(PKMT1\), which DecryptionConfig\.from_kms reads"):
        file.footer_key(b'{"keyMaterialType":"PKMT1"}')
    asking = DecryptionConfig(key_retriever={}.__getitem__).for_file()
    with pytest.raises(KeyAccessError, match="give `footer_key`, because no key metadata leads there"):
        asking.footer_key(None)


@pytest.mark.parametrize(
    ("retrieve", "error", "message"),
    [
        ({}.__getitem__, KeyAccessError, "column ssn: `key_retriever` has no key for the key metadata 'kc1'"),
        (lambda _: None, KeyAccessError, "column ssn: `key_retriever` has no key for the key metadata 'kc1'"),
        (lambda _: b"short", KeyAccessError, "did not return a key for the key metadata 'kc1'"),
        (lambda _: 5, KeyAccessError, "did not return a key for the key metadata 'kc1'"),
    ],
)
def test_a_retriever_without_an_answer_is_told(retrieve: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        DecryptionConfig(key_retriever=retrieve).for_file("x").column_key(("ssn",), b"kc1")
    assert str(caught.value).startswith("x: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("error", [KeyAccessError, FormatError, AuthenticationError])
def test_what_a_retriever_says_is_kept_and_says_for_whom(error: type[Exception]) -> None:
    def retrieve(_: bytes) -> bytes:
        raise error("the service is closed on Sundays")

    with pytest.raises(error, match=r"^x: the footer: the service is closed on Sundays$"):
        DecryptionConfig(key_retriever=retrieve).for_file("x").footer_key(b"kf")


def test_a_fault_in_a_retriever_is_not_hidden() -> None:
    def retrieve(_: bytes) -> bytes:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        DecryptionConfig(key_retriever=retrieve).for_file().footer_key(b"kf")


def test_wrong_arguments_for_reading_are_named() -> None:
    with pytest.raises(TypeError, match="key_retriever must be callable, not dict"):
        DecryptionConfig(key_retriever={})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^footer_key: "):
        DecryptionConfig(b"short")
    with pytest.raises(TypeError, match="allow_plaintext must be True or False, not int"):
        DecryptionConfig(FOOTER, allow_plaintext=1)  # type: ignore[arg-type]


def test_a_file_for_reading_has_what_the_configuration_says() -> None:
    file = DecryptionConfig(FOOTER).for_file()
    assert (file.check_footer_integrity, file.allow_plaintext, file.name) == (True, False, None)
    file = DecryptionConfig(FOOTER, check_footer_integrity=False, allow_plaintext=True).for_file(io.BytesIO())
    assert (file.check_footer_integrity, file.allow_plaintext, file.name) == (False, True, None)


# -- keys stay where they belong ---------------------------------------------------------------------------------


def objects_with_keys() -> list[Any]:
    writing = EncryptionConfig(FOOTER, column_keys={"ssn": ONE}, aad_prefix=PREFIX)
    file = writing.for_file()
    reading = DecryptionConfig(FOOTER, column_keys={"ssn": ONE})
    kms = MemoryKms({"kf": TWO})
    of_kms = [EncryptionConfig.from_kms(kms, "kf"), DecryptionConfig.from_kms(kms)]
    return [writing, file, file.columns([("ssn",)])[0], reading, reading.for_file("x"), *of_kms]


@pytest.mark.parametrize("index", range(7))
def test_no_repr_shows_a_key_and_nothing_is_pickled_or_copied(index: int) -> None:
    found = objects_with_keys()[index]
    text = repr(found)
    assert "redacted" in text
    for key in (FOOTER, ONE, TWO):
        assert key.decode() not in text
        assert key.hex() not in text
    for way in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled or copied: it holds keys"):
            way(found)


def test_a_repr_in_the_traceback_of_a_failed_constructor_works() -> None:
    for kind in (EncryptionConfig, DecryptionConfig):
        assert "not made" in repr(kind.__new__(kind))


# -- the algorithm that a reader asks for --------------------------------------------------------------------


def test_a_file_that_names_another_algorithm_than_asked_for_is_refused() -> None:
    from tests.parquet import corpus

    plain, key = corpus.build("snappy-v1"), bytes(range(16))
    for asked, other in (("AES_GCM_V1", "AES_GCM_CTR_V1"), ("AES_GCM_CTR_V1", "AES_GCM_V1")):
        for plaintext_footer in (False, True):
            target = io.BytesIO()
            encryption = EncryptionConfig(key, algorithm=other, plaintext_footer=plaintext_footer)
            parquet.encrypt_file(plain, target, encryption)
            parquet.decrypt_file(target.getvalue(), io.BytesIO(), DecryptionConfig(key, algorithm=other))
            with pytest.raises(ags1.AuthenticationError, match=f"encrypted with {other}, but {asked} is required"):
                parquet.decrypt_file(target.getvalue(), io.BytesIO(), DecryptionConfig(key, algorithm=asked))


def test_iceberg_files_cannot_be_downgraded() -> None:
    """Iceberg writes AES_GCM_V1 only, and FileCryptoMetaData, which names the algorithm, is not authenticated."""
    from tests.parquet import corpus

    metadata, target = ags1.KeyMetadata(bytes(range(16)), b"prefix"), io.BytesIO()
    encryption = EncryptionConfig(
        bytes(range(16)), aad_prefix=b"prefix", store_aad_prefix=False, algorithm="AES_GCM_CTR_V1"
    )
    parquet.encrypt_file(corpus.build("snappy-v1"), target, encryption)
    with pytest.raises(ags1.AuthenticationError, match="AES_GCM_V1 is required"):
        parquet.open(target.getvalue(), DecryptionConfig.for_iceberg(metadata))


def test_an_algorithm_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match="algorithm must be 'AES_GCM_V1' or 'AES_GCM_CTR_V1', not 'AES'"):
        DecryptionConfig(algorithm="AES")
