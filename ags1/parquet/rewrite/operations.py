"""One file of a tree: its kind, the operation on it, and whether an earlier run finished that."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ags1.errors import Ags1Error, FormatError
from ags1.kms import ServiceRefusal
from ags1.parquet.keys.columns import MissingColumnsError
from ags1.parquet.keys.config_arguments import dotted
from ags1.parquet.keys.material import KeyMaterial, parse_key_metadata
from ags1.parquet.keys.material_file import is_key_material_name, key_material_entries
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.parquet.rewrite.conversions import decrypt_file, encrypt_file, rekey_file
from ags1.parquet.structure.copying import copy_bytes, counting, seekable
from ags1.parquet.structure.footer import ENCRYPTED_MAGIC, MAGIC, Footer, read_footer
from ags1.parquet.structure.inspecting import inspect
from ags1.parquet.structure.source_file import SourceFile
from ags1.storage import Entry, Location, open_output, status
from ags1.streams.files import Progress
from ags1.support.arguments import one_of, spelled
from ags1.support.words import listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from ags1.core.gcm import Key
    from ags1.parquet.keys.columns import ColumnName

    Encryption: TypeAlias = EncryptionConfig | Callable[[str], EncryptionConfig]
    FilePath: TypeAlias = str | os.PathLike[Any]
    Decryption: TypeAlias = DecryptionConfig | Callable[[str], DecryptionConfig]

PARQUET, COPY, LEAVE_OUT, OTHER = "parquet", "copy", "leave out", "other"

_SUFFIXES = (".parquet", ".parq")
_SHORTEST = 12
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Lacking:
    """The columns that the configuration for a file names, those that the file lacks, and a message about them.

    `misnamed` says that it has one of them in another case, which would stay plaintext.
    """

    name: str
    named: list[ColumnName]
    missing: list[ColumnName]
    text: str
    misnamed: bool = False


class FileOperation:
    """What is done with each Parquet file, and the check whether an earlier run finished it.

    `verb` is "encrypt", "decrypt" or "rekey"; see :func:`rekey_file`. A configuration may be a function of the name of
    a file in the tree.
    """

    def __init__(
        self,
        verb: str,
        decryption: Decryption | None = None,
        encryption: Encryption | None = None,
        *,
        plaintext_columns: Iterable[ColumnName] = (),
        drop_bloom_filters: bool = False,
        missing_columns: str = "fail",
    ) -> None:
        self._verb, self._decryption, self._encryption = verb, decryption, encryption
        self._plaintext_columns = plaintext_columns if isinstance(plaintext_columns, str) else list(plaintext_columns)
        self._drop_bloom_filters = drop_bloom_filters
        self.missing_columns = one_of(missing_columns, ("fail", "skip"), "missing_columns")

    @property
    def encrypts(self) -> bool:
        """Whether the target is encrypted."""
        return self._verb != "decrypt"

    def _named(self, name: str) -> Any:
        return self._encryption(name) if callable(self._encryption) else self._encryption

    def config(self, name: str) -> Any:
        """The configuration to write the target with."""
        return self._named(name).allowing_missing_columns() if self.missing_columns == "skip" else self._named(name)

    def reading(self, name: str) -> Any:
        """The configuration to read the source with; None if it is not encrypted."""
        return self._decryption(name) if callable(self._decryption) else self._decryption

    def run(self, source: Any, target: Any, name: str, **options: Any) -> None:
        """Process one file; `name` is its name in the tree."""
        if self._verb == "encrypt":
            encrypt_file(source, target, self.config(name), **options)
            return
        options["drop_bloom_filters"] = self._drop_bloom_filters
        if self._verb == "decrypt":
            decrypt_file(source, target, self.reading(name), **options)
        else:
            options["plaintext_columns"] = self._plaintext_columns
            rekey_file(source, target, self.reading(name), self.config(name), **options)

    def lacking(self, source: Any, name: str) -> Lacking:
        """What columns a file lacks. A file that cannot be read lacks nothing: the work on it meets the error again."""
        config = self._named(name)
        named = config.column_names if self.encrypts else []
        try:
            if named:
                reading = self.reading(name)
                with SourceFile(source, reading, optional=reading is None) as file:
                    config.protections([leaf.path for leaf in file.leaves])
        except MissingColumnsError as error:
            return Lacking(name, named, error.names, str(error), bool(error.alike))
        except ServiceRefusal:
            raise
        except (Ags1Error, OSError, ValueError):
            return Lacking(name, [], [], "")
        return Lacking(name, named, [], "")

    def is_finished(self, source: Entry, target: Location, *, overwrite: bool = True) -> bool:
        """Whether the target is newer, has the source's rows and columns, and a footer that this operation writes.

        FileExistsError, without `overwrite`: it is newer, and better protected than this operation would leave it.
        """
        if newer(source, target) is None:
            return False
        guards, weaker = self.encrypts and not overwrite, ""
        try:
            with seekable(target) as opened:
                if opened is None:
                    return False
                footer = read_footer(opened, None)
                if guards:
                    weaker = self._weaker_footer(footer, source.name)
                if not weaker and self._check(footer, target, source.name):
                    shape = _shape(target, self.config(source.name).reading() if self.encrypts else None)
                    return shape is not None and shape == _shape(source.location, self.reading(source.name))
                if guards and not weaker:
                    weaker = self._weaker_columns(target, source.name)
        except (Ags1Error, OSError, ValueError):
            return False
        if weaker:
            text = (
                f"is newer than its source, and this run would take protection from it: {weaker}. Give the options of "
                f"the earlier run, or remove the file; {spelled('resume', False)} replaces it"
            )
            raise FileExistsError(errno.EEXIST, text, target.shown)
        return False

    def _weaker_footer(self, footer: Footer, name: str) -> str:
        """In what a target's footer is better protected than this operation would leave it; empty if in nothing."""
        config = self.config(name)
        has_prefix = footer.aad_prefix is not None or footer.supply_aad_prefix
        # Re-keying keeps that of the source.
        if has_prefix and config.aad_prefix is None and self._verb == "encrypt":
            return "it has an AAD prefix"
        if footer.encrypted and config.plaintext_footer:
            return "its footer is encrypted"
        if (footer.algorithm, config.algorithm) == ("AES_GCM_V1", "AES_GCM_CTR_V1"):
            return "its pages have tags"
        return ""

    def _weaker_columns(self, target: Any, name: str) -> str:
        """Columns that are better protected than this operation would leave them; empty if there are none."""
        config = self.config(name)
        found = inspect(target, config.reading())
        wanted = config.protections([each.path for each in found.columns])
        ranks = "plaintext", "footer key", "column key"
        lost = [
            ".".join(each.path)
            for each, after in zip(found.columns, wanted, strict=True)
            if ranks.index(each.protection) > ranks.index(after)
        ]
        return f"of its columns, {listed(lost, 5)}" if lost else ""

    def _check(self, footer: Footer, target: Any, name: str) -> bool:
        """Whether a target is encrypted as configured, with these keys or under these master keys, or not at all."""
        if not self.encrypts:
            return footer.algorithm is None
        config = self.config(name)
        if footer.algorithm != config.algorithm or footer.encrypted == config.plaintext_footer:
            return False
        if footer.aad_prefix != (config.aad_prefix if config.store_aad_prefix else None):
            return False
        if config.fresh_keys:
            material = None if footer.key_metadata is None else parse_key_metadata(footer.key_metadata)
            reference = material if isinstance(material, str) else None
            master = None if isinstance(material, str) or material is None else material.master_key_id
            if _master_key(master, reference, target) != config.footer_key_id:
                return False
        found = inspect(target, config.reading())
        if not found.footer_readable:
            return False
        if not found.row_groups:
            # It does not show the protection of its columns.
            return True
        paths = [each.path for each in found.columns]
        if [each.protection for each in found.columns] != config.protections(paths):
            return False
        given: dict[tuple[str, ...], Key] = {}
        for each, own in zip(found.columns, config.own_keys(paths), strict=True):
            if isinstance(own, str):
                if each.key is None or _master_key(each.key.master_key_id, each.key.reference, target) != own:
                    return False
            elif own is not None:
                given[each.path] = own
        return not given or all(each.readable for each in inspect(target, config.reading(given)).columns)


