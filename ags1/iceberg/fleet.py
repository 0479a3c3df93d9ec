"""One operation on many tables of a catalog: encrypt, re-key, rewrap, verify, audit.

    names of the catalog that match --> a few tables at once --> what is to be done is read from the table itself
                                        one throttled KMS    --> one report

Nothing is kept between runs: a run that was killed is begun again, and finds in each table's metadata, and by opening
it, what is still to be done. So nobody can forge that something is done who cannot change the tables themselves.
"""

from __future__ import annotations

import fnmatch
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyiceberg.exceptions import NoSuchNamespaceError

from ags1.core.blocks import usable_cpus
from ags1.iceberg.catalogs import CatalogTable, TableState, catalog_table, loaded
from ags1.iceberg.conversion.expiry import expire_snapshots
from ags1.iceberg.conversion.old_keys import NOT_COVERED, OldKeyReport, what_old_keys_open
from ags1.iceberg.conversion.operations import encrypt_table, plan_conversion, rekey_table
from ags1.iceberg.files.file_io import client_of
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.metadata_document import claims_encryption
from ags1.iceberg.tables import EncryptedTable, load_table
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.kms import KeyManagementClient, ServiceRefusal
from ags1.kms.asking import checks_keys, reported
from ags1.support.parallel import in_parallel
from ags1.support.reports import Report
from ags1.support.words import counted, printable

T = TypeVar("T")

DONE, NOT_OK, ALREADY, UNPROVED, WOULD, SKIPPED, FAILED, NOT_BEGUN = (
    "done", "not ok", "already done", "not proved", "would be done", "skipped", "failed", "not begun"
)  # fmt: skip
_WILDCARDS = frozenset("*?[")
_LISTED = 20
# Tables whose KMS failed one after the other: the next ones would too.
_GIVE_UP = 3
_AT_ONCE = 4
# Of an OldKeyReport: one, many, and what follows from it.
_OPENED = (
    ("snapshots", "snapshot", "snapshots", "`ags1 iceberg expire` removes those that no branch or tag has"),
    (
        *("removed", "snapshot that is no longer in its table", "snapshots that are no longer in their tables"),
        "`ags1 iceberg expire` removes what a killed run has left of them, and `ags1 iceberg clean` the rest",
    ),
    (
        "journals",
        "journal of a killed conversion",
        "journals of killed conversions",
        "`ags1 iceberg clean` removes them",
    ),
    (
        *("metadata_files", "old metadata file", "old metadata files"),
        (
            "each has a key that an old master key unwraps. If no other line names something that is open, that key "
            "opens nothing, and nothing has to be done"
        ),
    ),
)


