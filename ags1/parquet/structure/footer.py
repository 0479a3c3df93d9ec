"""The end of a Parquet file: FileMetaData, and the encryption of the footer and of the file.

    encrypted footer    PARE  ...  FileCryptoMetaData  [module: FileMetaData]  length (4, LE, of both)      PARE
    signed footer       PAR1  ...  FileMetaData (fields 8 and 9)  nonce (12)  tag (16)  length (of all)     PAR1
    plaintext file      PAR1  ...  FileMetaData  length  PAR1

The tag of a signed footer covers the bytes as they are stored, so they are verified before they are parsed.
Source: Parquet encryption specification, "Encrypted footer mode" and "Plaintext footer mode"; parquet.thrift.
"""

from __future__ import annotations

from ags1.core.gcm import Key
from ags1.errors import AuthenticationError, FormatError, KeyAccessError, LimitError, TruncatedError
from ags1.parquet.native import modules
from ags1.parquet.native.thrift import BINARY, BOOL, STRUCT, Struct
from ags1.parquet.structure.fields import (
    AesGcmV1,
    EncryptionAlgorithm,
    FileCryptoMetaData,
    FileMetaData,
    RowGroup,
    names_of,
)
from ags1.storage import MemorySource
from ags1.support.arguments import spelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.parquet.keys.properties import FileDecryption, FileEncryption
    from ags1.storage import Source

__all__ = ["FileMetaData", "Footer", "RowGroup", "encode_footer", "read_footer"]

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
ALGORITHMS = names_of(EncryptionAlgorithm)

# One request gets a footer of ordinary size, and the page index before it.
_TAIL = 64 << 10
_MIN_LENGTH = 12
LONGEST_FOOTER = 256 << 20
"""Bytes of a footer at most; what is made of it takes a multiple of it in memory."""


class Footer:
    """The end of a file of `size` bytes. `encrypted` refers to the footer itself.

    Attributes
    ----------
    metadata : Struct or None
        FileMetaData; None if it is encrypted and the key is unknown.
    start : int
        Offset of the first byte of FileMetaData or FileCryptoMetaData.
    algorithm : str or None
        None for a file that is not encrypted at all.
    aad_prefix : bytes or None
        As stored in the file.
    file_aad : bytes
        Prefix and unique part; without the prefix if that is unknown.
    key, key_metadata
        The footer key, if it is known, and its key metadata in the file.
    ending, ending_start : memoryview, int
        The last bytes of the file, as one read got them, and their offset. All of it, if it is small or in memory.
    """

    def __init__(self, size: int) -> None:
        self.metadata: Struct | None = None
        self.start = 0
        self.size = size
        self.encrypted = False
        self.algorithm: str | None = None
        self.aad_prefix: bytes | None = None
        self.supply_aad_prefix: bool | None = None
        self.aad_file_unique = b""
        self.file_aad = b""
        self.key: Key | None = None
        self.key_metadata: bytes | None = None
        self.signature_verified = False
        self.signature_error: Exception | None = None
        self.ending = memoryview(b"")
        self.ending_start = size

    @property
    def authenticated_prefix(self) -> bytes | None:
        """The AAD prefix that a tag of the footer was verified with; None if there is no prefix, or no such tag."""
        if not (self.signature_verified or (self.encrypted and self.metadata is not None)):
            return None
        return self.prefix_in_use

    @property
    def prefix_in_use(self) -> bytes | None:
        """The AAD prefix of the file's modules, stored or supplied; None if there is none."""
        return self.file_aad[: len(self.file_aad) - len(self.aad_file_unique)] or None

    def contradicts(self, beginning: bytes) -> str | None:
        """The error in the first four bytes of the file, or None. No tag covers them, only this comparison."""
        expected = ENCRYPTED_MAGIC if self.encrypted else MAGIC
        return None if beginning == expected else f"begins with {beginning!r} and ends with {expected!r}"


