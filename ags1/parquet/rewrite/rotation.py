"""Rotates the master keys of a Parquet file with internal key material. Only its footer is written again.

    pages, filters, indexes, column metadata    the same bytes at the same offsets
    footer                                      the same but for key metadata; sealed or signed again

The data keys stay the same, so anyone who has kept one can still read. New data keys need ``rekey_file``.
"""

from __future__ import annotations

from ags1.errors import Ags1Error, FormatError, KeyAccessError
from ags1.parquet.keys.config_arguments import with_text
from ags1.parquet.keys.decryption_config import DecryptionConfig
from ags1.parquet.keys.key_material import KeyMetadataRewrapper
from ags1.parquet.keys.material import KeyMaterial, parse_key_metadata
from ags1.parquet.native.thrift import BINARY, Struct
from ags1.parquet.structure.copying import copy_bytes, counting, seekable
from ags1.parquet.structure.fields import (
    ColumnChunk,
    ColumnCryptoMetaData,
    EncryptionWithColumnKey,
    FileMetaData,
    RowGroup,
)
from ags1.parquet.structure.footer import Footer, encode_footer, read_footer
from ags1.storage import is_same, located, open_output, refuse_writing_into
from ags1.streams.files import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from ags1.core.gcm import Key
    from ags1.parquet.keys.kms_keys import Kms
    from ags1.support.typing import Buffer