@dataclass
class FleetTable(Report):
    """What became of one table.

    Attributes
    ----------
    table : str
    outcome : {"done", "not ok", "already done", "not proved", "would be done", "skipped", "failed", "not begun"}
        "not ok": what the operation found, or left, is in `report`.
        "not proved": the table is under the new master key, and nobody can say whether it was re-keyed or only
        rewrapped, because old keys could not be tried. "skipped": the operation is not for this table. "not begun": the
        KMS had failed for too many before.
    report : Report or None
        Of the operation on this table, or its plan.
    old_keys : OldKeyReport or None
        What other master keys open now.
    error : str or None
        Why it failed, or was skipped.
    """

    table: str
    outcome: str
    report: Report | None = None
    old_keys: OldKeyReport | None = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing failed, and the report of the table is good."""
        return self.outcome not in (FAILED, NOT_BEGUN) and (self.report is None or self.report.ok)


@dataclass
class FleetReport(Report):
    """What became of all tables, and what old master keys still open.

    Attributes
    ----------
    operation : {"encrypt", "rekey", "rewrap", "verify", "audit"}
    pattern : str
    key_id : str or None
        The master key that the tables were to be under.
    tables : list of FleetTable
    kms_calls : int
        Successful calls of the KMS.
    """

    operation: str
    pattern: str
    key_id: str | None = None
    tables: list[FleetTable] = field(default_factory=list)
    kms_calls: int = 0

    @property
    def ok(self) -> bool:
        """Whether there are tables, and none failed; after a re-key, also whether old keys open nothing current."""
        good = bool(self.tables) and all(each.ok for each in self.tables)
        tried = [each.old_keys for each in self.tables if each.old_keys is not None and each.outcome != WOULD]
        return good and (self.operation != "rekey" or all(each.ok for each in tried))

    @property
    def is_proved(self) -> bool:
        """Whether all old keys that the tables name could be tried."""
        return all(each.is_proved for each in self._tried())

    def having(self, outcome: str) -> list[FleetTable]:
        """Return the tables with an outcome."""
        return [each for each in self.tables if each.outcome == outcome]

    def _tried(self) -> list[OldKeyReport]:
        return [each.old_keys for each in self.tables if each.old_keys is not None]

    def _text(self) -> str:
        counts = [
            f"{len(found):,} {outcome}"
            for outcome in (DONE, NOT_OK, ALREADY, UNPROVED, WOULD, SKIPPED, FAILED, NOT_BEGUN)
            if (found := self.having(outcome))
        ]
        key = f", master key {self.key_id}" if self.key_id else ""
        outcomes = ", ".join(counts) or "NOT ok, because the catalog has no table of such a name"
        lines = [f"{self.operation} of {counted(len(self.tables), 'table')} ({self.pattern}){key}: {outcomes}"]
        for outcome in (FAILED, NOT_BEGUN, SKIPPED):
            lines += _some([f"{outcome}: {each.table}: {each.error}" for each in self.having(outcome)])
        bad = [each for each in self.tables if each.report is not None and not each.report.ok]
        lines += _some([f"NOT ok: {each.table}: {_fault(each.report)}" for each in bad])
        if self.operation == "encrypt":
            lines += self._of_old_snapshots()
        return "\n".join(lines + (self._of_old_keys() if self._tried() else []))

    def _of_old_snapshots(self) -> list[str]:
        counts = {each.table: count for each in self.tables if (count := getattr(each.report, "maybe_plaintext", 0))}
        if not counts:
            return []
        old = f"{counted(sum(counts.values()), 'old snapshot')} of {_named(list(counts))}"
        return [f"NOT all encrypted yet: {old} may be plaintext; `expire=True` removes them"]

    def _of_old_keys(self) -> list[str]:
        tried = self._tried()
        current = [each for each in tried if not each.ok]
        lines = _some([str(each).splitlines()[0] for each in current])
        if current:
            lines.append("only new keys of the files end that: `ags1 iceberg rekey`, with another master key")
        else:
            lines.append("old keys open nothing of the branches and tags, as far as they could be tried")
        for name, one, many, then in _OPENED:
            having = [each for each in tried if getattr(each, name)]
            if having:
                count = counted(sum(len(getattr(each, name)) for each in having), one, many)
                lines.append(f"old keys open {count} in {counted(len(having), 'table')}: {then}")
        refused = Counter(key_id for report in tried for key_id in report.refused)
        lines += [
            f"NOT tried, because the KMS refused it: {printable(key_id)}, of {counted(count, 'table')}. That proves "
            "nothing: enable it, and run this again. If it was destroyed, say so with `destroyed_key_ids`"
            for key_id, count in refused.items()
        ]
        destroyed = Counter(key_id for report in tried for key_id in report.destroyed)
        lines += [
            f"destroyed, as you say: {printable(key_id)}, of {counted(count, 'table')}. The KMS refused it, so it "
            "opens nothing unless somebody has a copy of it"
            for key_id, count in destroyed.items()
        ]
        unread = sum(len(each.unread) for each in tried)
        if unread:
            lines.append(f"NOT read: {counted(unread, 'metadata file')}")
        return [*lines, NOT_COVERED, self._verdict()]

    def _verdict(self) -> str:
        """What may be done with the old keys now."""
        tried = self._tried()
        old = {key_id for each in tried for key_id in each.opened}
        if not all(each.ok and not (each.snapshots or each.removed or each.journals) for each in tried):
            return (
                "so do NOT delete the old keys yet: do what the lines above say, and look again: `ags1 iceberg audit`"
            )
        looked_at = all(each.old_keys is not None or each.outcome == SKIPPED for each in self.tables)
        if not (self.is_proved and looked_at):
            return "so do NOT delete the old keys yet: not every table, key and metadata file could be looked at"
        now = {key_id: [each.table for each in tried if each.key_id == key_id] for key_id in sorted(old)}
        needed = "; ".join(
            f"{key_id} is the master key of {_named(names)} now" for key_id, names in now.items() if names
        )
        free = ", ".join(key_id for key_id, names in now.items() if not names)
        if free:
            found = (
                f"so the old master keys ({printable(free)}) may be disabled now, as far as these tables go, and "
                "deleted if nobody needs what was not looked at"
            )
            return found + (f"; but NOT all: {printable(needed)}" if needed else "")
        return (
            f"so do NOT delete them: {printable(needed)}"
            if needed
            else "so these tables need no other master key than their own"
        )


class Fleet:
    """Many tables of one catalog.

    Parameters
    ----------
    catalog : pyiceberg.catalog.Catalog or str
        As for :func:`load_table`.
    pattern : str
        Names of tables, such as ``"db.*"`` or ``"*.events"``. ``*``, ``?`` and ``[...]`` stand for characters of one
        part of a name.
    kms : object or str
        As for :func:`load_table`.
    at_once : int
        Number of tables at once.
    kms_calls_per_second : float, optional
        The KMS is called no more often.
    destroyed_key_ids : iterable of str
        Old master keys that were destroyed. They are tried like others, and their refusal then counts as a proof.
    properties, allowed_locations
        As for :func:`load_table`.

    Raises
    ------
    ValueError
        `pattern` is no pattern of names with a namespace.

    Notes
    -----
    A failing table does not stop the others; the report names it, and another run does what is left. A table that is
    finished is found to be so by reading and opening it, not by a record. An unwrapped or wrapped key costs one
    successful call of the KMS in a process.

    Examples
    --------
    >>> report = Fleet(load_catalog("lake"), "db.*", kms="aws:").rekey("alias/lake-2027", expire=True)
    >>> print(report)
    """

    def __init__(
        self,
        catalog: Any,
        pattern: str,
        *,
        kms: Any,
        at_once: int = _AT_ONCE,
        kms_calls_per_second: float | None = None,
        destroyed_key_ids: Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        allowed_locations: Iterable[str] | None = None,
    ) -> None:
        catalog = loaded(catalog)
        parts = pattern.split(".")
        if len(parts) < 2 or not all(parts):
            raise ValueError(f"{pattern!r} is no pattern of names: write NAMESPACE.TABLE, such as 'db.*'")
        if at_once < 1:
            raise ValueError(f"at_once must be at least 1, got {at_once}")
        self.pattern = pattern
        self._catalog, self._parts, self._at_once = catalog, parts, at_once
        self._kms = _ThrottledKms(client_of(kms), kms_calls_per_second)
        self._options: dict[str, Any] = {
            "properties": properties,
            "allowed_locations": None if allowed_locations is None else tuple(allowed_locations),
        }
        self._destroyed = frozenset(destroyed_key_ids)
        self._own = threading.local()

    def tables(self) -> list[str]:
        """Return the names of the tables that match, in order; none, if the catalog has no such namespace."""
        try:
            return self._matching()
        except NoSuchNamespaceError:
            return []

    def _matching(self) -> list[str]:
        spaces: list[tuple[str, ...]] = [()]
        *above, last = self._parts
        for part in above:
            if _WILDCARDS.isdisjoint(part):
                spaces = [(*each, part) for each in spaces]
            else:
                spaces = [
                    found
                    for each in spaces
                    for found in self._catalog.list_namespaces(each)
                    if len(found) == len(each) + 1 and fnmatch.fnmatchcase(found[-1], part)
                ]
        names = (name for each in spaces for name in self._catalog.list_tables(each))
        return sorted(".".join(name) for name in names if fnmatch.fnmatchcase(name[-1], last))

    def encrypt(
        self,
        key_id: str,
        *,
        expire: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> FleetReport:
        """Encrypt the tables, or what others have added to them as plaintext.

        Parameters
        ----------
        key_id : str
            The master key.
        expire : bool
            Remove the snapshots that no branch or tag has, with their plaintext files. A table that the catalog has
            under several names that match is left alone.
        dry_run : bool
            Only plan.
        progress : callable, optional
            Called as ``progress(done, total)`` with numbers of tables.
        **options
            `data_key_length`, `statistics` and `partition_paths` of :func:`encrypt_table`.
        """
        steps = ("enable", "convert", "expire") if expire else ("enable", "convert")

        def work(table: EncryptedTable) -> FleetTable:
            if dry_run:
                return _planned(table, expire, key_id=key_id, **options)
            report = encrypt_table(table, key_id=key_id, steps=steps, threads=self._threads, **options)
            finished = report.expired is not None and bool(report.expired.paths)
            changed = finished or report.metadata_location != table.metadata_location
            return FleetTable("", DONE if changed else ALREADY, report)

        return self._run("encrypt", key_id, work, progress, removes=expire)

    def rekey(
        self,
        new_key_id: str,
        *,
        expire: bool = False,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
        **options: Any,
    ) -> FleetReport:
        """Give every file of the tables a new key, under another master key, and try what the old ones still open.

        Keep the old master keys enabled until this has ended and its report is read: nothing can be tried without them.

        Parameters
        ----------
        new_key_id : str
            The new master key. A table that is under it already, and of whose branches and tags no other key opens
            anything, is finished.
        expire : bool
            Remove the snapshots that no branch or tag has, which the old keys open. A table that the catalog has under
            several names that match is left alone.
        dry_run, progress
            As for :meth:`encrypt`.
        **options
            `data_key_length`, `statistics` and `partition_paths` of :func:`rekey_table`.
        """

        def work(table: EncryptedTable) -> FleetTable:
            state = _catalog_table(table).load()
            if not claims_encryption(state.document.fields):
                return FleetTable("", SKIPPED, error="it is not encrypted")
            found = None
            if TableMetadata(state.document.fields).key_id == new_key_id:
                found = self._old_keys(table, state)
                if found.ok and not (expire and (found.snapshots or found.removed)):
                    return FleetTable("", ALREADY if found.is_proved else UNPROVED, old_keys=found)
            if dry_run:
                planned = _planned(table, expire, key_id=new_key_id, data_keys=True, **options)
                planned.old_keys = found
                return planned
            report: Report
            if found is not None and found.ok:
                # Killed between the two commits, or behind the second.
                report = expire_snapshots(table, statistics=options.get("statistics", "drop"))
            else:
                report = rekey_table(
                    table, key_id=new_key_id, data_keys=True, expire=expire, threads=self._threads, **options
                )
            return FleetTable("", DONE, report, self._old_keys(table))

        return self._run("rekey", new_key_id, work, progress, removes=expire)

    def rewrap(
        self, new_key_id: str, *, dry_run: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> FleetReport:
        """Put the tables under another master key; no file changes, so old metadata files and the old key open it all.

        The parameters are those of :meth:`rekey`.
        """

        def work(table: EncryptedTable) -> FleetTable:
            state = _catalog_table(table).load()
            if not claims_encryption(state.document.fields):
                return FleetTable("", SKIPPED, error="it is not encrypted")
            if _is_under(state, new_key_id):
                return FleetTable("", ALREADY, old_keys=self._old_keys(table, state))
            if dry_run:
                return FleetTable("", WOULD)
            report = rekey_table(table, key_id=new_key_id)
            return FleetTable("", DONE, report, self._old_keys(table))

        return self._run("rewrap", new_key_id, work, progress)

    def verify(
        self,
        snapshot_id: Any = "all",
        *,
        allow_plaintext: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> FleetReport:
        """Authenticate every file of the tables; `snapshot_id` is "all", or None for the current snapshots."""

        def work(table: EncryptedTable) -> FleetTable:
            return FleetTable("", DONE, table.verify(snapshot_id, threads=self._threads))

        return self._run("verify", None, work, progress, allow_plaintext=allow_plaintext)

    def audit(self, snapshot_id: Any = "all", *, progress: Callable[[int, int], None] | None = None) -> FleetReport:
        """Find faults in the encryption of the tables, and try what old keys still open."""

        def work(table: EncryptedTable) -> FleetTable:
            return FleetTable("", DONE, table.audit(snapshot_id), self._old_keys(table))

        return self._run("audit", None, work, progress)

    # -- inside --------------------------------------------------------------------------------------------------

    def _old_keys(self, table: EncryptedTable, state: TableState | None = None) -> OldKeyReport:
        return what_old_keys_open(_catalog_table(table), self._kms, state, self._destroyed)

    @property
    def _threads(self) -> int:
        return max(1, usable_cpus() // self._at_once)

    def _run(
        self,
        operation: str,
        key_id: str | None,
        work: Callable[[EncryptedTable], FleetTable],
        progress: Callable[[int, int], None] | None,
        *,
        removes: bool = False,
        **options: Any,
    ) -> FleetReport:
        report, calls = reported(FleetReport(operation, self.pattern, key_id), self._kms), self._kms.calls
        names = self.tables()
        twice = self._named_twice(names) if removes else {}
        refused = 0

        def each(name: str) -> FleetTable:
            nonlocal refused
            if name in twice:
                return FleetTable(name, FAILED, error=twice[name])
            if refused >= _GIVE_UP:
                return FleetTable(name, NOT_BEGUN, error="the KMS failed for the tables before it")
            try:
                made = work(load_table(self._catalog_here(), name, kms=self._kms, **self._options, **options))
                if made.report is not None and not made.report.ok and made.outcome == DONE:
                    made.outcome = NOT_OK
                refused = 0
            except Exception as error:
                # A catalog's package has errors of its own, and the other tables are to be done in any case.
                # Two threads may count one failure less: then one more table is tried.
                refused = refused + 1 if isinstance(error, ServiceRefusal) else 0
                made = FleetTable("", FAILED, error=f"{type(error).__name__}: {error}")
            made.table = name
            return made

        for made in in_parallel(each, names, self._at_once):
            report.tables.append(made)
            if progress is not None:
                progress(len(report.tables), len(names))
        report.kms_calls = self._kms.calls - calls
        return report

    def _named_twice(self, names: list[str]) -> dict[str, str]:
        """Why tables of several names are left alone: snapshots that are old to one name are current to another."""

        def identity(name: str) -> tuple[str, str] | None:
            try:
                found = catalog_table(
                    self._catalog_here(),
                    name,
                    storage_options=self._options["properties"],
                    allowed_locations=self._options["allowed_locations"],
                )
                fields = found.load().document.fields
                return str(fields["table-uuid"]), str(fields["location"]).rstrip("/")
            except Exception:
                # What cannot be loaded is not changed, and is told of then.
                return None

        named: dict[tuple[str, str] | None, list[str]] = {}
        for name, found in zip(names, in_parallel(identity, names, self._at_once), strict=True):
            named.setdefault(found, []).append(name)
        named.pop(None, None)
        return {
            name: f"{' and '.join(same)} are one table, and to expire snapshots under one name would remove files that "
            "the other needs: drop all names but one from the catalog, without their files"
            for same in named.values()
            if len(same) > 1
            for name in same
        }

    def _catalog_here(self) -> Any:
        """The catalog for this thread: Hive's has one connection, and a thread of its own may not share it."""
        if type(self._catalog).__name__ != "HiveCatalog":
            return self._catalog
        if not hasattr(self._own, "catalog"):
            self._own.catalog = type(self._catalog)(self._catalog.name, **self._catalog.properties)
        return self._own.catalog


