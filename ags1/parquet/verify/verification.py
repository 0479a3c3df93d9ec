"""Authenticates every module of a Parquet file without decoding a value, and reports those that fail.

    footer, or its signature
    each column chunk     column metadata  -->  pages, found by one thread and checked by many, 32 MiB at once
                          column index, offset index, Bloom filter
                          and whether sizes, offsets, ordinals and counts agree with each other

After a failed module, verification continues except for parts that cannot be found without it: the pages after a page
whose header fails, the pages of a column whose metadata fails, all of a file whose footer fails.
"""

from __future__ import annotations

from ags1.errors import AuthenticationError, FormatError, KeyAccessError, LimitError
from ags1.parquet.keys.columns import ColumnNames, MissingColumnsError, names_in_list
from ags1.parquet.native.thrift import Struct
from ags1.parquet.structure.copying import seekable
from ags1.parquet.structure.fields import FileMetaData
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, LONGEST_FOOTER, MAGIC
from ags1.parquet.structure.source_file import SourceFile
from ags1.parquet.verify.module_walk import check_modules
from ags1.parquet.verify.report import SIGNATURE, FileTally
from ags1.storage import Entry, Source, located
from ags1.support.arguments import one_of, spelled
from ags1.support.recently_used import RecentlyUsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ags1.parquet.keys.columns import ColumnName
    from ags1.parquet.keys.properties import DecryptionConfig
    from ags1.streams.files import Progress
    from ags1.support.reports import VerifyReport
    from ags1.support.typing import Buffer

# Errors about the data, which belong in the report.
_FAULTS = (AuthenticationError, FormatError, LimitError)
# Bytes of a file in a store that are read for small neighbouring modules.
_BLOCK = 1 << 20
_BLOCKS = 8