def read_footer(
    source: Source, decryption: FileDecryption | None, *, optional: bool = False, tolerant: bool = False
) -> Footer:
    """Read, decrypt or verify the footer of a file.

    Parameters
    ----------
    decryption : FileDecryption or None
        With None, an encrypted footer is not decrypted, and a signed one is not verified.
    optional : bool
        Whether a missing footer key is accepted, to inspect a file without keys.
    tolerant : bool
        Do not raise for wrong first bytes or a wrong signature; the caller checks them.

    Raises
    ------
    FormatError, TruncatedError
        Not a Parquet file; its first and last bytes do not agree; or a plaintext file where an encrypted one is
        required.
    LimitError
        The footer is longer than LONGEST_FOOTER.
    AuthenticationError, KeyAccessError, ValueError
        The key or AAD prefix is wrong or missing.
    """
    where = f"{source.name}: " if source.name else ""
    size = source.size
    if size < _MIN_LENGTH:
        raise TruncatedError(f"{where}{size} bytes are too few for a Parquet file: it is damaged, or another format")
    tail_length = min(size, _TAIL)
    tail = memoryview(source.read(size - tail_length, tail_length)).cast("B")
    magic = bytes(tail[-4:])
    if magic not in (MAGIC, ENCRYPTED_MAGIC):
        raise FormatError(f"{where}does not end with PAR1 or PARE: not a Parquet file, or truncated")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > size - _MIN_LENGTH:
        raise TruncatedError(f"{where}its footer has {length} bytes, but the whole file only {size}: it is truncated")
    if length > LONGEST_FOOTER:
        raise LimitError(f"{where}its footer has {length} bytes; at most {LONGEST_FOOTER} are read")
    footer = Footer(size)
    footer.start = size - 8 - length
    # Of memory all of it, and not a view of its own, which would keep the memory after the source is closed.
    footer.ending = source.view if isinstance(source, MemorySource) else tail
    footer.ending_start = size - len(footer.ending)
    if length + 8 <= tail_length:
        data = bytes(tail[-8 - length : -8])
    else:
        data = bytes(memoryview(source.read(footer.start, length)))
    if magic == ENCRYPTED_MAGIC:
        _read_encrypted(footer, data, decryption, where, optional)
    else:
        _read_plain(footer, data, decryption, where, optional, tolerant)
    if not tolerant:
        beginning = bytes(tail[:4] if tail_length == size else memoryview(source.read(0, 4)))
        contradiction = footer.contradicts(beginning)
        if contradiction is not None:
            raise FormatError(f"{where}{contradiction}: damaged, or changed")
    return footer


def _read_encrypted(footer: Footer, data: bytes, decryption: FileDecryption | None, where: str, optional: bool) -> None:
    crypto = Struct.parse(data, what=f"{where}FileCryptoMetaData")
    footer.encrypted = True
    footer.key_metadata = crypto.binary(FileCryptoMetaData.KEY_METADATA)
    _read_algorithm(footer, crypto.struct(FileCryptoMetaData.ENCRYPTION_ALGORITHM), where)
    if decryption is not None:
        _check_algorithm(footer, decryption, where)
        _find_key(footer, decryption, optional, needed=True)
    if decryption is None or footer.key is None:
        stated = int.from_bytes(data[crypto.nbytes :][:4], "little")
        if not modules.OVERHEAD <= stated + 4 == len(data) - crypto.nbytes:
            raise FormatError(
                f"{where}FileMetaData is not a module of the length that the footer has: damaged, or changed"
            )
        return
    _resolve_prefix(footer, decryption)
    name = f"{where}footer"
    plain = modules.open_module(data[crypto.nbytes :], footer.key, footer.file_aad + b"\0", False, name)
    footer.metadata = Struct.parse(plain, what=name)


def _read_plain(
    footer: Footer, data: bytes, decryption: FileDecryption | None, where: str, optional: bool, tolerant: bool
) -> None:
    metadata = Struct.parse(data, what=f"{where}footer")
    footer.metadata = metadata
    algorithm = metadata.struct(FileMetaData.ENCRYPTION_ALGORITHM)
    if algorithm is None:
        if decryption is not None and not decryption.allow_plaintext and not optional:
            raise FormatError(
                f"{where}the file is not encrypted; if that is intended, give {spelled('allow_plaintext', True)}"
            )
        return
    footer.key_metadata = metadata.binary(FileMetaData.FOOTER_SIGNING_KEY_METADATA)
    _read_algorithm(footer, algorithm, where)
    if decryption is None:
        if len(data) - metadata.nbytes != modules.SIGNATURE_LENGTH:
            raise FormatError(f"{where}has no signature of {modules.SIGNATURE_LENGTH} bytes: damaged, or changed")
        return
    _check_algorithm(footer, decryption, where)
    _find_key(footer, decryption, optional, needed=decryption.check_footer_integrity)
    _resolve_prefix(footer, decryption)
    if footer.key is not None and decryption.check_footer_integrity:
        signed, signature = data[: metadata.nbytes], data[metadata.nbytes :]
        try:
            modules.verify_footer(signed, signature, footer.key, footer.file_aad + b"\0", f"{where}signed footer")
            footer.signature_verified = True
        except (AuthenticationError, FormatError) as error:
            if not tolerant:
                raise
            footer.signature_error = error