def _catalog_table(table: EncryptedTable) -> CatalogTable:
    assert table.catalog_table is not None
    return table.catalog_table


def _planned(table: EncryptedTable, expire: bool, **options: Any) -> FleetTable:
    plan = plan_conversion(table, expire=expire, **options)
    return FleetTable("", ALREADY if plan.is_empty else WOULD, plan)


def _fault(report: Any) -> str:
    """What is wrong with a table, in one line: the first failure or finding, and how many more there are."""
    found = getattr(report, "failures", None) or [
        each for each in getattr(report, "findings", ()) if each.severity == "error"
    ]
    if not found:
        return "; ".join(line for line in str(report).splitlines()[1:] if "NOT" in line) or str(report).splitlines()[0]
    more = getattr(report, "failure_count", 0) or report.severities["error"]
    return str(found[0]) + (f" (and {more - 1:,} more)" if more > 1 else "")


def _is_under(state: TableState, key_id: str) -> bool:
    """Whether a table, and all its key encryption keys, are under a master key."""
    keys = EncryptionKeys(state.document.entries())
    above = {each.encrypted_by_id for each in keys} - set(keys.key_ids)
    return TableMetadata(state.document.fields).key_id == key_id and above <= {key_id}


def _named(tables: list[str]) -> str:
    names = ", ".join([*map(printable, tables[:3]), *(["..."] if len(tables) > 3 else [])])
    return f"{counted(len(tables), 'table')} ({names})"


