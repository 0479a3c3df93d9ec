"""What a Parquet file is read with: the configuration, and the keys and AAD prefix that it has for one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping

from ags1._gcm import Key
from ags1._typing import Buffer, KeyLike
from ags1.errors import AuthenticationError, FormatError, KeyAccessError
from ags1.keys import KeyMetadata, as_octets
from ags1.parquet._columns import ColumnNames, named_values
from ags1.parquet.config_arguments import (
    ALGORITHMS,
    CACHE_SECONDS,
    Config,
    HoldsKeys,
    as_flag,
    as_key,
    as_key_metadata,
    dotted,
    one_of,
    with_text,
)
from ags1.storage import Location

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import Self

    from ags1.parquet.kms_keys import Kms

_LONGEST_SHOWN = 64


class DecryptionConfig(Config):
    """What encrypted Parquet files are read with.

    Parameters
    ----------
    footer_key : key, optional
        The footer's key, and that of columns that use it.
    column_keys : mapping of name to key, optional
        Keys of columns with their own; the same names and forms as for :class:`EncryptionConfig`. Names that mean no
        column are passed over, so that one configuration can serve files with different columns. A file in which a
        column that is named here is plaintext, or has the footer key instead, is refused.
    aad_prefix : buffer, optional
        Identity of the file: a file that is bound to another, or to none, is refused.
    key_retriever : callable, optional
        Returns the key (a Key or bytes) for key metadata (bytes) that a file contains. It raises KeyAccessError or
        KeyError, or returns None, for a key that it does not have. Keys given above go before it. It is asked once
        for each key metadata of a file; it must be safe to call from several threads.
    check_footer_integrity : bool
        Verify the signature of a plaintext footer, which needs the footer key.
    allow_plaintext : bool
        Read files that are not encrypted, too, rather than refuse them; and columns that have a key in `column_keys`
        and are not encrypted, or not with that key.
    algorithm : str, optional
        "AES_GCM_V1" or "AES_GCM_CTR_V1": refuse files that name another. With an encrypted footer the name of the
        algorithm is authenticated by nothing, so whoever can change a file can turn AES_GCM_V1, which authenticates
        page contents, into the other, which does not: give it if you know it. :meth:`for_iceberg` does.

    Raises
    ------
    TypeError, ValueError
        A wrong argument.

    Notes
    -----
    Immutable, so safe to share between threads. Shows no key in its repr and cannot be pickled.
    """

    __slots__ = (
        "_column_keys",
        "_column_names",
        "_footer_key",
        "_retriever_for",
        "aad_prefix",
        "algorithm",
        "allow_plaintext",
        "check_footer_integrity",
    )

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
    ) -> Self:
        """Read files of the key tools of parquet-java, PyArrow and :meth:`EncryptionConfig.from_kms`.

        Parameters
        ----------
        kms : client, str, or pyarrow KmsClient
            As for :meth:`EncryptionConfig.from_kms`.
        cache_seconds : float
            How long an unwrapped key encryption key is used; 0 keeps none. A client that keeps keys for a shorter
            time, or was closed, is asked again.
        aad_prefix, check_footer_integrity, allow_plaintext, algorithm
            As for the constructor.
        """
        from ags1.parquet.kms_keys import DataKeyUnwrapper, as_key_service, retriever

        unwrapper = DataKeyUnwrapper(as_key_service(kms), cache_seconds=cache_seconds)
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
            Bytes that are no key metadata.
        """
        metadata = as_key_metadata(key_metadata)
        return cls(metadata.encryption_key, aad_prefix=metadata.aad_prefix, algorithm="AES_GCM_V1")

    def with_aad_prefix(self, aad_prefix: Buffer | None) -> Self:
        """The same for a file of another identity; keys that are cached stay so."""
        return self._with(aad_prefix=None if aad_prefix is None else as_octets(aad_prefix, "aad_prefix"))

    def for_file(self, source: Any = None) -> FileDecryption:
        """Make what one file is read with.

        Parameters
        ----------
        source : path or URL, optional
            Where the file lies: for messages, and for key material that lies beside it. A file object is asked for
            its name.
        """
        where = _location(source)
        # A URL does not say what the file system of a file object was told: its endpoint, its credentials.
        beside = source if isinstance(source, Location) or _is_remote(source) else where
        return FileDecryption(self, where, self._retriever_for(beside, where))

    def _said(self) -> str:
        footer = "no footer key" if self._footer_key is None else "a footer key"
        return f"{footer}, {len(self._column_names)} column keys, redacted"


