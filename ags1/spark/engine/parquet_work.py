"""Work on Parquet files: whole files one after the other; the bytes of each show whether it is Parquet.

    driver:   names, sizes, the URL of the KMS, ids of master keys          (no key)
    worker:   URL  -->  KMS client, one configuration for the process  -->  file after file

Two attempts at one file do not disturb each other: each makes its own data keys and keeps them in the file, and the
file appears whole and durable, so the last one counts. Key material beside the file could come from the other attempt,
so none is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ags1.dataset.entries import SourceIdentity
from ags1.dataset.sources import place_of
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.parquet.rewrite.operations import PARQUET, FileOperation, classify
from ags1.parquet.rewrite.tree_files import LEFT_OUT, PUT_OFF, TransferResult, TreeWork
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.results import outcome_of
from ags1.spark.engine.runner import FileWork, Outcome
from ags1.spark.engine.sealing import kms_client, of_process
from ags1.storage import Entry, Location, status
from ags1.streams.files import Progress
from ags1.streams.metadata_files import text_of_prefix
from ags1.support.arguments import at_least_one, one_of
from ags1.support.reports import DAMAGED

# Placeholder for the AAD prefix of each file in the configuration that all files share.
_SOME_PREFIX = b"?"

# -- keys --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReadingSettings:
    """How files are read, in the form sent to workers; `options` are further arguments of the configuration.

    `kms` is None for files that are not encrypted. In an AAD prefix of type str, ``{path}`` and ``{name}`` are those
    of the file.
    """

    kms: str | None
    options: tuple[tuple[str, Any], ...] = ()
    aad_prefix: str | bytes | None = None

    def config(self, name: str) -> Any:
        """The configuration for the file of this name; each process asks the KMS once for all files."""
        made = of_process(self, self._make)
        return made if self.aad_prefix is None else made.with_aad_prefix(prefix_of(self.aad_prefix, name))

    def _make(self) -> Any:
        if self.kms is None:
            return DecryptionConfig(**dict(self.options))
        return DecryptionConfig.from_kms(kms_client(self.kms), **dict(self.options))


@dataclass(frozen=True)
class WritingSettings(ReadingSettings):
    """How files are encrypted, in the form sent to workers: names of keys, but no key."""

    footer_key_id: str = ""
    columns: tuple[tuple[str, tuple[Any, ...]], ...] | None = None

    def _make(self) -> Any:
        assert self.kms is not None
        columns = None if self.columns is None else {master: list(names) for master, names in self.columns}
        prefix = None if self.aad_prefix is None else _SOME_PREFIX
        return EncryptionConfig.from_kms(
            kms_client(self.kms), self.footer_key_id, columns, aad_prefix=prefix, **dict(self.options)
        )

    @property
    def master_key_ids(self) -> list[str]:
        """The master keys that wrap keys of files, each once."""
        return list(dict.fromkeys([self.footer_key_id, *(master for master, _ in self.columns or ())]))


@dataclass(frozen=True)
class TransferSettings:
    """What is done with each file of a tree, as :func:`ags1.spark.rekey_parquet` has it.

    `reading` is None for files that are not encrypted, `writing` for files that will not be.
    """

    reading: ReadingSettings | None
    writing: WritingSettings | None
    others: str = "error"
    resume: bool = True
    threads: int = 1
    plaintext_columns: tuple[Any, ...] = ()
    drop_bloom_filters: bool = False
    missing_columns: str = "fail"

    def __post_init__(self) -> None:
        one_of(self.others, ("error", "copy", "skip"), "others")
        one_of(self.missing_columns, ("fail", "skip"), "missing_columns")
        at_least_one(self.threads, "threads")

    def operation(self) -> FileOperation:
        """The operation on each file, made in the process that calls this."""
        return FileOperation(
            "decrypt" if self.writing is None else "encrypt" if self.reading is None else "rekey",
            None if self.reading is None else self.reading.config,
            None if self.writing is None else self.writing.config,
            plaintext_columns=self.plaintext_columns,
            drop_bloom_filters=self.drop_bloom_filters,
            missing_columns=self.missing_columns,
        )


def prefix_of(given: str | bytes, name: str) -> bytes:
    """The AAD prefix of the file of this name."""
    if isinstance(given, bytes):
        return given
    return text_of_prefix(given, name).encode("utf-8", "surrogateescape")


# -- files ---------------------------------------------------------------------------------------------------------


def unit_of(path: str, source: str, identity: SourceIdentity) -> Unit:
    """The unit of a file that was listed; `source` is its name in the source."""
    return Unit(path, identity.size, (source, identity))


class _Names:
    """The names of a tree, for occasional look-ups."""

    def __init__(self, root: Location) -> None:
        self._root = root

    def __contains__(self, name: object) -> bool:
        try:
            return isinstance(name, str) and status(self._root.join(name)) is not None
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return False


def entry_of(source: Location, unit: Unit) -> Entry:
    """The file of a unit, as it was listed."""
    name, identity = unit.data
    return Entry(unit.path, place_of(source, name), unit.size, identity.mtime_ns, identity.etag or None)


def kind_in(source: Location, file: Entry) -> tuple[str, str]:
    """What to do with a file of a source, as :func:`classify`."""
    names: Any = _Names(source)
    return classify(file.location, file.name, names)


def tree_work(source: Location, target: Location, how: TransferSettings) -> TreeWork:
    """The description of the work on the files of a tree, for tasks."""
    return TreeWork(how.operation, partial(kind_in, source), target, how.others, how.resume, durable=True)


@dataclass
class TreeTask(FileWork):
    """Does the work of a :class:`TreeWork` in tasks: `function` is one of its methods."""

    verb: str
    source: Location
    function: Callable[[Entry, int | None, Progress], Any]
    threads: int = 1

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Work on one file."""
        found = self.function(entry_of(self.source, unit), threads, advance)
        if not isinstance(found, TransferResult):
            return Outcome(unit.path, detail=found)
        if found.target is None:
            later = unit if found.status == PUT_OFF else None
            return Outcome(unit.path, status=found.status, error=found.reason, detail=later)
        length = status(found.target).size
        # The length of the plaintext of an encrypted source is not known before it is decrypted.
        plain, stored = (length, unit.size) if self.verb == "decrypt" else (unit.size, length)
        return Outcome(unit.path, found.target.text, plain, stored, status=found.status)


# -- verifying -----------------------------------------------------------------------------------------------------


@dataclass
class Verifying(FileWork):
    """Authenticates every module of the Parquet files of a tree; `options` are those of :func:`verify_file`."""

    source: Location
    reading: ReadingSettings
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    verb = "verify"

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Verify one file."""
        from ags1.parquet.verify.verification import verify_file

        file = entry_of(self.source, unit)
        kind, reason = kind_in(self.source, file)
        if kind != PARQUET:
            return Outcome(unit.path, status=LEFT_OUT, error=reason)
        known = self.reading.kms is not None or dict(self.reading.options).get("allow_plaintext")
        config = self.reading.config(unit.path) if known else None
        report = verify_file(file.location, config, threads=threads, progress=advance, **self.options)
        outcome = outcome_of(unit.path, unit.size, report)
        outcome.detail = (report.facts["aad_prefix"], report.outcome != DAMAGED)
        return outcome