def _some(lines: list[str]) -> list[str]:
    shown = [printable(each) for each in lines[:_LISTED]]
    return shown + ([f"and {len(lines) - _LISTED:,} more"] if len(lines) > _LISTED else [])


class _ThrottledKms(KeyManagementClient):
    """A client in front of another one: no more calls than wanted, each key once, and temporary faults again."""

    def __init__(self, client: Any, per_second: float | None, **common: Any) -> None:
        super().__init__(**common)
        if per_second is not None and not per_second > 0:
            raise ValueError(f"kms_calls_per_second must be positive, got {per_second}")
        self.service = getattr(client, "service", type(client).__name__)
        self.checks_keys = checks_keys(client)
        self.calls = 0
        self._client, self._pause = client, 0.0 if per_second is None else 1 / per_second
        self._next = 0.0
        self._wrapped: dict[tuple[str, bytes], bytes] = {}
        self._turn = threading.Lock()

    def supports_key_generation(self) -> bool:
        can = getattr(self._client, "supports_key_generation", False)
        return bool(can() if callable(can) else can)

    def _is_transient(self, error: Exception) -> bool:
        # Our own clients have tried again already, and raise KeyAccessError.
        return isinstance(error, OSError)

    def _wrap(self, key: bytes, key_id: str) -> bytes:
        # A commit that lost against another one wraps the same keys again.
        name = key_id, hashlib.sha256(key).digest()
        if name not in self._wrapped:
            self._wrapped[name] = self._counted(lambda: bytes(self._client.wrap_key(key, key_id)))
        return self._wrapped[name]

    def _unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        return self._counted(lambda: bytes(self._client.unwrap_key(wrapped, key_id)))

    def _generate(self, key_id: str) -> tuple[bytes, bytes]:
        made = self._counted(lambda: self._client.generate_key(key_id))
        return (made.key, made.wrapped_key) if hasattr(made, "wrapped_key") else tuple(made)

    def _counted(self, call: Callable[[], T]) -> T:
        if self._pause:
            with self._turn:
                now = self._key_cache.clock()
                begin = max(now, self._next)
                self._next = begin + self._pause
            self._sleep(begin - now)
        made = call()
        with self._turn:
            self.calls += 1
        return made