def _master_key(known: str | None, reference: str | None, target: Any) -> str | None:
    """The master key of a key of a file, which the key material beside it may say."""
    entry = None if known or reference is None else key_material_entries(Location(target)).get(reference)
    return known if entry is None else KeyMaterial.decode(entry).master_key_id


def _shape(file: Any, decryption: DecryptionConfig | None) -> tuple[Any, ...] | None:
    """The rows and columns of a file; None if its footer does not open."""
    found = inspect(file, decryption)
    if not found.footer_readable:
        return None
    return found.rows, [each.rows for each in found.row_groups], found.schema


def refuse_missing_columns(found: Iterable[Lacking], missing_columns: str, way_out: str) -> None:
    """Raise ValueError if a file lacks a column; with ``missing_columns="skip"``, if all do, or for one misnamed."""
    named: dict[ColumnName, bool] = {}
    lacking: list[Lacking] = []
    for each in found:
        for column in each.named:
            named[column] = named.get(column, False) or column not in each.missing
        if each.misnamed and missing_columns == "skip":
            raise ValueError(f"{each.name} has a column in another case: {each.text}: nothing was written; name both")
        if each.missing and (missing_columns == "fail" or len(lacking) < _SHOWN):
            lacking.append(each)
    if missing_columns == "skip":
        never = [dotted(column) for column, there in named.items() if not there]
        if never:
            raise ValueError(f"no file has the column {', '.join(never)}: nothing was written; {lacking[0].text}")
    elif lacking:
        first, *others = lacking
        more = f"; so do {listed([each.name for each in others], _SHOWN)}" if others else ""
        raise ValueError(f"{first.name} lacks a column: {first.text}{more}: nothing was written; {way_out}")


