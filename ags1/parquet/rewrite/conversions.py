"""Encrypts, decrypts and re-keys whole Parquet files. Pages are converted without decoding them."""

from __future__ import annotations

from ags1.errors import AlreadyEncryptedError, FormatError
from ags1.parquet.keys.columns import ColumnNames, names_in_list
from ags1.parquet.keys.material import parse_entries
from ags1.parquet.keys.material_file import add_key_material, drop_key_material
from ags1.parquet.rewrite._target_file import TargetFile
from ags1.parquet.structure.copying import counting
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import Entry, Output, located, open_output, refuse_same
from ags1.streams.files import Progress
from ags1.support.arguments import spelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ags1.parquet.keys.columns import ColumnName
    from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig, FileEncryption


class PlaintextColumnsError(ValueError):
    """Encrypted columns would become plaintext, and `plaintext_columns` does not allow it.

    Attributes
    ----------
    columns : list of names
        Their names for `plaintext_columns`: paths with dots, or a tuple where that would be empty.
    """

    def __init__(self, text: str, columns: list[ColumnName]) -> None:
        super().__init__(text, columns)
        self.columns = columns

    def __str__(self) -> str:
        return str(self.args[0])


def encrypt_file(
    source: Any,
    target: Any,
    encryption: EncryptionConfig,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Encrypt a Parquet file without decoding its pages.

    Page statistics, page indexes, Bloom filters, checksums, key-value metadata and all other parts of the file are
    kept, and protected like the column that they belong to.

    Parameters
    ----------
    source : path, URL, binary file object or buffer
        A plaintext Parquet file.
    target : path, URL or binary file object
        A path that exists is replaced, atomically at the end; after any error the old file is unchanged.
    encryption : EncryptionConfig
        Keys and columns.
    threads : int, optional
        Threads to use; by default every usable CPU.
    progress : callable, optional
        Called as ``progress(done, total)`` with bytes of pages. An exception from it stops the work.
    durable : bool
        Wait until a local target is on the disk before this returns.
    storage_options : mapping, optional
        Endpoint, credentials and similar options for URLs of source and target, as :func:`ags1.open`; key material
        beside a file is reached with the settings of the environment.

    Raises
    ------
    AlreadyEncryptedError
        It is encrypted: see :func:`rekey_file`.
    FormatError, TruncatedError
        Not a Parquet file, or damaged.
    LimitError
        More than 32,768 row groups, columns, or pages in a column chunk.
    ValueError
        The file does not have a configured column, or source and target are the same file.
    KeyAccessError
        The KMS did not wrap a key.
    OSError
        Reading or writing failed.
    """
    check_configs(encryption=encryption)
    places = located(source, storage_options), located(target, storage_options)
    _rewrite(places, None, encryption, threads, progress, durable)


def decrypt_file(
    source: Any,
    target: Any,
    decryption: DecryptionConfig,
    *,
    drop_bloom_filters: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Decrypt a Parquet file without decoding its pages; every module is authenticated before the target appears.

    Pages of AES_GCM_CTR_V1 files have no tag: everything except their contents is authenticated. If the footer is
    encrypted, the name of the algorithm is not authenticated either; a change of only that name is detected.

    Parameters
    ----------
    source, target, threads, progress, durable, storage_options
        As :func:`encrypt_file`.
    decryption : DecryptionConfig
        Keys of the footer and of all encrypted columns.
    drop_bloom_filters : bool
        Omit all Bloom filters. arrow-rs stores the filters of encrypted columns unencrypted; by default such a file is
        refused.

    Raises
    ------
    AuthenticationError
        A module failed; the message has file, row group, column and page.
    KeyAccessError
        A key is missing.
    FormatError, TruncatedError
        Not an encrypted Parquet file, or damaged.
    OSError
        Reading or writing failed.
    """
    check_configs(decryption=decryption)
    places = located(source, storage_options), located(target, storage_options)
    _rewrite(places, decryption, None, threads, progress, durable, None, drop_bloom_filters)


def rekey_file(
    source: Any,
    target: Any,
    decryption: DecryptionConfig,
    encryption: EncryptionConfig,
    *,
    plaintext_columns: Iterable[ColumnName] = (),
    drop_bloom_filters: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    durable: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> None:
    """Re-encrypt an encrypted Parquet file, without plaintext on any disk and without decoding pages.

    From any configuration to any other: other keys, another algorithm or footer mode, more or fewer encrypted columns.
    If `encryption` does not cover an encrypted column, the column would become plaintext: this is refused unless
    `plaintext_columns` names it. A column with a key of its own is put under the footer key only if `encryption` has
    ``encrypt_all=True``. Without an AAD prefix in `encryption`, the target keeps that of the source. If
    algorithm and AAD prefix stay the same, the unique part of the AAD stays the same too. Column chunks whose key also
    stays the same are copied unchanged after every page was authenticated. (An attacker who can write to the file could
    then replace such a column by its older version. To prevent that, give another `aad_prefix`.)

    Parameters
    ----------
    source, target, threads, progress, durable, storage_options
        As :func:`encrypt_file`.
    decryption : DecryptionConfig
        Configuration to read the source. With ``allow_plaintext=True`` the source may be unencrypted.
    encryption : EncryptionConfig
        Configuration to write the target.
    plaintext_columns : iterable of names
        Columns that may become plaintext, by the names that :class:`EncryptionConfig` has for columns.
    drop_bloom_filters : bool
        As :func:`decrypt_file`.

    Raises
    ------
    PlaintextColumnsError
        Encrypted columns would become plaintext, and `plaintext_columns` does not name them; a ValueError.
    ValueError
        Columns that have keys of their own would be under the footer key, and `encryption` has no ``encrypt_all``.
    AuthenticationError, KeyAccessError, FormatError, TruncatedError, LimitError, ValueError, OSError
        As :func:`decrypt_file` and :func:`encrypt_file`.
    """
    check_configs(decryption=decryption, encryption=encryption)
    if isinstance(plaintext_columns, (str, bytes)):
        raise TypeError("plaintext_columns must be an iterable of column names, not one name")
    allowed = list(plaintext_columns)
    places = located(source, storage_options), located(target, storage_options)
    _rewrite(places, decryption, encryption, threads, progress, durable, allowed, drop_bloom_filters)


def check_configs(**configs: object) -> None:
    """Refuse a `decryption` or an `encryption` of another type."""
    from ags1.parquet.keys import properties

    for name, config in configs.items():
        wanted = properties.EncryptionConfig if name == "encryption" else properties.DecryptionConfig
        if not isinstance(config, wanted):
            raise TypeError(f"{name} must be an ags1.parquet.{wanted.__name__}, not {type(config).__name__}")


def _rewrite(
    places: tuple[Any, Any],
    decryption: DecryptionConfig | None,
    encryption: EncryptionConfig | None,
    threads: int | None,
    progress: Progress | None,
    durable: bool,
    plaintext_columns: list[ColumnName] | None = None,
    drop_bloom_filters: bool = False,
) -> None:
    source, target = places
    if not isinstance(source, (bytes, bytearray, memoryview)):
        refuse_same(source.location if isinstance(source, Entry) else source, target)
    with SourceFile(source, decryption, optional=decryption is None) as file:
        if decryption is None and file.footer.algorithm is not None:
            raise AlreadyEncryptedError(
                f"{file.where}is encrypted already: use {spelled('rekey_file')} to encrypt it in another way"
            )
        made = None if encryption is None else encryption.for_file(target)
        if made is not None and made.aad_prefix is None and (prefix := file.footer.prefix_in_use) is not None:
            # The file keeps its identity, as readers know it.
            made.aad_prefix, made.store_aad_prefix = prefix, file.footer.aad_prefix is not None
        unchanged_aad = made is not None and _keep_aad(file, made)
        if made is not None and plaintext_columns is not None:
            _refuse_plaintext(file, made, plaintext_columns)
            _refuse_shared(file, made)
        total = file.pages_size
        file.will_read([(0, file.footer.start)])
        advance = counting(progress, total)
        with open_output(target, mode=file.source.mode) as output:
            output.reserve(total)
            writer = TargetFile(output, made, drop_bloom_filters=drop_bloom_filters, threads=threads)
            writer.append(file, unchanged_aad=unchanged_aad, advance=advance)
            writer.finish()
            file.source.check()
            if progress is not None:
                progress(total, total)
            publish(output, made, durable=durable)


def _refuse_plaintext(file: SourceFile, made: FileEncryption, allowed: list[ColumnName]) -> None:
    """Refuse columns that would become plaintext, except the allowed ones."""
    names = ColumnNames(names_in_list(allowed, "plaintext_columns"), lambda *_: True) if allowed else None
    encrypted = {chunk.column for chunks in file.kept_chunks for chunk in chunks if chunk.encrypted}
    keys = made.columns([leaf.path for leaf in file.leaves])
    found: list[ColumnName] = [
        leaf.name or leaf.path
        for index, (leaf, key) in enumerate(zip(file.leaves, keys, strict=True))
        if key is None and index in encrypted and (names is None or names.find(leaf.path) is None)
    ]
    if found:
        one = len(found) == 1
        raise PlaintextColumnsError(
            f"{file.where}{'this column is' if one else 'these columns are'} encrypted and would become plaintext: "
            f"{', '.join(map(str, found))}; give {'it a key' if one else 'them keys'}, or name "
            f"{'it' if one else 'them'} in {spelled('plaintext_columns')}",
            found,
        )


def _refuse_shared(file: SourceFile, made: FileEncryption) -> None:
    """Refuse to put columns that have keys of their own under the footer key, unless `encrypt_all` says so."""
    if not made.chooses_no_columns:
        return
    own = {chunk.column for chunks in file.kept_chunks for chunk in chunks if chunk.own_key}
    if own:
        names = ", ".join(str(leaf.name or leaf.path) for index, leaf in enumerate(file.leaves) if index in own)
        one = len(own) == 1
        raise ValueError(
            f"{file.where}{'this column has a key of its own' if one else 'these columns have keys of their own'}, and "
            f"whoever has the footer key could then read {'it' if one else 'them'}: {names}; give "
            f"{'it a key' if one else 'them keys'}, or choose {spelled('encrypt_all', True)}"
        )


def _keep_aad(file: SourceFile, made: FileEncryption) -> bool:
    """Keep the unique part of the source's AAD, if the rest of the AAD stays the same."""
    footer = file.footer
    if footer.algorithm is None or footer.algorithm != made.algorithm:
        return False
    if (made.aad_prefix or b"") + footer.aad_file_unique != footer.file_aad or not footer.aad_file_unique:
        return False
    made.aad_file_unique = footer.aad_file_unique
    return True


def refuse_external(made: FileEncryption) -> None:
    """Refuse key material outside of a file that has no place."""
    if made.external_key_material() is not None:
        raise ValueError(
            "key material outside of the file is stored beside it, so the target must be a path or URL; or leave "
            f"{spelled('internal_key_material', False)} out"
        )


def publish(output: Output, made: FileEncryption | None, *, durable: bool) -> None:
    """Commit a file. Its key material beside it is stored first; that of the file that it replaced goes afterwards."""
    material = made.external_key_material() if made is not None else None
    if made is None or material is None:
        output.commit(durable=durable)
        return
    if output.location is None:
        refuse_external(made)
    assert output.location is not None
    entries = parse_entries(material)
    add_key_material(output.location, entries)
    # The old keys must not be dropped before the new file is sure to stay.
    output.commit(durable=durable or bool(made.replaced))
    try:
        drop_key_material(output.location, made.replaced, entries)
    except FileExistsError:
        # One of the two files may be there with the keys of the other.
        raise
    except (OSError, FormatError):
        # The file is complete. What could not be dropped, the next writer drops.
        return