class FileDecryption(HoldsKeys):
    """What one file is read with. :meth:`DecryptionConfig.for_file` makes it.

    Attributes
    ----------
    name : str or None
        The file, for messages.
    check_footer_integrity, allow_plaintext, algorithm
        As for :class:`DecryptionConfig`.

    Notes
    -----
    Safe to share between threads; two that ask for one key at once may both ask the key retriever.
    """

    __slots__ = (
        "_config",
        "_retrieved",
        "_retriever",
        "algorithm",
        "allow_plaintext",
        "check_footer_integrity",
        "name",
    )

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

        `stored` is the prefix that the file contains, `supply` whether it wants one from its reader.

        Raises
        ------
        AuthenticationError
            A prefix was supplied, and the file is bound to another one or to none: it is not the file meant.
        ValueError
            The file needs a prefix, and none was supplied.
        """
        supplied = self._config.aad_prefix
        if supply and supplied is None:
            raise ValueError(
                f"{self._where}the file was encrypted with an AAD prefix that it tells its reader to supply: give "
                "aad_prefix (for a file of an Iceberg table, the one in its key metadata)"
            )
        if stored is not None:
            if supplied is not None and supplied != stored:
                raise AuthenticationError(
                    f"{self._where}the file has another AAD prefix than the one supplied: it is not the file that was "
                    "asked for, or aad_prefix is wrong"
                )
            return stored
        if supply:
            assert supplied is not None
            return supplied
        # An empty prefix names no file, so that a file without any does not contradict it.
        if supplied:
            raise AuthenticationError(
                f"{self._where}the file was encrypted without an AAD prefix, so it is not the one that the supplied "
                "aad_prefix names; leave aad_prefix out to read a file that has none"
            )
        return b""

    def footer_key(self, key_metadata: bytes | None) -> Key:
        """Key of the footer, of which the file says `key_metadata`.

        Raises
        ------
        KeyAccessError
            There is none.
        FormatError, AuthenticationError
            The key material in the file, or beside it, is no such thing, or does not open.
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
        index = self._config._column_names.find(path)
        return None if index is None else self._config._column_keys[index]

    def _find(self, key_metadata: bytes | None, what: str, argument: str) -> Key:
        who = f"{self._where}{what}"
        if self._retriever is None or key_metadata is None:
            said = "no key metadata" if key_metadata is None else f"the key metadata {_shown(key_metadata)}"
            advice = f"give it in {argument}, or a key_retriever"
            if self._retriever is not None:
                advice = f"a key retriever cannot find it; give {argument}"
            raise KeyAccessError(f"{who} is encrypted with a key that was not given, and has {said}: {advice}")
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
    """Ask a key retriever; its errors say for whom it was asked."""
    shown = _shown(key_metadata)
    try:
        answer = retriever(key_metadata)
    except (KeyAccessError, AuthenticationError, FormatError) as error:
        raise with_text(error, f"{who}: {error}") from error
    except LookupError:
        answer = None
    if answer is None:
        raise KeyAccessError(f"{who}: the key retriever has no key for the key metadata {shown}")
    try:
        return answer if isinstance(answer, Key) else Key(answer)
    except (TypeError, ValueError) as error:
        raise KeyAccessError(
            f"{who}: the key retriever's answer to the key metadata {shown} is no key: {error}"
        ) from None


def _location(source: Any) -> str | None:
    if source is None:
        return None
    if isinstance(source, Location):
        return source.text
    if isinstance(source, (str, bytes, os.PathLike)):
        return os.fsdecode(source)
    if _is_remote(source):
        # The name of a remote file does not say on which file system it lies.
        return str(source.fs.unstrip_protocol(source.path))
    name = getattr(source, "name", None)
    return name if isinstance(name, str) else None


def _is_remote(source: Any) -> bool:
    """Whether it is a file object of an fsspec file system."""
    return hasattr(getattr(source, "fs", None), "unstrip_protocol") and isinstance(getattr(source, "path", None), str)


def _shown(key_metadata: bytes) -> str:
    """Key metadata for a message: short printable text as it is."""
    try:
        text = key_metadata.decode()
    except UnicodeDecodeError:
        text = ""
    if "PKMT1" in text:
        return "of key tools (PKMT1), which DecryptionConfig.from_kms reads"
    if text and text.isprintable() and len(text) <= _LONGEST_SHOWN:
        return repr(text)
    return f"of {len(key_metadata)} bytes"
