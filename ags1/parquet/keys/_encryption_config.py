"""The configuration for encrypting Parquet files, and its keys and AAD for one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ags1.core.gcm import Key, random_bytes
from ags1.core.typing import KeyLike
from ags1.keys import KeyMetadata, as_octets
from ags1.parquet.keys.columns import ColumnNames, list_of_columns_text, named_values, names_in_list
from ags1.parquet.keys.config_arguments import (
    ALGORITHMS,
    CACHE_SECONDS,
    Config,
    HoldsKeys,
    as_flag,
    as_key,
    as_key_metadata,
    dotted,
)
from ags1.parquet.keys.decryption_config import DecryptionConfig
from ags1.storage import Location
from ags1.support.arguments import one_of, spelled
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias, TypeVar

    from typing_extensions import Self

    from ags1.parquet.keys.columns import ColumnName, Path
    from ags1.parquet.keys.kms_keys import FileDataKeys, Kms

    FileKeys: TypeAlias = "_GivenKeys | FileDataKeys"
    T = TypeVar("T")

AAD_FILE_UNIQUE_LENGTH = 8


@dataclass(repr=False, eq=False)
class ColumnKey(HoldsKeys):
    """The key of one encrypted column: the footer key, or a key of its own with its key metadata."""

    key: Key
    with_footer_key: bool
    key_metadata: bytes | None = None

    def _said(self) -> str:
        whose = "the footer key" if self.with_footer_key else "a key of its own"
        return f"{whose}, AES-{self.key.bits} redacted"


class FileEncryption(HoldsKeys):
    """The keys and AAD for encrypting one file, by one thread. :meth:`EncryptionConfig.for_file` makes it.

    Attributes
    ----------
    algorithm, plaintext_footer, aad_prefix, store_aad_prefix, data_page_v2, footer_key, footer_key_metadata
        As for :class:`EncryptionConfig`.
    aad_file_unique : bytes
        The part of the AAD that is stored in every file: 8 random bytes.
    replaced : frozenset of str
        Names in the key material file of an older file, which go when this file has replaced it.
    """

    def __init__(self, config: EncryptionConfig, keys: FileKeys) -> None:
        self.algorithm = config.algorithm
        self.plaintext_footer = config.plaintext_footer
        self.aad_prefix = config.aad_prefix
        self.store_aad_prefix = config.store_aad_prefix
        self.data_page_v2 = config.data_page_v2
        self.aad_file_unique = random_bytes(AAD_FILE_UNIQUE_LENGTH)
        self._config = config
        self._keys = keys
        self.footer_key = keys.footer_key
        self.footer_key_metadata = keys.footer_key_metadata
        self.replaced = keys.replaced
        self._made: dict[Path, ColumnKey] = {}

    @property
    def file_aad(self) -> bytes:
        """The beginning of the AAD of every module of the file: prefix and unique part."""
        return (self.aad_prefix or b"") + self.aad_file_unique

    @property
    def chooses_no_columns(self) -> bool:
        """Whether all columns have the footer key because nothing else was said: neither names nor `encrypt_all`."""
        return self._config._column_names is None and not self._config._encrypt_all

    def columns(self, paths: Sequence[tuple[str, ...]]) -> list[ColumnKey | None]:
        """Key of each leaf column, or None for one that stays plaintext.

        A later call returns the same key for a column.

        Raises
        ------
        MissingColumnsError
            A configured name means no column, and this is not allowed. The message shows similar names.
        ValueError
            Two names have different keys for a column.
        KeyAccessError
            The KMS did not wrap a new key.
        """
        return self._config._for_each(paths, ColumnKey(self.footer_key, with_footer_key=True), None, self._own)

    def _own(self, path: Path, index: int) -> ColumnKey:
        made = self._made.get(path)
        if made is None:
            key, key_metadata = self._keys.column(index)
            made = self._made[path] = ColumnKey(key, with_footer_key=False, key_metadata=key_metadata)
        return made

    def external_key_material(self) -> bytes | None:
        """JSON to store beside the file, in ``_KEY_MATERIAL_FOR_<name>.json``; None if nothing is.

        Call it after :meth:`columns`, and add its entries to those that are there before the file is published: without
        them the file cannot be read.
        """
        return self._keys.external_key_material()

    def _said(self) -> str:
        return f"{_algorithm_and_footer(self)}, keys redacted"


class EncryptionConfig(Config):
    """The configuration for encrypting Parquet files.

    Parameters
    ----------
    footer_key : key
        Encrypts or signs the footer, and encrypts the columns that use the footer key.
    column_keys : mapping of name to key, optional
        None encrypts every column with the footer key. Otherwise the named columns have keys of their own, and the
        others stay plaintext; so ``{}`` encrypts the footer only. A name is the path of a leaf
        (``"a.b.list.element"``), a group (``"a"``: all leaves below it), or a tuple of the parts of a path where names
        contain dots. Pairs of a list of names and a key are accepted too: ``[(["ssn", "salary"], key)]``. The most
        specific name applies.
    encrypt_all : bool
        Encrypt columns that `column_keys` does not name with the footer key. When a file is re-keyed, columns that had
        keys of their own too.
    algorithm : str
        "AES_GCM_V1", or "AES_GCM_CTR_V1", in which page contents are not authenticated.
    plaintext_footer : bool
        Leave the footer readable without a key, and sign it. It shows the schema, sizes and the metadata of plaintext
        columns. Of encrypted columns it shows only type, encodings, path, codec, numbers of values and bytes, and
        offsets. Fields of a column chunk that this version does not know are left out.
    aad_prefix : buffer, optional
        Identity of the file, so that it cannot be replaced by another file unnoticed. Every file needs its own.
    store_aad_prefix : bool
        Store the prefix in the file. Only readers that get the prefix from another place detect an exchanged file; with
        False, every reader must supply it.
    footer_key_metadata : buffer or str, optional
        Tells readers which key the footer key is; stored unencrypted. Text is stored as UTF-8.
    column_key_metadata : mapping of name to buffer or str, optional
        The same for columns, by the names that `column_keys` has.
    data_page_v2 : str
        The form of encrypted V2 data pages with levels: "arrow" for Arrow C++ (PyArrow), arrow-rs and DuckDB, "java"
        for parquet-java (Spark, Iceberg). Neither side can read the other form; ags1 reads both. The Java form leaves
        the levels (which values are null, where lists begin) in plaintext and without a tag, so :func:`verify_file`
        calls such a file not protected; V1 pages and the Arrow form do not.

    Attributes
    ----------
    algorithm, plaintext_footer, aad_prefix, store_aad_prefix, data_page_v2
        As the parameters.
    fresh_keys : bool
        Whether every file gets new keys, as with :meth:`from_kms`.

    Raises
    ------
    TypeError, ValueError
        A wrong argument. A key that consists of zero bytes is refused, as in parquet-java. So is an empty AAD prefix,
        which parquet-java treats as a prefix and Arrow as none.

    Notes
    -----
    Immutable, so safe to share between threads. Its repr shows no key, and it cannot be pickled.
    """

    def __init__(
        self,
        footer_key: KeyLike,
        *,
        column_keys: Mapping[Any, KeyLike] | Iterable[tuple[Any, KeyLike]] | None = None,
        encrypt_all: bool = False,
        algorithm: str = "AES_GCM_V1",
        plaintext_footer: bool = False,
        aad_prefix: Buffer | None = None,
        store_aad_prefix: bool = True,
        footer_key_metadata: Buffer | str | None = None,
        column_key_metadata: Mapping[Any, Buffer | str] | None = None,
        data_page_v2: str = "arrow",
    ) -> None:
        names, keys = _given_columns(column_keys, column_key_metadata)
        given = _GivenKeys(
            _writing_key(footer_key, "footer_key"), _metadata(footer_key_metadata, "footer_key_metadata"), keys
        )
        self._encrypt_all = as_flag(encrypt_all, "encrypt_all")
        self.algorithm = one_of(algorithm, ALGORITHMS, "algorithm")
        self.plaintext_footer = as_flag(plaintext_footer, "plaintext_footer")
        self.store_aad_prefix = as_flag(store_aad_prefix, "store_aad_prefix")
        self.data_page_v2 = one_of(data_page_v2, ("java", "arrow"), "data_page_v2")
        self.aad_prefix = None if aad_prefix is None else _prefix(aad_prefix)
        if self.aad_prefix is None and not store_aad_prefix:
            raise ValueError(
                f"{spelled('store_aad_prefix', False)} needs {spelled('aad_prefix')}, which readers must then supply"
            )
        self._missing_allowed = False
        self.checks_keys = True
        self._keys: Callable[[Location | None], FileKeys] = lambda _: given
        self._column_names = names
        self._own_keys: Sequence[Key | str] = [key for key, _ in keys]
        self.fresh_keys = False
        self.footer_key_id: str | None = None
        self._reading: DecryptionConfig | None = None

    @classmethod
    def from_kms(
        cls,
        kms: Kms,
        footer_key_id: str,
        column_key_ids: Mapping[str, list[Any]] | None = None,
        *,
        double_wrapping: bool = True,
        internal_key_material: bool = True,
        data_key_bits: int = 128,
        kek_bits: int = 128,
        encrypt_all: bool = False,
        algorithm: str = "AES_GCM_V1",
        plaintext_footer: bool = False,
        aad_prefix: Buffer | None = None,
        store_aad_prefix: bool = True,
        kms_instance_id: str = "DEFAULT",
        kms_instance_url: str = "DEFAULT",
        cache_seconds: float = CACHE_SECONDS,
        data_page_v2: str = "arrow",
    ) -> Self:
        """Encrypt with fresh data keys, wrapped by master keys in a KMS, as parquet-java's and PyArrow's key tools do.

        Every file gets a new random key for its footer and one for each named column, also for columns with the same
        master key.

        Parameters
        ----------
        kms : client, str, or pyarrow KmsClient
            An ``ags1.kms`` client (or another object with its methods), a URL for :func:`ags1.kms.load`, or a
            ``pyarrow.parquet.encryption.KmsClient``, whose wrapped keys are text. Keys that an ``ags1.kms`` client
            wraps are stored as base64, so that PyArrow can read the files with the client's ``as_pyarrow()``.
        footer_key_id : str
            Master key of the footer key.
        column_key_ids : mapping of str to list of names, optional
            Lists of column names by the id of their master key, as in PyArrow's ``column_keys``. None, ``{}`` and the
            names have the same meaning as in `column_keys` above.
        double_wrapping : bool
            Wrap data keys here, with key encryption keys that the KMS wraps: one call for each master key and
            `cache_seconds`, instead of one for each key.
        internal_key_material : bool
            Store the wrapped keys in the file; otherwise beside it, so that master keys can be rotated without changing
            the file.
        data_key_bits, kek_bits : int
            128, 192 or 256: size of data keys, and of key encryption keys.
        kms_instance_id, kms_instance_url : str
            Stored with the footer key, for readers that use several services.
        cache_seconds : float
            How long a key encryption key wraps new data keys; a shorter time of the client has precedence.

        Raises
        ------
        TypeError, ValueError
            A wrong argument, or a column is in the lists of two master keys.
        """
        from ags1.parquet.keys.kms_keys import DataKeyWrapper, FileDataKeys, as_key_service, key_id

        names, master_ids = _columns_by_master_key(column_key_ids, key_id)
        wrapper = DataKeyWrapper(
            as_key_service(kms), double_wrapping=double_wrapping, kek_bits=kek_bits, cache_seconds=cache_seconds
        )
        options: dict[str, Any] = {
            "internal": as_flag(internal_key_material, "internal_key_material"),
            "data_key_bits": one_of(data_key_bits, (128, 192, 256), "data_key_bits"),
            "kms_instance_id": _text(kms_instance_id, "kms_instance_id"),
            "kms_instance_url": _text(kms_instance_url, "kms_instance_url"),
        }
        footer_id = key_id(footer_key_id, "footer_key_id")
        made = cls(
            Key.generate(),
            encrypt_all=encrypt_all,
            algorithm=algorithm,
            plaintext_footer=plaintext_footer,
            aad_prefix=aad_prefix,
            store_aad_prefix=store_aad_prefix,
            data_page_v2=data_page_v2,
        )
        return made._with(
            checks_keys=wrapper.checks_keys,
            _keys=lambda target: FileDataKeys(wrapper, footer_id, master_ids, target=target, **options),
            _column_names=names,
            _own_keys=master_ids,
            fresh_keys=True,
            footer_key_id=footer_id,
            _reading=DecryptionConfig.from_kms(kms, cache_seconds=cache_seconds),
        )

    @classmethod
    def for_iceberg(cls, key_metadata: KeyMetadata | Buffer, *, data_page_v2: str = "java") -> Self:
        """Encrypt one file as Iceberg does: one key for all columns and the footer, AAD prefix not stored.

        Parameters
        ----------
        key_metadata : KeyMetadata or buffer
            The file's StandardKeyMetadata, or its bytes.
        data_page_v2 : str
            As above, but "java" by default: Iceberg reads with parquet-java.

        Raises
        ------
        ValueError
            The key metadata has no AAD prefix.
        FormatError
            The bytes are not key metadata.
        """
        metadata = as_key_metadata(key_metadata)
        if not metadata.aad_prefix:
            raise ValueError(
                "Iceberg's Parquet files need an AAD prefix that is not stored in them, and this key metadata has "
                "none: make it with ags1.KeyMetadata.generate()"
            )
        return cls(
            metadata.encryption_key,
            encrypt_all=True,
            aad_prefix=metadata.aad_prefix,
            store_aad_prefix=False,
            data_page_v2=data_page_v2,
        )

    def with_aad_prefix(self, aad_prefix: Buffer) -> Self:
        """The same configuration for a file with another identity; it makes no additional calls to a KMS."""
        return self._with(aad_prefix=_prefix(aad_prefix))

    def allowing_missing_columns(self) -> Self:
        """The same configuration for files that need not have all the named columns."""
        return self._with(_missing_allowed=True)

    @property
    def column_names(self) -> list[ColumnName]:
        """The names that `column_keys` or `column_key_ids` has."""
        return list(self._column_names or ())

    def for_file(self, target: Any = None) -> FileEncryption:
        """Make the keys and AAD for one file. Call it once for every file that is written.

        Parameters
        ----------
        target : path, URL or Location, optional
            Where the file will be. Keys that are stored beside it have other names than those of a file that is there.
            Other objects have no key material beside them.

        Raises
        ------
        KeyAccessError
            The KMS did not wrap a new key.
        FormatError, OSError
            The key material of an older file at `target` cannot be read.
        """
        known = isinstance(target, (str, bytes, os.PathLike))
        return FileEncryption(self, self._keys(Location(target) if known else None))

    def reading(self, column_keys: Mapping[tuple[str, ...], Key] | None = None) -> DecryptionConfig:
        """A configuration to read the footers of the encrypted files, and their columns.

        Without a KMS it has the given keys of columns alone.
        """
        if self._reading is not None:
            return self._reading.with_aad_prefix(self.aad_prefix)
        return DecryptionConfig(self._keys(None).footer_key, column_keys=column_keys, aad_prefix=self.aad_prefix)

    def own_keys(self, paths: Sequence[tuple[str, ...]]) -> list[Key | str | None]:
        """Return the own key of each leaf column, or the id of its master key; None where it has none.

        MissingColumnsError, ValueError: as :meth:`FileEncryption.columns`.
        """
        return self._for_each(paths, None, None, lambda _, index: self._own_keys[index])

    def protections(self, paths: Sequence[tuple[str, ...]]) -> list[str]:
        """How each leaf column is protected: "plaintext", "footer key" or "column key".

        Raises
        ------
        MissingColumnsError, ValueError
            As :meth:`FileEncryption.columns`.
        """
        return self._for_each(paths, "footer key", "plaintext", lambda *_: "column key")

    def _for_each(self, paths: Sequence[Path], footer: T, plaintext: T, own: Callable[[Path, int], T]) -> list[T]:
        """For each leaf column: whether it has the footer key, is plaintext, or has a key of its own."""
        if self._column_names is None:
            return [footer] * len(paths)
        other = footer if self._encrypt_all else plaintext
        found = self._column_names.resolve(paths, missing_allowed=self._missing_allowed)
        return [other if index is None else own(path, index) for path, index in zip(paths, found, strict=True)]

    def _said(self) -> str:
        if self._column_names is None:
            columns = "all columns with the footer key"
        else:
            rest = "with the footer key" if self._encrypt_all else "plaintext"
            columns = f"{len(self._column_names)} column names with their own keys, other columns {rest}"
        return f"{_algorithm_and_footer(self)}, {columns}, keys redacted"


class _GivenKeys:
    """Keys that the caller gave: the same for every file."""

    replaced: frozenset[str] = frozenset()

    def __init__(self, footer_key: Key, metadata: bytes | None, columns: list[tuple[Key, bytes | None]]) -> None:
        self.footer_key = footer_key
        self.footer_key_metadata = metadata
        self._columns = columns

    def column(self, index: int) -> tuple[Key, bytes | None]:
        return self._columns[index]

    def external_key_material(self) -> bytes | None:
        return None


def _given_columns(
    column_keys: object, column_key_metadata: object
) -> tuple[ColumnNames | None, list[tuple[Key, bytes | None]]]:
    if column_keys is None:
        if column_key_metadata is not None:
            raise ValueError("column_key_metadata needs column_keys: without them no column has a key of its own")
        return None, []
    named = named_values(column_keys, "column_keys")
    metadata: dict[ColumnName, bytes | None] = {}
    if column_key_metadata is not None:
        for name, value in named_values(column_key_metadata, "column_key_metadata"):
            octets = _metadata(value, f"column_key_metadata of {dotted(name)}")
            if metadata.setdefault(name, octets) != octets:
                raise ValueError(f"column_key_metadata has two values for {name!r}")
    unknown = [repr(name) for name in metadata if name not in {each for each, _ in named}]
    if unknown:
        raise ValueError(
            f"{spelled('column_key_metadata')} names {', '.join(unknown[:10])}, for which {spelled('column_keys')} "
            "has no key"
        )
    found = [(_writing_key(key, f"the key of column {dotted(name)}"), metadata.get(name)) for name, key in named]
    names = ColumnNames([name for name, _ in named], lambda one, other: found[one] == found[other])
    return names, found


def _columns_by_master_key(given: object, key_id: Callable[[object, str], str]) -> tuple[ColumnNames | None, list[str]]:
    if given is None:
        return None, []
    if not isinstance(given, Mapping):
        raise TypeError(f"column_key_ids must be a mapping, not {type(given).__name__}")
    names: list[ColumnName] = []
    ids: list[str] = []
    for master, listed in given.items():
        master_id = key_id(master, "column_key_ids")
        if isinstance(listed, str):
            raise TypeError(list_of_columns_text(master_id, listed))
        for name in names_in_list(listed, f"column_key_ids, which maps master key ids to lists, for {master_id!r}"):
            names.append(name)
            ids.append(master_id)
    return ColumnNames(names, lambda one, other: ids[one] == ids[other], "master key"), ids


def _writing_key(key: KeyLike, what: str) -> Key:
    made = as_key(key, what)
    if made == Key(bytes(len(made))):
        raise ValueError(f"{what} consists of zero bytes, which parquet-java refuses: was it initialised?")
    return made


def _prefix(aad_prefix: Buffer) -> bytes:
    made = as_octets(aad_prefix, "aad_prefix")
    if not made:
        raise ValueError("aad_prefix must not be empty: readers treat an empty one differently; give None")
    return made


def _metadata(data: object, what: str) -> bytes | None:
    if data is None:
        return None
    if isinstance(data, str):
        return data.encode()
    try:
        return as_octets(data, what)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{what} must be bytes or a str, not {type(data).__name__}") from None


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _algorithm_and_footer(of: EncryptionConfig | FileEncryption) -> str:
    prefix = (
        "no AAD prefix" if of.aad_prefix is None else "AAD prefix" if of.store_aad_prefix else "AAD prefix not stored"
    )
    return f"{of.algorithm}, {'plaintext' if of.plaintext_footer else 'encrypted'} footer, {prefix}"
