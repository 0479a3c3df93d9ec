"""The configuration for reading Parquet files, and its keys and AAD prefix for one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping

from ags1.core.gcm import Key
from ags1.core.typing import KeyLike
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.keys import KeyMetadata, as_octets
from ags1.parquet.keys.columns import ColumnNames, named_values
from ags1.parquet.keys.config_arguments import (
    ALGORITHMS,
    CACHE_SECONDS,
    Config,
    HoldsKeys,
    as_flag,
    as_key,
    as_key_metadata,
    dotted,
    with_text,
)
from ags1.storage import Location
from ags1.support.arguments import one_of, spelled
from ags1.support.typing import Buffer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from ags1.parquet.keys.kms_keys import Kms

_LONGEST_SHOWN = 64


class DecryptionConfig(Config):
    """The configuration for reading encrypted Parquet files.

    Parameters
    ----------
    footer_key : key, optional
        The key of the footer, and of columns that use the footer key.
    column_keys : mapping of name to key, optional
        Keys of columns that have their own; names and forms are those of :class:`EncryptionConfig`. Names that mean no
        column are ignored, so that one configuration can be used for files with different columns. A file is refused if
        a column that is named here is plaintext, or is encrypted with the footer key.
    aad_prefix : buffer, optional
        Identity of the file: a file with another AAD prefix, or without one, is refused.
    key_retriever : callable, optional
        Returns the key (a Key or bytes) for key metadata (bytes) that a file contains. It raises KeyAccessError or
        KeyError, or returns None, for a key that it does not have. The keys given above have precedence. It is called
        once for each key metadata of a file, and must be thread-safe.
    check_footer_integrity : bool
        Verify the signature of a plaintext footer, which needs the footer key.
    allow_plaintext : bool
        Also read files that are not encrypted, and columns that have a key in `column_keys` but are not encrypted, or
        not with a key of their own. By default they are refused.
    algorithm : str, optional
        "AES_GCM_V1" or "AES_GCM_CTR_V1": refuse files with another algorithm. If the footer is encrypted, the name of
        the algorithm is not authenticated. An attacker who can change a file can therefore replace AES_GCM_V1, which
        authenticates page contents, by the other, which does not. Give the algorithm if it is known.
        :meth:`for_iceberg` does.

    Raises
    ------
    TypeError, ValueError
        A wrong argument.

    Notes
    -----
    Immutable, so safe to share between threads. Its repr shows no key, and it cannot be pickled.
    """

    def __init__(
        self,
        footer_key: KeyLike | None = None,
        *,
        column_keys: Mapping[Any, KeyLike] | Iterable[tuple[Any, KeyLike]] | None = None,
        aad_prefix: Buffer | None = None,
        key_retriever: Callable[[bytes], KeyLike | None] | None = None,
        check_footer_integrity: bool = True,
        allow_plaintext: bool = False,
        algorithm: str | None = None,
    ) -> None:
        self.algorithm = None if algorithm is None else one_of(algorithm, ALGORITHMS, "algorithm")
        if key_retriever is not None and not callable(key_retriever):
            raise TypeError(f"key_retriever must be callable, not {type(key_retriever).__name__}")
        self._footer_key = None if footer_key is None else as_key(footer_key, "footer_key")
        named = [] if column_keys is None else named_values(column_keys, "column_keys")
        keys = [as_key(key, f"the key of column {dotted(name)}") for name, key in named]
        self._column_keys = keys
        self._column_names = ColumnNames([name for name, _ in named], lambda one, other: keys[one] == keys[other])
        self.aad_prefix = None if aad_prefix is None else as_octets(aad_prefix, "aad_prefix")
        self.check_footer_integrity = as_flag(check_footer_integrity, "check_footer_integrity")
        self.allow_plaintext = as_flag(allow_plaintext, "allow_plaintext")
        self._retriever_for: Callable[[Any, str | None], Callable[[bytes], Any] | None] = lambda *_: key_retriever

    @classmethod
    def from_kms(
        cls,
        kms: Kms,
        *,
        aad_prefix: Buffer | None = None,
        check_footer_integrity: bool = True,
        allow_plaintext: bool = False,
        algorithm: str | None = None,
        cache_seconds: float = CACHE_SECONDS,
        expected_key_ids: Collection[str] | None = None,
    ) -> Self:
        """Read files of the key tools of parquet-java, PyArrow and :meth:`EncryptionConfig.from_kms`.

        Parameters
        ----------
        kms : client, str, or pyarrow KmsClient
            As for :meth:`EncryptionConfig.from_kms`.
        cache_seconds : float
            How long an unwrapped key encryption key is used; 0 keeps none. If the client keeps keys for a shorter time,
            or was closed, the key is unwrapped again.
        expected_key_ids : collection of str, optional
            The master keys that the keys of footers and columns may be under. A file names its master keys itself, so
            without this, whoever can write the file and use another key of the service can put one in its place.
        aad_prefix, check_footer_integrity, allow_plaintext, algorithm
            As for the constructor.
        """
        from ags1.parquet.keys.kms_keys import DataKeyUnwrapper, as_key_service, retriever

        unwrapper = DataKeyUnwrapper(
            as_key_service(kms), cache_seconds=cache_seconds, expected_key_ids=expected_key_ids
        )
        made = cls(
            aad_prefix=aad_prefix,
            check_footer_integrity=check_footer_integrity,
            allow_plaintext=allow_plaintext,
            algorithm=algorithm,
        )
        return made._with(_retriever_for=lambda source, name: retriever(unwrapper, source, name))

    @classmethod
    def for_iceberg(cls, key_metadata: KeyMetadata | Buffer) -> Self:
        """Read one Parquet file of an encrypted Iceberg table.

        Parameters
        ----------
        key_metadata : KeyMetadata or buffer
            The file's StandardKeyMetadata, or its bytes.

        Raises
        ------
        FormatError
            The bytes are not key metadata.
        """
        metadata = as_key_metadata(key_metadata)
        return cls(metadata.encryption_key, aad_prefix=metadata.aad_prefix, algorithm="AES_GCM_V1")

    def with_aad_prefix(self, aad_prefix: Buffer | None) -> Self:
        """The same configuration for a file with another identity; cached keys stay cached."""
        return self._with(aad_prefix=None if aad_prefix is None else as_octets(aad_prefix, "aad_prefix"))

    def for_file(self, source: Any = None) -> FileDecryption:
        """Make the keys and AAD prefix for reading one file.

        Parameters
        ----------
        source : path or URL, optional
            The location of the file: for messages, and for key material beside it. For a file object, its name is used.
        """
        where = _location(source)
        # A URL does not contain the options of the file object's file system: endpoint, credentials.
        beside = source if isinstance(source, Location) or _is_remote(source) else where
        return FileDecryption(self, where, self._retriever_for(beside, where))

    def _said(self) -> str:
        footer = "no footer key" if self._footer_key is None else "a footer key"
        return f"{footer}, {len(self._column_names)} column keys, redacted"


class FileDecryption(HoldsKeys):
    """The keys and AAD prefix for reading one file. :meth:`DecryptionConfig.for_file` makes it.

    Attributes
    ----------
    name : str or None
        The file, for messages.
    check_footer_integrity, allow_plaintext, algorithm
        As for :class:`DecryptionConfig`.

    Notes
    -----
    Safe to share between threads; two threads that need one key at once may both call the key retriever.
    """

    def __init__(
        self, config: DecryptionConfig, name: str | None, retriever: Callable[[bytes], KeyLike | None] | None
    ) -> None:
        self.name = name
        self.check_footer_integrity = config.check_footer_integrity
        self.algorithm = config.algorithm
        self.allow_plaintext = config.allow_plaintext
        self._config = config
        self._retriever = retriever
        self._retrieved: dict[bytes, Key] = {}

    def resolve_aad_prefix(self, stored: bytes | None, supply: bool | None) -> bytes:
        """The AAD prefix to read the file with; empty if it has none.

        `stored` is the prefix that the file contains, `supply` whether the reader must supply it.

        Raises
        ------
        AuthenticationError
            A prefix was supplied, but the file has another one or none: it is another file.
        ValueError
            The file needs a prefix, and none was supplied.
        """
        supplied = self._config.aad_prefix
        if supply and supplied is None:
            raise ValueError(
                f"{self._where}the file has an AAD prefix that is not stored in it; the reader must supply it: give "
                f"{spelled('aad_prefix')} (for a file of an Iceberg table, the one in its key metadata)"
            )
        if stored is not None:
            if supplied is not None and supplied != stored:
                raise AuthenticationError(
                    f"{self._where}the file has another AAD prefix than the one supplied: it is another file, or "
                    f"{spelled('aad_prefix')} is wrong"
                )
            return stored
        if supply:
            assert supplied is not None
            return supplied
        # An empty prefix identifies no file, so a file without a prefix does not contradict it.
        if supplied:
            raise AuthenticationError(
                f"{self._where}the file was encrypted without an AAD prefix, but one was supplied: it is another file; "
                f"to read a file without a prefix, leave {spelled('aad_prefix')} out"
            )
        return b""

    def footer_key(self, key_metadata: bytes | None) -> Key:
        """The footer key; `key_metadata` is the key metadata that the file has for it.

        Raises
        ------
        KeyAccessError
            There is none.
        FormatError, AuthenticationError
            The key material in or beside the file is not valid, or cannot be unwrapped.
        """
        if self._config._footer_key is not None:
            return self._config._footer_key
        return self._find(key_metadata, "the footer", "footer_key")

    def column_key(self, path: tuple[str, ...], key_metadata: bytes | None) -> Key:
        """Key of a column that has its own; the same errors as :meth:`footer_key`."""
        given = self.given_key(path)
        return given if given is not None else self._find(key_metadata, f"column {'.'.join(path)}", "column_keys")

    def given_key(self, path: tuple[str, ...]) -> Key | None:
        """The key that `column_keys` has for a column."""
        names = self._config._column_names
        index = names.find(path) if len(names) else None
        return None if index is None else self._config._column_keys[index]

    def _find(self, key_metadata: bytes | None, what: str, argument: str) -> Key:
        who = f"{self._where}{what}"
        if self._retriever is None or key_metadata is None:
            said = "no key metadata" if key_metadata is None else f"the key metadata {_shown(key_metadata)}"
            advice = f"give {spelled(argument)} or {spelled('key_retriever')}"
            if self._retriever is not None:
                advice = f"give {spelled(argument)}, because no key metadata leads there"
            raise KeyAccessError(f"{who} is encrypted with a key that was not given. It has {said}: {advice}")
        known = self._retrieved.get(key_metadata)
        if known is None:
            known = self._retrieved[key_metadata] = _retrieved(self._retriever, key_metadata, who)
        return known

    @property
    def _where(self) -> str:
        return f"{self.name}: " if self.name else ""

    def _said(self) -> str:
        return f"{self.name or 'a file'}, keys redacted"


def _retrieved(retriever: Callable[[bytes], KeyLike | None], key_metadata: bytes, who: str) -> Key:
    """Call a key retriever; errors say what the key is for."""
    shown = _shown(key_metadata)
    try:
        answer = retriever(key_metadata)
    except (KeyAccessError, AuthenticationError, FormatError) as error:
        raise with_text(error, f"{who}: {error}") from error
    except LookupError:
        answer = None
    if answer is None:
        raise KeyAccessError(f"{who}: {spelled('key_retriever')} has no key for the key metadata {shown}")
    try:
        return answer if isinstance(answer, Key) else Key(answer)
    except (TypeError, ValueError) as error:
        raise KeyAccessError(
            f"{who}: the key retriever did not return a key for the key metadata {shown}: {error}"
        ) from None


def _location(source: Any) -> str | None:
    if source is None:
        return None
    if isinstance(source, Location):
        return source.text
    if isinstance(source, (str, bytes, os.PathLike)):
        return os.fsdecode(source)
    if _is_remote(source):
        # The name of a remote file does not include its file system.
        return str(source.fs.unstrip_protocol(source.path))
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else None


def _is_remote(source: Any) -> bool:
    """Whether it is a file object of an fsspec file system."""
    return hasattr(getattr(source, "fs", None), "unstrip_protocol") and isinstance(getattr(source, "path", None), str)


def _shown(key_metadata: bytes) -> str:
    """Key metadata for a message; only short printable text is shown."""
    try:
        text = key_metadata.decode()
    except UnicodeDecodeError:
        text = ""
    if "PKMT1" in text:
        return "of key tools (PKMT1), which DecryptionConfig.from_kms reads"
    if text and text.isprintable() and len(text) <= _LONGEST_SHOWN:
        return repr(text)
    return f"of {len(key_metadata)} bytes"
