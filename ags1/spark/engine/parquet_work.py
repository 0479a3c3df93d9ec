"""Work on Parquet files: whole files one after the other; the bytes of each show whether it is Parquet.

    driver:   names, sizes, the URL of the KMS, ids of master keys          (no key)
    worker:   URL  -->  KMS client, one configuration for the process  -->  file after file

Two attempts at one file do not disturb each other: each makes its own data keys and keeps them in the file, and the
file appears whole and durable, so the last one counts. Key material beside the file could come from the other attempt,
so none is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ags1.dataset.entries import SourceIdentity
from ags1.dataset.sources import place_of
from ags1.errors import FormatError
from ags1.parquet.keys.properties import DecryptionConfig, EncryptionConfig
from ags1.parquet.rewrite.operations import (
    COPY,
    LEAVE_OUT,
    OTHER,
    PARQUET,
    Decrypting,
    Encrypting,
    FileOperation,
    Rekeying,
    classify,
)
from ags1.parquet.rewrite.tree_files import copy, transfer
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.runner import FileWork, Outcome
from ags1.spark.engine.sealing import kms_client, of_process
from ags1.storage import Entry, Location, status
from ags1.streams.files import Progress
from ags1.streams.metadata_files import text_of_prefix
from ags1.support.arguments import at_least_one, one_of
from ags1.support.reports import DAMAGED, NOT_CHECKED, NOT_PROTECTED

LEFT_OUT = "left out"
"""Status of a file that is passed over; the reason is in its error."""

# Placeholder for the AAD prefix of each file in the configuration that all files share.
_SOME_PREFIX = b"?"
# Classes of errors that stand for an outcome.
_KINDS = {NOT_CHECKED: "KeyAccessError", NOT_PROTECTED: "AuthenticationError", DAMAGED: "FormatError"}

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
        if self.writing is None:
            assert self.reading is not None
            return Decrypting(self.reading.config, drop_bloom_filters=self.drop_bloom_filters)
        if self.reading is None:
            return Encrypting(self.writing.config, missing_columns=self.missing_columns)
        return Rekeying(
            self.reading.config,
            self.writing.config,
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


@dataclass
class _TreeWork(FileWork):
    """Base of the work on the files of a tree."""

    verb: str
    source: Location

    def _place(self, unit: Unit) -> Location:
        return place_of(self.source, unit.data[0])

    def _entry(self, unit: Unit) -> Entry:
        before: SourceIdentity = unit.data[1]
        return Entry(unit.path, self._place(unit), unit.size, before.mtime_ns, before.etag or None)

    def _classify(self, unit: Unit) -> tuple[str, str]:
        place: Any = self._place(unit)
        names: Any = _Names(self.source)
        return classify(place, unit.path, names)


@dataclass
class Examining(_TreeWork):
    """Finds out whether files are Parquet, for decisions before anything is written."""

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Look at one file."""
        kind, _ = self._classify(unit)
        return Outcome(unit.path, detail=kind)


@dataclass
class Copying(_TreeWork):
    """Copies files as they are. `resume` skips files whose copy in the target is newer and has the same length."""

    target: Location
    resume: bool = True

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Copy one file."""
        target = self.target.as_root().join(unit.path)
        done = copy(self._entry(unit), target, resume=self.resume, progress=advance, durable=True)
        return Outcome(unit.path, target.text, unit.size, status(target).size, status="ok" if done else "skipped")


@dataclass
class Transferring(_TreeWork):
    """Encrypts, decrypts or re-keys the Parquet files of a tree."""

    target: Location
    how: TransferSettings

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Process one file, or put it off."""
        kind, reason = self._classify(unit)
        if kind == COPY or (kind == OTHER and self.how.others == "copy"):
            # Markers are copied after all other files: a marker says that everything is there.
            return Outcome(unit.path, status=LEFT_OUT, detail=unit)
        if kind == OTHER and self.how.others == "error":
            raise FormatError(
                f"{unit.path}: {reason}; `others='copy'` copies such files, `others='skip'` leaves them out"
            )
        if kind in (OTHER, LEAVE_OUT):
            return Outcome(unit.path, status=LEFT_OUT, error=reason)
        assert kind == PARQUET
        return self._transfer(unit, advance)

    def _transfer(self, unit: Unit, advance: Progress) -> Outcome:
        target = self.target.as_root().join(unit.path)
        how: dict[str, Any] = {"threads": self.how.threads, "progress": advance, "durable": True}
        done = transfer(self._entry(unit), target, self.how.operation(), resume=self.how.resume, **how)
        length = status(target).size
        # The length of the plaintext of an encrypted source is not known before it is decrypted.
        plain, stored = (length, unit.size) if self.how.writing is None else (unit.size, length)
        return Outcome(unit.path, target.text, plain, stored, status="ok" if done else "skipped")


@dataclass
class Looking(_TreeWork):
    """Finds the columns that the Parquet files of a tree lack, before `transfer` writes anything."""

    transfer: Transferring

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Look for the columns of one file."""
        if self._classify(unit)[0] != PARQUET:
            return Outcome(unit.path)
        return Outcome(unit.path, detail=self.transfer.how.operation().lacking(self._place(unit), unit.path))


# -- verifying -----------------------------------------------------------------------------------------------------


@dataclass
class Verifying(_TreeWork):
    """Authenticates every module of the Parquet files of a tree, as :func:`ags1.spark.verify_parquet` has it."""

    reading: ReadingSettings
    missing_keys: str = "error"
    threads: int = 1
    require_encrypted: tuple[Any, ...] = ()
    allow_unauthenticated_pages: bool = False

    def one(self, unit: Unit, threads: int | None, advance: Progress) -> Outcome:
        """Verify one file."""
        from ags1.parquet.verify.verification import verify_file

        kind, reason = self._classify(unit)
        if kind != PARQUET:
            return Outcome(unit.path, status=LEFT_OUT, error=reason)
        known = self.reading.kms is not None or dict(self.reading.options).get("allow_plaintext")
        config = self.reading.config(unit.path) if known else None
        report = verify_file(
            self._place(unit),
            config,
            missing_keys=self.missing_keys,
            require_encrypted=self.require_encrypted,
            allow_unauthenticated_pages=self.allow_unauthenticated_pages,
            threads=self.threads,
            progress=advance,
        )
        found = (report.facts["aad_prefix"], report.outcome != DAMAGED)
        outcome = Outcome(unit.path, plaintext_length=unit.size, file_length=unit.size, detail=found)
        if not report.ok:
            outcome.status = NOT_PROTECTED if report.outcome == NOT_PROTECTED else "error"
            outcome.kind, outcome.error = _KINDS[report.outcome], report.fault()
            if report.outcome == DAMAGED:
                outcome.kind = report.having("damaged")[0].details["error"]
        elif contradictions := report.having("contradiction"):
            outcome.error = f"problem: {contradictions[0].message}"
        return outcome