def classify(path: FilePath, name: str, known: set[str]) -> tuple[str, str]:
    """What to do with a file of a tree with these `known` names: PARQUET, COPY, LEAVE_OUT or OTHER; and the reason."""
    folder, _, last = name.rpartition("/")
    if is_key_material_name(last):
        return LEAVE_OUT, "it is the key material of another file"
    if last.startswith(".") and last.endswith(".crc") and os.path.join(folder, last[1:-4]) in known:
        return LEAVE_OUT, "it is a checksum of the old file"
    if last == "_metadata" and _is_parquet(path):
        return LEAVE_OUT, "it repeats the statistics of all files, and readers do not need it"
    if last.endswith(_SUFFIXES) or _is_parquet(path):
        return PARQUET, ""
    if last.startswith(("_", ".")) and _is_empty(path):
        return COPY, "it is an empty marker"
    return OTHER, "it is not a Parquet file"


def refuse_others(names: list[str], way_out: str) -> None:
    """Raise FormatError if there are files that are not Parquet; it names the first ones."""
    if names:
        are = "is not a Parquet file" if len(names) == 1 else "are not Parquet files"
        raise FormatError(f"{listed(names, _SHOWN)} {are}: nothing was written; {way_out}")


def copy_file(source: Any, target: FilePath, *, progress: Progress | None = None, durable: bool = False) -> None:
    """Copy a file unchanged; the target appears whole or not at all."""
    with seekable(source) as opened:
        if opened is None:
            raise OSError(22, "it is a pipe, a socket or a device, which cannot be copied", Location(source).shown)
        with open_output(target, mode=opened.mode) as output:
            copy_bytes(opened, opened.size, output, counting(progress, opened.size))
            opened.check()
            output.commit(durable=durable)


def newer(source: Entry, target: Location) -> Entry | None:
    """The file in the target, if it is newer than its source was when it was listed, and than that is there."""
    try:
        there, came = status(target), _came(source.location)
    except (OSError, ValueError):
        return None
    # An equal time is not enough: clocks of file systems are coarse. That of its coming is by the clock of the target.
    return there if source.modified and there.modified > source.modified and there.modified >= came else None


def _came(source: Location) -> int:
    """When a local file came to its place: one that was copied or moved there may have a time from long before."""
    if not source.is_local:
        return 0
    return max(os.stat(source.path).st_ctime_ns, os.lstat(source.path).st_ctime_ns)


def _is_parquet(path: FilePath) -> bool:
    with seekable(path) as opened:
        if opened is None or opened.size < _SHORTEST:
            return False
        ends = {bytes(memoryview(opened.read(0, 4))), bytes(memoryview(opened.read(opened.size - 4, 4)))}
        # One of the two is enough: a file with a damaged end must not be skipped silently.
        return bool(ends & {MAGIC, ENCRYPTED_MAGIC})


def _is_empty(path: FilePath) -> bool:
    with seekable(path) as opened:
        return opened is not None and opened.size == 0