def rotate_file(
    source: Any,
    target: Any,
    kms: Kms | KeyMetadataRewrapper,
    *,
    master_key_ids: Mapping[str, str] | None = None,
    double_wrapping: bool | None = None,
    kek_bits: int = 128,
    aad_prefix: Buffer | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Wrap the data keys in a Parquet file with other master keys. All but the footer is copied unchanged.

    For key material beside the file see :func:`rotate_master_keys`, which does not change the file.

    Parameters
    ----------
    source : path, URL, binary file object or buffer
        A file with internal key material.
    target : path, URL or binary file object
        A path is replaced atomically, and may be that of the source, which a power cut leaves whole then.
    kms : client, str, pyarrow KmsClient, or KeyMetadataRewrapper
        As :func:`rotate_master_keys`. A rewrapper shares key encryption keys between many files; it contains the next
        three arguments.
    master_key_ids, kek_bits
        As :func:`rotate_master_keys`.
    double_wrapping : bool, optional
        Whether the new material has a key encryption key; None: as the old material.
    aad_prefix : buffer, optional
        For a file that does not contain its AAD prefix, which does not change.
    progress, durable, storage_options
        As :func:`encrypt_file`.

    Returns
    -------
    dict of str to int
        The number of keys that each master key wraps now.

    Raises
    ------
    ValueError
        The key material is stored outside of the file, or the file needs an AAD prefix.
    AuthenticationError, KeyAccessError, FormatError, TruncatedError, OSError
        As :func:`decrypt_file`; the target is unchanged.
    """
    rewrapper = kms
    if not isinstance(rewrapper, KeyMetadataRewrapper):
        rewrapper = KeyMetadataRewrapper(kms, master_key_ids, double_wrapping=double_wrapping, kek_bits=kek_bits)
    elif master_key_ids is not None or double_wrapping is not None or kek_bits != 128:
        raise ValueError("a KeyMetadataRewrapper already has master_key_ids, double_wrapping and kek_bits")
    source, target = located(source, storage_options), located(target, storage_options)
    refuse_writing_into(source, target)
    with seekable(source) as opened:
        if opened is None:
            raise ValueError("the source is not seekable: copy it to a file first")
        where = f"{opened.name}: " if opened.name else ""
        footer = _footer(opened, source, rewrapper, aad_prefix)
        assert footer.metadata is not None
        try:
            counts = _rewrap(footer, rewrapper.rewrap)
        except Ags1Error as error:
            raise with_text(error, f"{where}{error}") from error
        except ValueError as error:
            raise ValueError(f"{where}{error}") from None
        advance = counting(progress, footer.size)
        with open_output(target, mode=opened.mode) as output:
            copy_bytes(opened, footer.start, output, advance)
            opened.check()
            output.write(encode_footer(footer.metadata, _SameFile(footer, aad_prefix)))  # type: ignore[arg-type]
            advance(footer.size - footer.start)
            # The old file is all that there is, if it is replaced itself. Bytes are a buffer here, not a path.
            in_place = not isinstance(source, bytes) and is_same(source, target)
            output.commit(durable=durable or in_place)
        return counts


def master_keys(source: Any, rewrapper: KeyMetadataRewrapper, aad_prefix: Buffer | None = None) -> dict[str, int]:
    """Return the number of keys that each master key wraps in a Parquet file with internal key material.

    As :func:`rotate_file`, which writes: the ids of columns are in an encrypted footer.
    """
    source = located(source, None)
    with seekable(source) as opened:
        if opened is None:
            raise ValueError("the source is not seekable: copy it to a file first")
        return _rewrap(_footer(opened, source, rewrapper, aad_prefix), lambda metadata: metadata)


def holds_key_material(source: Any) -> bool:
    """Whether a Parquet file contains key material of the key tools."""
    with seekable(source) as opened:
        try:
            metadata = None if opened is None else read_footer(opened, None).key_metadata
            return metadata is not None and isinstance(parse_key_metadata(metadata), KeyMaterial)
        except Ags1Error:
            return False


class _SameFile:
    """The encryption for the new footer: as before, except the key metadata, which was replaced."""

    def __init__(self, footer: Footer, aad_prefix: Buffer | None) -> None:
        assert footer.key is not None
        self.algorithm = footer.algorithm
        self.plaintext_footer = not footer.encrypted
        self.store_aad_prefix = footer.aad_prefix is not None
        self.aad_prefix = footer.aad_prefix
        if footer.supply_aad_prefix and not self.store_aad_prefix and aad_prefix is not None:
            self.aad_prefix = bytes(memoryview(aad_prefix))
        self.aad_file_unique = footer.aad_file_unique
        self.file_aad = footer.file_aad
        self.footer_key: Key = footer.key
        self.footer_key_metadata = footer.key_metadata


def _footer(opened: Any, source: Any, rewrapper: KeyMetadataRewrapper, aad_prefix: Buffer | None) -> Footer:
    decryption = DecryptionConfig(key_retriever=lambda data: _unwrapped(rewrapper, data), aad_prefix=aad_prefix)
    return read_footer(opened, decryption.for_file(source))


def _unwrapped(rewrapper: KeyMetadataRewrapper, metadata: bytes) -> Key:
    material = parse_key_metadata(metadata)
    if not isinstance(material, KeyMaterial):
        raise KeyAccessError(
            "its key material is stored beside the file, where rotate_master_keys wraps it again and leaves the file "
            "alone"
        )
    return rewrapper._old.unwrap(material)


def _rewrap(footer: Footer, rewrap: Callable[[bytes], bytes]) -> dict[str, int]:
    """Replace the key metadata of footer and columns; return the number of keys of each master key."""
    counts: dict[str, int] = {}
    known: dict[bytes, bytes] = {}

    def rewrapped(metadata: bytes) -> bytes:
        found = known.get(metadata)
        if found is None:
            found = known[metadata] = rewrap(metadata)
            material = parse_key_metadata(found)
            if isinstance(material, KeyMaterial):
                counts[material.master_key_id] = counts.get(material.master_key_id, 0) + 1
        return found

    if footer.key_metadata is None:
        raise FormatError("the footer has no key metadata, so it has no key that a master key could wrap")
    footer.key_metadata = rewrapped(footer.key_metadata)
    assert footer.metadata is not None
    groups = footer.metadata.list(FileMetaData.ROW_GROUPS)
    for group in groups if groups is not None else ():
        chunks = group.list(RowGroup.COLUMNS) if isinstance(group, Struct) else None
        for chunk in chunks if chunks is not None else ():
            crypto = chunk.struct(ColumnChunk.CRYPTO_METADATA) if isinstance(chunk, Struct) else None
            own = crypto.struct(ColumnCryptoMetaData.ENCRYPTION_WITH_COLUMN_KEY) if crypto is not None else None
            metadata = own.binary(EncryptionWithColumnKey.KEY_METADATA) if own is not None else None
            if own is not None and metadata is not None:
                own.set(EncryptionWithColumnKey.KEY_METADATA, BINARY, rewrapped(metadata))
    return counts
