"""The key hierarchy of an encrypted Iceberg table: opened, extended, moved to another master key, cleaned, united.

    master key, in a KMS   wraps   key encryption key   wraps   key metadata of a manifest list
                                   KEY_TIMESTAMP: "..."         nonce (12) || ciphertext || tag (16)
                                                                AAD: the timestamp's exact text

A snapshot's ``key-id`` names the last kind of entry (not the key encryption key, as the table spec words it), whose
``encrypted-by-id`` names the key encryption key, whose own ``encrypted-by-id`` names the master key. Sources: Iceberg
table spec, "Encryption Keys"; Iceberg Java's StandardEncryptionManager and EncryptionUtil; the mailing list's
description of StandardKeyMetadata and wrapped keys, of May 2026, whose ``key-timestamp`` is also read.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ags1.core.gcm import random_bytes
from ags1.errors import Ags1Error, AuthenticationError, FormatError, KeyAccessError
from ags1.iceberg.metadata.key_entries import (
    KEY_TIMESTAMP,
    MAX_TEXT,
    EncryptedKey,
    MissingKekError,
    check_kms,
    closure,
    has_unknown_properties,
    kek_above,
    kept_kek,
    make_kek,
    newest_usable,
    open_entry,
    opening,
    seal_entry,
    shown,
    wrap_kek,
)
from ags1.iceberg.metadata.metadata_document import ENCRYPTION_KEYS, Document, Metadata
from ags1.keys import Key, KeyMetadata
from ags1.kms.asking import reported
from ags1.support.forks import ForkSafeLock
from ags1.support.reports import Report

__all__ = ["EncryptionKeys", "KeyRewrapReport", "MergeReport", "MissingKekError", "PruneReport"]

KEY_ID_BYTES = 16


@dataclass(frozen=True)
class KeyRewrapReport(Report):
    """Result of a change of the master key, or in a dry run what it would be.

    Attributes
    ----------
    rewrapped : tuple of str
        Ids of the key encryption keys that are now wrapped by the new master key, each one verified.
    old_table_key_ids : tuple of str
        The master keys that wrapped them before: what the KMS must keep until no old metadata file is needed.
    new_table_key_id : str
        The master key that wraps them now.
    unopened : tuple of str
        Ids of entries that do not open under their key encryption key, before as after: damaged, or not key metadata.
    untouched : tuple of str
        Ids of entries that are neither a key encryption key nor wrapped by one in the list.
    dry_run : bool
        All calls were made and all checks passed, and the result was discarded.
    """

    rewrapped: tuple[str, ...]
    old_table_key_ids: tuple[str, ...]
    new_table_key_id: str
    unopened: tuple[str, ...] = ()
    untouched: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True)
class PruneReport(Report):
    """What was dropped and what was kept, by id, in the order of the list.

    Attributes
    ----------
    dropped : tuple of str
        Entries that nothing in the metadata uses.
    kept : tuple of str
        All others.
    unjudged : tuple of str
        Those of `kept` that are there only because they have fields or properties that this version does not know.
    missing : tuple of str
        Ids that snapshots name and the list lacks: these snapshots cannot be opened.
    """

    dropped: tuple[str, ...]
    kept: tuple[str, ...]
    unjudged: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class MergeReport(Report):
    """Origin of the entries of a merged list.

    Attributes
    ----------
    added : tuple of str
        Ids that only the other list had.
    common : tuple of str
        Ids that both had, alike.
    """

    added: tuple[str, ...]
    common: tuple[str, ...]


class EncryptionKeys:
    """The ``encryption-keys`` of one table.

    Parameters
    ----------
    entries : iterable of EncryptedKey
        The list's entries.
    clock : callable, optional
        Seconds since 1970, as :func:`time.time` gives them. For tests.

    Attributes
    ----------
    report : KeyRewrapReport, PruneReport, MergeReport or None
        Report of the call that made this object.

    Raises
    ------
    FormatError
        Two entries have one id.

    Notes
    -----
    Safe to share between threads. :meth:`add_manifest_list_key` adds to the object; :meth:`rewrap`, :meth:`prune` and
    :meth:`merge` return a new one and leave this one as it is. It holds only wrapped keys, so it can be pickled; the
    clock does not travel. Unwrapped key encryption keys are kept in the cache of the KMS client, for as long as that
    keeps any.

    A timestamp decides only which key encryption key wraps new entries: one that is younger than 730 days and not more
    than a day ahead of this clock, the newest first, and only if its property is spelled ``KEY_TIMESTAMP``, because
    Iceberg Java reads no other. Where there is none, one is made. Every key encryption key opens its entries for ever.
    """

    __slots__ = ("_below", "_clock", "_entries", "_lock", "_proven", "report")

    def __init__(self, entries: Iterable[EncryptedKey] = (), *, clock: Callable[[], float] | None = None) -> None:
        self._entries: dict[str, EncryptedKey] = {}
        self._below: dict[str | None, list[EncryptedKey]] = {}
        for entry in entries:
            if not isinstance(entry, EncryptedKey):
                raise TypeError(f"entries must be ags1.iceberg.EncryptedKey objects, not {type(entry).__name__}")
            if entry.key_id in self._entries:
                raise FormatError(f"encryption-keys has two entries with the id {shown(entry.key_id)}")
            self._insert(entry)
        self._clock = time.time if clock is None else clock
        self._lock = ForkSafeLock()
        self._proven: set[tuple[str, bytes]] = set()
        self.report: Report | None = None

    @classmethod
    def from_table_metadata(cls, metadata: Metadata, *, clock: Callable[[], float] | None = None) -> EncryptionKeys:
        """Read the list out of a table's metadata.

        Parameters
        ----------
        metadata : mapping, JSON text, JSON bytes, or path
            The parsed metadata; its JSON, also compressed by gzip; or the path of a metadata file. A str that begins
            with ``{`` is JSON, any other is a path.
        clock
            As for the class.

        Raises
        ------
        FormatError
            Not table metadata, or entries with missing or wrong fields, bad base64, or one id twice. A list whose
            entries do not fit each other is read: :meth:`unwrap` reports a faulty entry when it is requested.
        OSError
            The file cannot be read.
        """
        return cls(Document(metadata).entries(), clock=clock)

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of all entries, in the list's order."""
        return tuple(entry.key_id for entry in self)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[EncryptedKey]:
        with self._lock.lock:
            return iter(list(self._entries.values()))

    def __contains__(self, key_id: object) -> bool:
        return key_id in self._entries

    def __getitem__(self, key_id: str) -> EncryptedKey:
        """The entry with this id.

        Raises
        ------
        KeyAccessError
            There is none.
        """
        entry = self._entries.get(key_id)
        if entry is None:
            raise KeyAccessError(
                f"encryption-keys has no entry {shown(key_id)} among its {len(self._entries)}: "
                "it was lost (such as by two commits at once), or the list belongs to another table. "
                "Older metadata files may still have it: merge their lists"
            )
        return entry

    def below(self, key_id: str) -> list[EncryptedKey]:
        """The entries that an entry wraps."""
        with self._lock.lock:
            return list(self._below.get(key_id, ()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncryptionKeys):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if not hasattr(self, "report"):
            # In a traceback that shows local variables, out of a constructor that failed.
            return "<ags1.iceberg.EncryptionKeys, not made>"
        return f"<ags1.iceberg.EncryptionKeys: {len(self)} entries>"

    def __reduce__(self) -> tuple[Any, ...]:
        return EncryptionKeys, (tuple(self),)

    # -- opening -----------------------------------------------------------------------------------------------

    def unwrap(self, key_id: str, kms: Any, *, table_key_id: str | None = None) -> KeyMetadata:
        """Open the key metadata of a manifest list.

        Parameters
        ----------
        key_id : str
            A snapshot's ``key-id``.
        kms : object
            A client of :mod:`ags1.kms`, or any object with ``wrap_key`` and ``unwrap_key``. It is asked once per key
            encryption key, for as long as its cache keeps that (an hour, unless its `cache_seconds` says otherwise).
        table_key_id : str, optional
            The master key that must be at the top of the hierarchy. Give it if you know it from a trusted source.
            Otherwise, anyone who can change the metadata could insert another hierarchy, under any master key that
            `kms` can use.

        Raises
        ------
        KeyAccessError
            An entry is missing, the KMS refused, or another master key is at the top.
        FormatError
            The hierarchy is malformed: no timestamp, a cycle, no or an unknown encrypted-by-id, damaged key metadata.
        AuthenticationError
            The entry does not open under its key encryption key.
        """
        check_kms(kms)
        entry = self[key_id]
        kek_entry = kek_above(self._entries, entry)
        if table_key_id is not None and kek_entry.encrypted_by_id != table_key_id:
            raise KeyAccessError(
                f"entry {shown(key_id)} is under master key {shown(kek_entry.encrypted_by_id or '')}, not "
                f"{shown(table_key_id)}: it was re-wrapped, or comes from another table"
            )
        return open_entry(entry, kek_entry, kept_kek(kms, kek_entry))

    def for_snapshot(
        self, metadata: Metadata, snapshot_id: int | None, kms: Any, *, table_key_id: str | None = None
    ) -> KeyMetadata | None:
        """Open the key metadata of a snapshot's manifest list.

        Parameters
        ----------
        metadata : mapping, JSON text, JSON bytes, or path
            The table's metadata.
        snapshot_id : int or None
            The snapshot; None for the current one.
        kms, table_key_id
            As for :meth:`unwrap`.

        Returns
        -------
        KeyMetadata or None
            None where the snapshot names no key: its manifest list is not encrypted, which an encrypted table may
            have from before it was encrypted, and which an attacker would like you to believe.

        Raises
        ------
        KeyAccessError
            There is no such snapshot, or as for :meth:`unwrap`; the message names the snapshot.
        FormatError, AuthenticationError
            As for :meth:`unwrap`.
        """
        snapshots = Document(metadata).snapshots()
        if snapshot_id is None:
            snapshot_id = snapshots.current
        key_id = snapshots.key_id(snapshot_id)
        if key_id is None:
            return None
        try:
            return self.unwrap(key_id, kms, table_key_id=table_key_id)
        except Ags1Error as error:
            raise type(error)(f"snapshot {snapshot_id} (key-id {shown(key_id)}): {error}") from error

    # -- adding ------------------------------------------------------------------------------------------------

    def add_manifest_list_key(
        self, key_metadata: KeyMetadata, kms: Any, table_key_id: str, *, data_key_length: int | None = None
    ) -> str:
        """Wrap the key metadata of a manifest list, and add it to the list.

        Parameters
        ----------
        key_metadata : KeyMetadata
            Of the finished manifest list, so with its length: Iceberg Java refuses one without.
        kms : object
            As for :meth:`unwrap`.
        table_key_id : str
            The master key: the table's property ``encryption.key-id``.
        data_key_length : int, optional
            16, 24 or 32: bytes of a key encryption key that has to be made, as the table's property
            ``encryption.data-key-length``; without it, as many as the manifest list's own key has. A KMS that makes
            keys itself chooses the length.

        Returns
        -------
        str
            Id of the new entry, for the snapshot's ``key-id``.

        Raises
        ------
        TypeError, ValueError
            A wrong argument.
        KeyAccessError
            The KMS refused. Nothing was added.
        AuthenticationError
            The newest key encryption key opens none of its entries: a wrong master key, or a changed timestamp.
        """
        check_kms(kms)
        if not isinstance(key_metadata, KeyMetadata):
            raise TypeError(f"key_metadata must be an ags1.KeyMetadata, not {type(key_metadata).__name__}")
        _check_table_key_id(table_key_id, "table_key_id")
        length = len(key_metadata.encryption_key) if data_key_length is None else data_key_length
        if length not in (16, 24, 32):
            raise ValueError(f"data_key_length must be 16, 24 or 32 bytes, got {data_key_length}")
        # The lock is held during calls to the KMS, so that threads that add at once share one new key encryption key.
        with self._lock.lock:
            if table_key_id in self._entries:
                raise ValueError(f"table_key_id {shown(table_key_id)} is the id of an entry, not of a master key")
            kek_entry = newest_usable(self._below.get(table_key_id, ()), self._now_ms())
            if kek_entry is None:
                key_id, timestamp = self._fresh_id(), str(self._now_ms())
                kek, wrapped = make_kek(kms, table_key_id, key_id, length)
                kek_entry = EncryptedKey(key_id, wrapped, table_key_id, {KEY_TIMESTAMP: timestamp})
                self._proven.add((key_id, wrapped))
            else:
                kek = kept_kek(kms, kek_entry)
                self._prove(kek_entry, kek)
            new = EncryptedKey(self._fresh_id(), seal_entry(key_metadata, kek_entry, kek), kek_entry.key_id)
            if kek_entry.key_id not in self._entries:
                self._insert(kek_entry)
            self._insert(new)
            return new.key_id

    def _insert(self, entry: EncryptedKey) -> None:
        self._entries[entry.key_id] = entry
        self._below.setdefault(entry.encrypted_by_id, []).append(entry)

    def _now_ms(self) -> int:
        return int(self._clock() * 1000)

    def _fresh_id(self) -> str:
        while True:
            key_id = base64.b64encode(random_bytes(KEY_ID_BYTES)).decode("ascii")
            if key_id not in self._entries:
                return key_id

    def _prove(self, kek_entry: EncryptedKey, kek: Key) -> None:
        """Refuse a key that opens none of the existing entries: no reader could open what it seals."""
        name = (kek_entry.key_id, kek_entry.encrypted_key_metadata)
        if name in self._proven:
            return
        below = self._below.get(kek_entry.key_id, ())
        if below and not any(opens for _, opens in opening(kek_entry, kek, below)):
            raise AuthenticationError(
                f"key encryption key {shown(kek_entry.key_id)} opens none of its {len(below)} entries: "
                "wrong or rotated key, changed timestamp, or damaged entries"
            )
        self._proven.add(name)

    # -- changing ----------------------------------------------------------------------------------------------

    def rewrap(self, kms: Any, new_table_key_id: str, new_kms: Any = None, *, dry_run: bool = False) -> EncryptionKeys:
        """Move the hierarchy to another master key: only key encryption keys are wrapped again, no file changes.

        Parameters
        ----------
        kms : object
            Unwraps the key encryption keys, each by the master key that its entry names.
        new_table_key_id : str
            The new master key; the same id as before wraps by the newest version of that key.
        new_kms : object, optional
            Has the new master key; without it, `kms` has both.
        dry_run : bool
            Make all calls and checks, and return the entries as they were.

        Returns
        -------
        EncryptionKeys
            With a :class:`KeyRewrapReport` as ``report``. Put it into the metadata together with the table's property
            ``encryption.key-id``, which Iceberg Java uses to unwrap every key encryption key.

        Raises
        ------
        KeyAccessError
            A KMS refused, or did not unwrap a key that it had just wrapped.
        AuthenticationError
            A key encryption key, as the KMS unwrapped it, opens none of its entries. This object is unchanged after
            any error, and nothing half-done exists anywhere.
        """
        check_kms(kms)
        target = kms if new_kms is None else new_kms
        check_kms(target, "new_kms")
        _check_table_key_id(new_table_key_id, "new_table_key_id")
        entries = list(self)
        by_id = {entry.key_id: entry for entry in entries}
        if new_table_key_id in by_id:
            raise ValueError(f"new_table_key_id {shown(new_table_key_id)} is the id of an entry, not of a master key")
        result, rewrapped, unopened, untouched = [], [], [], []
        old: dict[str, None] = {}
        for entry in entries:
            by = entry.encrypted_by_id
            if by is None or by in by_id or (entry.timestamp is None and not self.below(entry.key_id)):
                result.append(entry)
                if by is None or by not in by_id:
                    untouched.append(entry.key_id)
                continue
            kek = kept_kek(kms, entry)
            opens = dict(opening(entry, kek, self.below(entry.key_id)))
            if opens and not any(opens.values()):
                raise AuthenticationError(
                    f"key encryption key {shown(entry.key_id)}, as {type(kms).__name__} unwrapped it under master key "
                    f"{shown(by)}, opens none of its {len(opens)} entries; nothing was changed"
                )
            unopened += [key_id for key_id, does in opens.items() if not does]
            wrapped = wrap_kek(target, kek, new_table_key_id, entry.key_id)
            result.append(replace(entry, encrypted_key_metadata=wrapped, encrypted_by_id=new_table_key_id))
            rewrapped.append(entry.key_id)
            old[by] = None
        report = KeyRewrapReport(
            tuple(rewrapped), tuple(old), new_table_key_id, tuple(unopened), tuple(untouched), bool(dry_run)
        )
        return self._derived(entries if dry_run else result, reported(report, target))

    def prune(self, metadata: Metadata, *, keep: Iterable[str] = ()) -> EncryptionKeys:
        """Drop the entries that nothing uses any more, such as those of expired snapshots.

        Parameters
        ----------
        metadata : mapping, JSON text, JSON bytes, or path
            The table's metadata, with all of its snapshots.
        keep : iterable of str
            Ids to keep in any case, such as those of commits under way that `metadata` does not know yet.

        Returns
        -------
        EncryptionKeys
            With a :class:`PruneReport` as ``report``. What stays: the entries that a snapshot names, or any other text
            in the metadata; those with fields or properties that this version does not know, or without an
            encrypted-by-id, because nobody here can judge what uses them; those in `keep`; and all that a kept entry
            is encrypted by. An unused key encryption key goes, however young: the next write makes one.

        Raises
        ------
        FormatError
            The metadata does not list all the snapshots that it names, so that keys in use would look unused.
        """
        document = Document(metadata)
        snapshots = document.snapshots()
        snapshots.check_complete()
        if isinstance(keep, str):
            raise TypeError("keep must be an iterable of ids, not one str")
        wanted = {key_id: None for key_id in snapshots.key_ids.values() if key_id is not None}
        entries = {entry.key_id: entry for entry in self}
        judged = closure(entries, {*wanted, *keep, *(document.texts_outside_the_list() & entries.keys())})
        odd = [entry.key_id for entry in entries.values() if has_unknown_properties(entry)]
        kept = closure(entries, {*judged, *odd})
        report = PruneReport(
            dropped=tuple(key_id for key_id in entries if key_id not in kept),
            kept=tuple(key_id for key_id in entries if key_id in kept),
            unjudged=tuple(key_id for key_id in entries if key_id in kept and key_id not in judged),
            missing=tuple(key_id for key_id in wanted if key_id not in entries),
        )
        return self._derived([entry for entry in entries.values() if entry.key_id in kept], report)

    def merge(self, other: EncryptionKeys) -> EncryptionKeys:
        """Unite two lists, such as those of two commits at once; no entry of either is lost or replaced.

        Returns
        -------
        EncryptionKeys
            This object's entries, then those that only `other` has; with a :class:`MergeReport` as ``report``.

        Raises
        ------
        FormatError
            Both have an entry of one id, and they differ; the message names it. One list may have been re-wrapped
            since: merge the lists from before, then re-wrap the result.
        """
        if not isinstance(other, EncryptionKeys):
            raise TypeError(f"other must be an EncryptionKeys, not {type(other).__name__}")
        entries = {entry.key_id: entry for entry in self}
        added, common = [], []
        for theirs in other:
            ours = entries.get(theirs.key_id)
            if ours is None:
                entries[theirs.key_id] = theirs
                added.append(theirs.key_id)
                continue
            # Iceberg Java drops fields that it does not know, so one side may have lost some.
            united = replace(ours, unknown={**theirs.unknown, **ours.unknown})
            if united != replace(theirs, unknown={**ours.unknown, **theirs.unknown}):
                raise FormatError(
                    f"both lists have an entry {shown(theirs.key_id)}, and the two differ; neither may be dropped "
                    "(one of the lists may have been re-wrapped to another master key since: merge the lists from "
                    "before, then re-wrap the result)"
                )
            entries[theirs.key_id] = united
            common.append(theirs.key_id)
        return self._derived(entries.values(), MergeReport(tuple(added), tuple(common)))

    def _derived(self, entries: Iterable[EncryptedKey], report: Report) -> EncryptionKeys:
        new = EncryptionKeys(entries, clock=self._clock)
        new.report = report
        return new

    # -- writing -----------------------------------------------------------------------------------------------

    def to_list(self) -> list[dict[str, Any]]:
        """The list as JSON values, for metadata that is a dict; fields in Iceberg Java's order."""
        return [entry.to_dict() for entry in self]

    def to_table_metadata(self, metadata: Metadata) -> dict[str, Any]:
        """Put the list into a table's metadata; return all fields, of which no other is changed.

        Parameters
        ----------
        metadata : mapping, JSON text, JSON bytes, or path
            The table's metadata. It is not changed.

        Raises
        ------
        KeyAccessError
            A snapshot in `metadata` names a key that `metadata` has and this list lacks, as after a commit by someone
            else: it would be lost. :meth:`merge` first.
        """
        document = Document(metadata)
        entries = list(self)
        had = {entry.key_id: entry for entry in document.entries()}
        has = {entry.key_id: entry for entry in entries}
        for snapshot_id, key_id in document.snapshots().key_ids.items():
            if key_id is None:
                continue
            lost = [each for each in closure(had, {key_id}) if each not in has]
            if lost:
                raise KeyAccessError(
                    f"snapshot {snapshot_id} (key-id {shown(key_id)}) needs entry {shown(lost[0])}, which the metadata "
                    "has and the new list lacks: it would be lost. Merge the metadata's own list first"
                )
        fields = dict(document.fields)
        if entries or ENCRYPTION_KEYS in fields:
            fields[ENCRYPTION_KEYS] = self.to_list()
        return fields


def _check_table_key_id(value: object, name: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if not 0 < len(value) <= MAX_TEXT:
        raise ValueError(f"{name} must be the id of a master key, got {len(value)} characters")