def _read_algorithm(footer: Footer, union: Struct | None, where: str) -> None:
    arm = union.ids()[0] if union is not None and union.ids() else None
    if union is None or arm not in ALGORITHMS:
        raise FormatError(f"{where}is encrypted with algorithm {arm}, which this version does not support")
    footer.algorithm = ALGORITHMS[arm]
    details = union.struct(arm, Struct())
    footer.aad_prefix = details.binary(AesGcmV1.AAD_PREFIX)
    footer.aad_file_unique = details.binary(AesGcmV1.AAD_FILE_UNIQUE, b"")
    footer.supply_aad_prefix = details.boolean(AesGcmV1.SUPPLY_AAD_PREFIX)
    footer.file_aad = (footer.aad_prefix or b"") + footer.aad_file_unique


def _check_algorithm(footer: Footer, decryption: FileDecryption, where: str) -> None:
    if decryption.algorithm is not None and footer.algorithm != decryption.algorithm:
        raise AuthenticationError(
            f"{where}says that it is encrypted with {footer.algorithm}, but {decryption.algorithm} is required: it "
            "was changed, or it is another file"
        )


def _find_key(footer: Footer, decryption: FileDecryption, optional: bool, needed: bool) -> None:
    try:
        footer.key = decryption.footer_key(footer.key_metadata)
    except KeyAccessError:
        # Also if the service refuses every key: the service may come from the variable AGS1_KMS and not be needed here.
        if needed and not optional:
            raise


def _resolve_prefix(footer: Footer, decryption: FileDecryption) -> None:
    prefix = decryption.resolve_aad_prefix(footer.aad_prefix, footer.supply_aad_prefix)
    footer.file_aad = prefix + footer.aad_file_unique


def encode_footer(metadata: Struct, encryption: FileEncryption | None) -> bytes:
    """All bytes after the page indexes. Sets the fields of the footer for its own encryption."""
    metadata.remove(FileMetaData.ENCRYPTION_ALGORITHM)
    metadata.remove(FileMetaData.FOOTER_SIGNING_KEY_METADATA)
    if encryption is None:
        data = metadata.encode()
        return data + len(data).to_bytes(4, "little") + MAGIC
    aad = encryption.file_aad + b"\0"
    if encryption.plaintext_footer:
        metadata.set(FileMetaData.ENCRYPTION_ALGORITHM, STRUCT, _algorithm(encryption))
        if encryption.footer_key_metadata is not None:
            metadata.set(FileMetaData.FOOTER_SIGNING_KEY_METADATA, BINARY, encryption.footer_key_metadata)
        data = metadata.encode()
        data += modules.sign_footer(data, encryption.footer_key, aad)
        return data + len(data).to_bytes(4, "little") + MAGIC
    crypto = Struct()
    crypto.set(FileCryptoMetaData.ENCRYPTION_ALGORITHM, STRUCT, _algorithm(encryption))
    if encryption.footer_key_metadata is not None:
        crypto.set(FileCryptoMetaData.KEY_METADATA, BINARY, encryption.footer_key_metadata)
    data = crypto.encode() + modules.seal_module(metadata.encode(), encryption.footer_key, aad)
    return data + len(data).to_bytes(4, "little") + ENCRYPTED_MAGIC


def _algorithm(encryption: FileEncryption) -> Struct:
    details = Struct()
    stored = encryption.aad_prefix is not None and encryption.store_aad_prefix
    if stored:
        details.set(AesGcmV1.AAD_PREFIX, BINARY, encryption.aad_prefix)
    details.set(AesGcmV1.AAD_FILE_UNIQUE, BINARY, encryption.aad_file_unique)
    # arrow-rs omits it when there is no prefix; the other writers always write it.
    details.set(AesGcmV1.SUPPLY_AAD_PREFIX, BOOL, encryption.aad_prefix is not None and not stored)
    union = Struct()
    gcm = encryption.algorithm == "AES_GCM_V1"
    union.set(EncryptionAlgorithm.AES_GCM_V1 if gcm else EncryptionAlgorithm.AES_GCM_CTR_V1, STRUCT, details)
    return union