def verify_file(
    source: Any,
    decryption: DecryptionConfig | None = None,
    *,
    missing_keys: str = "error",
    require_encrypted: Iterable[ColumnName] = (),
    allow_unauthenticated_pages: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Authenticate every module of a Parquet file, without decoding it and in little memory.

    Plaintext is written to a reused buffer and is not returned. Columns that are not encrypted cannot be authenticated:
    their structure is checked, and the CRCs of their pages if there are any. The same applies to the pages of
    AES_GCM_CTR_V1 files; the report has their number. A file is "authentic" only if all parts that must be protected
    were authenticated. Damage has precedence, then missing keys; where these are allowed, the outcome is that of what
    could be checked.

    Parameters
    ----------
    source : path, URL, seekable file object or buffer
        The file.
    decryption : DecryptionConfig, optional
        Keys of the footer and of all encrypted columns. With ``allow_plaintext=True`` a file that is not encrypted,
        or whose footer is not authenticated, is ``ok``, although it is not protected.
    missing_keys : {"error", "drop"}
        Whether a column whose key is missing makes the report not ``ok``, or is left out of the outcome. The report
        names such columns in both cases.
    require_encrypted : iterable of names
        Columns that must be encrypted; names are as in :class:`EncryptionConfig`. Columns with a key
        in ``column_keys`` of `decryption` must be encrypted with it, unless it has ``allow_plaintext=True``.
    allow_unauthenticated_pages : bool
        Whether a file is ``ok`` if its pages, or their levels, have no tag: pages of AES_GCM_CTR_V1, and levels of
        parquet-java's version 2 pages.
    threads, progress, storage_options
        As :func:`encrypt_file`; `progress` counts all bytes of the file.

    Returns
    -------
    VerifyReport
        Unlike reading, verification continues after a failure. A wrong key has the same effect as a changed module.
        `checked` has "modules", those that were authenticated, and "bytes", those that were checked.

        `facts` has "size", bytes; "footer", which is "encrypted", "signed" or "plaintext"; "algorithm" or None;
        "signature_verified", None without a signature; "row_groups"; "modules", a number for each kind; "columns",
        names with dots and their protection: "plaintext", "footer key", "column key", or "mixed" if row groups differ;
        "unchecked_bytes" of pages, as far as the number is known; "checksums", pages without a tag whose CRC was
        checked; "aad_prefix", with which a footer was authenticated.

        The codes of errors: "damaged", a module that failed, with the `details` "module" (its kind), "error" (name of
        an exception), "row_group", "page", "offset", "unchecked" (bytes of pages behind it) as far as they apply;
        "key-missing". Of violations, notes if the caller allows them: "footer-not-authenticated",
        "pages-without-tags" (of AES_GCM_CTR_V1), "levels-without-tags" (of parquet-java's version 2 pages);
        "column-unprotected" is never allowed. Of warnings: "contradiction", parts that are authentic, or need not be,
        and disagree: readers that rely on them may fail. Of notes: "plaintext-columns", "prefix-not-compared" and
        "no-prefix", which let another file under the same keys pass for this one.

    Raises
    ------
    FormatError, TruncatedError
        Not a Parquet file, or its end is missing.
    KeyAccessError
        The file is encrypted, and a key is missing without which nothing can be checked.
    OSError
        Reading failed.
    ValueError
        A wrong argument, such as a column that the file does not have; or the file needs an AAD prefix that
        `decryption` does not have.
    """
    one_of(missing_keys, ("error", "drop"), "missing_keys")
    if isinstance(require_encrypted, (str, bytes)):
        raise TypeError("require_encrypted must be an iterable of column names, not one name")
    required = list(require_encrypted)
    names = ColumnNames(names_in_list(required, "require_encrypted"), lambda *_: True) if required else None
    tally = FileTally(
        drops_missing=missing_keys == "drop",
        allows_plaintext=decryption is not None and decryption.allow_plaintext,
        allows_untagged=allow_unauthenticated_pages,
        prefix=None if decryption is None else decryption.aad_prefix,
    )
    file = _open(located(source, storage_options), decryption, tally)
    if file is not None:
        with file:
            file.will_read([(0, file.footer.start)])
            if file.footer.algorithm is not None and decryption is None:
                raise KeyAccessError(f"{file.where}the file is encrypted: give its keys with {spelled('decryption')}")
            if file.footer.metadata is None:
                # The key is missing; this error has the reason.
                file.footer_key()
            _check_footer(file, tally)
            if file.source.is_remote:
                cached: Any = _CachedSource(file.source)
                file.source = cached
            check_modules(file, tally, _required(file, names), threads=threads, progress=progress)
            if progress is not None:
                progress(file.footer.size, file.footer.size)
    return tally.finish()


# -- the footer ------------------------------------------------------------------------------------------------


def _open(source: Any, decryption: DecryptionConfig | None, tally: FileTally) -> SourceFile | None:
    """Open the file. If its footer fails, take that in and return None."""
    try:
        return SourceFile(source, decryption, optional=True, tolerant=True, any_protection=True)
    except _FAULTS as error:
        ending = _ending(source.location if isinstance(source, Entry) else source)
        if ending is None:
            raise
        failure = error
    name, size, magic, offset, data = ending
    tally.name(name, size)
    tally.facts["footer"] = "encrypted" if magic == ENCRYPTED_MAGIC else "plaintext"
    unchecked = max(0, offset - 4)
    try:
        structure = Struct.parse(data)
        offset += structure.nbytes
        if magic == MAGIC and FileMetaData.ENCRYPTION_ALGORITHM in structure:
            tally.facts["footer"] = "signed"
    except FormatError:
        pass
    tally.fail("footer", failure, offset=offset, unchecked=unchecked)
    return None


def _ending(source: Any) -> tuple[str | None, int, bytes, int, bytes] | None:
    """Name, size, magic, offset of the footer and its bytes; None if it does not end as a Parquet file does."""
    with seekable(source) as opened:
        if opened is None or opened.size < 12:
            return None
        end = bytes(memoryview(opened.read(opened.size - 8, 8)))
        start = opened.size - 8 - int.from_bytes(end[:4], "little")
        if end[4:] not in (MAGIC, ENCRYPTED_MAGIC) or start < 4:
            return None
        tail = bytes(memoryview(opened.read(start, min(opened.size - 8 - start, LONGEST_FOOTER))))
        return opened.name, opened.size, end[4:], start, tail


# -- everything else -------------------------------------------------------------------------------------------


def _required(file: SourceFile, names: ColumnNames | None) -> list[bool]:
    """Whether each column of the file must be encrypted."""
    if names is None:
        return [False] * len(file.leaves)
    try:
        found = names.resolve([leaf.path for leaf in file.leaves])
    except MissingColumnsError as error:
        hint = "where not all files have a column, `ags1 audit --json` lists the plaintext columns of each file"
        raise MissingColumnsError(f"{error}; {hint}", error.names, error.alike) from None
    return [each is not None for each in found]


def _check_footer(file: SourceFile, tally: FileTally) -> None:
    """Take in the footer of an open file, and what vouches for it."""
    footer = file.footer
    tally.name(file.name, footer.size)
    tally.where = file.where
    tally.facts["algorithm"] = footer.algorithm
    kind = "encrypted" if footer.encrypted else "plaintext" if footer.algorithm is None else "signed"
    tally.facts["footer"] = kind
    tally.count_bytes(4 + footer.size - footer.start)
    if kind == "encrypted":
        tally.count("footer")
    elif kind == "signed":
        tally.facts["signature_verified"] = footer.signature_verified
        if footer.signature_verified:
            tally.count(SIGNATURE)
        elif footer.key is None:
            tally.is_footer_key_missing = True
        elif footer.signature_error is not None:
            assert footer.metadata is not None
            tally.fail(SIGNATURE, footer.signature_error, offset=footer.start + footer.metadata.nbytes)
        else:
            tally.is_signature_skipped = True
    contradiction = footer.contradicts(bytes(memoryview(file.source.read(0, 4))))
    if contradiction is not None:
        tally.fail("magic", FormatError(f"the file {contradiction}"), offset=0)
    tally.facts["aad_prefix"] = footer.authenticated_prefix


class _CachedSource(Source):
    """A source for small neighbouring ranges, which reads them with few requests."""

    is_remote = True

    def __init__(self, source: Source) -> None:
        self._source = source
        self.name = source.name
        self.size = source.size
        self._blocks = RecentlyUsed(_BLOCKS)

    def read(self, offset: int, size: int) -> Buffer:
        if size > _BLOCK or offset + size > self.size or not size:
            return self._source.read(offset, size)
        first, last = offset // _BLOCK, (offset + size - 1) // _BLOCK
        data = b"".join(self._block(each) for each in range(first, last + 1))
        return data[offset - first * _BLOCK :][:size]

    def read_into(self, offset: int, out: memoryview) -> None:
        """Fill `out` with pages, which nothing else reads."""
        self._source.read_into(offset, out)

    def _block(self, number: int) -> bytes:
        start = number * _BLOCK
        found: bytes = self._blocks.get(
            number, lambda: bytes(memoryview(self._source.read(start, min(_BLOCK, self.size - start))))
        )
        return found

    def close(self) -> None:
        self._source.close()
