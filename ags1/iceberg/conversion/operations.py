"""The public functions: encrypt_table, decrypt_table, rekey_table, relocate_table, and their plans."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ags1.errors import AlreadyEncryptedError, UnsupportedError
from ags1.iceberg.catalogs import CatalogTable, TableState, catalog_table
from ags1.iceberg.conversion.changes import DECRYPT, ENCRYPT, REKEY, RELOCATE, ConversionGoal
from ags1.iceberg.conversion.engine import Conversion, Perform
from ags1.iceberg.conversion.expiry import (
    DROP,
    expire_snapshots,
    keeps_statistics,
    parts_of,
    refuse_shared_files,
    remove_statistics,
)
from ags1.iceberg.conversion.old_keys import what_old_keys_open
from ags1.iceberg.conversion.reports import ConversionPlan, ConversionReport
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.metadata.locations import below, io_properties_of, moved
from ags1.iceberg.metadata.metadata_document import claims_encryption
from ags1.iceberg.writing.commit import PATIENT, TableFiles, commit
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.storage import TreeDirectories, directory_mode
from ags1.streams.files import Progress
from ags1.support.arguments import spelled

REWRAPPED = (
    "no file has a new key: an older metadata file, which stays, and the old master key still open all of them; "
    "new data keys (`ags1 iceberg rekey`) end that"
)
STEPS = ("enable", "convert", "expire")
"""The steps of :func:`encrypt_table`, in this order."""


def encrypt_table(
    table: Any,
    *,
    key_id: str,
    kms: Any = None,
    data_key_length: int | None = None,
    steps: Collection[str] = ("enable", "convert"),
    statistics: str = "drop",
    partition_paths: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    perform: Perform | None = None,
) -> ConversionReport:
    """Encrypt a table in place, without decoding a page of its Parquet files.

    Every branch and tag gets one new snapshot with new files; row ids, sequence numbers and metrics stay. A table of
    format version 2 is upgraded to version 3. Run it again to convert plaintext files that others added, or to finish
    the work of a killed run.

    Parameters
    ----------
    table : EncryptedTable or CatalogTable
        From :func:`load_table`.
    key_id : str
        The master key.
    kms : object or str, optional
        A client, or a URL for :func:`ags1.kms.load`; by default the table's.
    data_key_length : int, optional
        Length of the data keys in bytes: 16, 24 or 32.
    steps : collection of str
        "enable": new files are encrypted, and existing files stay plaintext, which readers must then allow. "convert":
        encrypt the files of all branches and tags. "expire": remove the snapshots that no branch or tag has, with their
        files. Without "expire", the plaintext files stay until their snapshots are expired.
    statistics : {"drop", "keep"}
        What "convert" does with the table's statistics files. They are never encrypted, and tell of the data: counts,
        distinct values and sketches of columns, partition values.
    partition_paths : bool
        Put the new files into directories that are named after their partition values, as the old ones are: everybody
        who can list the storage reads these. By default the new paths show nothing.
    threads : int, optional
        Number of files converted at once; by default two for each usable CPU.
    progress : callable, optional
        Called as ``progress(done, total)`` with stored bytes, from any thread, never by two at once. An exception from
        it stops the work.
    perform : callable, optional
        Moves the files outside this process; see :class:`~ags1.iceberg.conversion.engine.Conversion`.

    Returns
    -------
    ConversionReport
        It lists what is not encrypted yet.

    Raises
    ------
    UnsupportedError
        The catalog cannot carry an encrypted table; format version 1; files of a format that Iceberg cannot encrypt.
    FormatError, FileNotFoundError
        A file is missing, or is not what its manifest says. Nothing was written.
    ValueError
        The table is under another master key: see :func:`rekey_table`.
    ConflictError
        Another writer committed first at each of several attempts.
    KeyAccessError, AuthenticationError, OSError
        The KMS, the storage or the catalog failed. The table is as it was.
    """
    wanted, keeps = _steps(steps), keeps_statistics(statistics)
    opened, client = parts_of(table, kms)
    change = ConversionGoal(ENCRYPT, key_id, data_key_length, keeps_statistics=keeps, partition_paths=partition_paths)
    state = _loaded(opened, expire="expire" in wanted)
    _refuse_other_key(state, key_id)
    opened.check_can_encrypt()
    if "convert" in wanted:
        report = Conversion(opened, client, change, threads=threads, progress=progress, perform=perform).run(state)
    else:
        report = _changed_metadata(opened, client, change)
        metadata = TableMetadata(state.document.fields)
        report.unconverted = metadata.with_plaintext({each["snapshot-id"] for each in metadata.refs.values()})
    return _finished(report, opened, client, statistics, converted="convert" in wanted, expire="expire" in wanted)


def decrypt_table(
    table: Any,
    *,
    kms: Any = None,
    expire: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    perform: Perform | None = None,
) -> ConversionReport:
    """Decrypt a table in place. It stays at format version 3.

    Stop its writers first: a change that Iceberg Java prepared before, and commits after this, cannot be read, because
    its key is nowhere. Then go back to the snapshot before it, and make the change again.

    Parameters
    ----------
    table, kms, threads, progress, perform
        As for :func:`encrypt_table`.
    expire : bool
        Remove the snapshots that no branch or tag has, with their encrypted files.

    Raises
    ------
    ValueError
        The table is not encrypted.
    Ags1Error, OSError
        As for :func:`encrypt_table`.
    """
    opened, client = parts_of(table, kms)
    state = _loaded(opened, expire=expire)
    change = _decryption(state, opened.name)
    report = Conversion(opened, client, change, threads=threads, progress=progress, perform=perform).run(state)
    return _finished(report, opened, client, DROP, converted=False, expire=expire)


def rekey_table(
    table: Any,
    *,
    key_id: str | None = None,
    data_keys: bool = False,
    data_key_length: int | None = None,
    kms: Any = None,
    expire: bool = False,
    statistics: str = "drop",
    partition_paths: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    perform: Perform | None = None,
) -> ConversionReport:
    """Change the master key of a table, or the keys of all its files.

    On the command line, ``ags1 iceberg rewrap`` does the first, and ``ags1 iceberg rekey`` the second: `data_keys`.

    Parameters
    ----------
    table, kms, threads, progress, perform
        As for :func:`encrypt_table`.
    key_id : str, optional
        The new master key; by default the current one.
    data_keys : bool
        Encrypt every file with a new key, under a new key encryption key. Use this after a key leaked. Without it, only
        key encryption keys are wrapped again, in one commit, and file keys stay the same. A killed run is resumed, with
        the keys that it made, if the new master key is another one. Under the table's own master key it starts again,
        because a journal could be forged with leaked keys.
    data_key_length : int, optional
        Length of the new data keys in bytes: 16, 24 or 32.
    expire : bool
        Remove the snapshots that no branch or tag has, with their files and key entries. The old keys open data until
        this is done; and without `data_keys` also afterwards, for whoever has an older metadata file.
    statistics, partition_paths
        As for :func:`encrypt_table`, of the change with `data_keys`.

    Raises
    ------
    ValueError
        The table is not encrypted, or no change was requested.
    Ags1Error, OSError
        As for :func:`encrypt_table`.
    """
    keeps = keeps_statistics(statistics)
    opened, client = parts_of(table, kms)
    state = _loaded(opened, expire=expire)
    old = _encrypted(state, opened.name)
    if data_key_length is not None and not data_keys:
        raise ValueError(f"{spelled('data_key_length')} is for new data keys: give {spelled('data_keys', True)}")
    if key_id is None and not data_keys:
        raise ValueError(f"give another master key as {spelled('key_id')}, or {spelled('data_keys', True)}, or both")
    opened.check_can_encrypt()
    change = ConversionGoal(
        REKEY, key_id or old, data_key_length, keeps_statistics=keeps, partition_paths=partition_paths
    )
    conversion = Conversion(opened, client, change, threads=threads, progress=progress, perform=perform)
    if data_keys:
        report = conversion.run(state)
    else:
        report = _changed_metadata(opened, client, change)
        report.notes.append(REWRAPPED)
    report = _finished(report, opened, client, statistics, converted=data_keys, expire=expire)
    if data_keys:
        report.old_keys = what_old_keys_open(opened, client, None if expire else conversion.state)
    return report


def plan_conversion(
    table: Any,
    *,
    key_id: str | None = None,
    decrypt: bool = False,
    data_keys: bool = False,
    data_key_length: int | None = None,
    target_location: str | None = None,
    statistics: str = "drop",
    partition_paths: bool = False,
    expire: bool = False,
    kms: Any = None,
    catalog: Any = None,
    identifier: Any = None,
) -> ConversionPlan:
    """Return what a conversion would do, and what prevents it. Nothing is written.

    The list of files of all branches and tags is held in memory, about 1 KiB per file.

    Parameters
    ----------
    table, kms
        As for :func:`encrypt_table`.
    key_id : str, optional
        Of :func:`encrypt_table` or, with `data_keys`, of :func:`rekey_table`.
    decrypt : bool
        Plan :func:`decrypt_table`.
    data_keys, data_key_length
        Plan :func:`rekey_table`.
    target_location, catalog, identifier : optional
        Plan :func:`relocate_table`.
    statistics, partition_paths, expire
        As for the function that is planned; `expire` is the step of this name of :func:`encrypt_table`.

    Raises
    ------
    ValueError
        The table is not encrypted, or is already, or no change was requested.
    FileExistsError
        There is a table where the new one is to be.
    Ags1Error, OSError
        The table cannot be read. Faults of single files are in the plan.
    """
    opened, client = parts_of(table, kms, changes=target_location is None)
    state = opened.load()
    keeps = keeps_statistics(statistics)
    if target_location is not None:
        change = _relocation(opened, state, target_location, key_id)
    elif decrypt:
        change = _decryption(state, opened.name)
    elif data_keys:
        old = _encrypted(state, opened.name)
        change = ConversionGoal(REKEY, key_id or old, data_key_length)
    else:
        if key_id is None:
            raise ValueError(
                f"give {spelled('key_id')}, {spelled('decrypt', True)}, {spelled('data_keys', True)} or "
                f"{spelled('target_location')}"
            )
        _refuse_other_key(state, key_id)
        change = ConversionGoal(ENCRYPT, key_id, data_key_length)
    change = replace(change, keeps_statistics=keeps, partition_paths=partition_paths)
    conversion = Conversion(opened, client, change)
    if target_location is not None:
        _new_table(conversion, catalog, identifier)
    plan = conversion.plan(conversion.look(state))
    if target_location is None:
        before, after = TableMetadata(state.document.fields), TableMetadata(state.document.fields)
        change.apply(after)
        plan.expires, plan.settings = expire, after.fields != before.fields
    try:
        if expire:
            refuse_shared_files(TableMetadata(state.document.fields), opened.name)
        if change.key_id is not None and target_location is None:
            opened.check_can_encrypt()
    except UnsupportedError as error:
        plan.problems.append(str(error))
    return plan


def relocate_table(
    table: Any,
    target_location: str,
    catalog: Any = None,
    identifier: Any = None,
    *,
    key_id: str | None = None,
    kms: Any = None,
    partition_paths: bool = False,
    target_properties: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> ConversionReport:
    """Copy a table to another location, with its current branches and tags.

    Encrypted data files are copied byte for byte and keep their keys; plaintext ones are encrypted if there is a
    `key_id`. Manifests, manifest lists and Puffin files are new, with new keys under a new key encryption key. History
    and statistics files are not copied. The source stays as it is. The next run of the same kind resumes a killed one;
    an abandoned run leaves files at `target_location` that no table names.

    Parameters
    ----------
    table, kms, threads, progress
        As for :func:`encrypt_table`.
    target_location : str
        The new table's directory.
    catalog, identifier : optional
        Where the new table is created, as :func:`load_table` takes them; by default a bare metadata file below
        `target_location`.
    key_id : str, optional
        The new table's master key; by default the source's.
    partition_paths : bool
        As for :func:`encrypt_table`.
    target_properties : mapping, optional
        Properties for the new location, as `properties` of :func:`load_table`; by default those of the old one.

    Raises
    ------
    FileExistsError
        The catalog has a table of this name, or the directory has one. Nothing was written; or, if another writer made
        it meanwhile, no table.
    Ags1Error, OSError
        As for :func:`encrypt_table`.
    """
    opened, client = parts_of(table, kms, changes=False)
    state = opened.load()
    change = replace(_relocation(opened, state, target_location, key_id), partition_paths=partition_paths)
    there = None if target_properties is None else io_properties_of(target_properties)
    conversion = Conversion(opened, client, change, threads=threads, progress=progress, target_properties=there)
    created = _new_table(conversion, catalog, identifier)
    view = conversion.look(state)
    conversion.plan(view)
    conversion.refuse()
    _make_directories(conversion, TableMetadata(state.document.fields).location)
    conversion.move(view)
    metadata = TableMetadata(state.document.fields)
    files = TableFiles(metadata, conversion.places.of_target)
    refs = dict(metadata.refs)
    metadata.fields |= {
        "table-uuid": str(uuid.uuid4()), "current-snapshot-id": None, "snapshots": [], "refs": {},
        "snapshot-log": [], "metadata-log": [], "statistics": [], "partition-statistics": [],
    }  # fmt: skip
    try:
        made = conversion.write(view, metadata, files)
        for name, number in made.items():
            metadata.refs[name] = {**refs[name], "snapshot-id": number}
        created.create(metadata.fields)
    except BaseException as error:
        # After an OSError the catalog may have created the table.
        if not isinstance(error, OSError):
            files.discard()
        raise
    new = created.load()
    conversion.report.snapshots = made
    conversion.prove(new, created)
    conversion.forget()
    return conversion.finished(new)


def _make_directories(conversion: Conversion, old: str) -> None:
    """Make the directories of a table at its new location, with the modes of the old ones."""
    places, new = conversion.places, conversion.change.location
    for name in ("", "/data", "/metadata"):
        mode = directory_mode(places.of_source(f"{old}{name}"))
        if mode is not None:
            TreeDirectories(places.of_target(f"{new}{name}"), mode).close()


def _new_table(conversion: Conversion, catalog: Any, identifier: Any) -> CatalogTable:
    """The table that a relocation makes. FileExistsError: its name is taken, or the directory has a table already."""
    location = conversion.change.location
    assert location is not None
    options = io_properties_of(conversion.places.target, strict=False)
    found = catalog_table(None, location, storage_options=options)
    # Two tables in one directory would remove each other's files.
    found.refuse_taken()
    if catalog is not None:
        found = catalog_table(catalog, identifier, storage_options=options)
        found.refuse_taken()
    return found


def _steps(steps: Collection[str]) -> set[str]:
    wanted = {steps} if isinstance(steps, str) else set(steps)
    unknown = wanted - set(STEPS)
    if unknown or not wanted:
        raise ValueError(f"steps must be of {', '.join(STEPS)}; got {', '.join(sorted(unknown)) or 'none'}")
    return wanted


def _loaded(table: CatalogTable, *, expire: bool) -> TableState:
    """Load a table, and refuse one whose snapshots are to be expired and must not be."""
    state = table.load()
    if expire:
        refuse_shared_files(TableMetadata(state.document.fields), table.name)
    return state


def _decryption(state: TableState, name: str) -> ConversionGoal:
    if not claims_encryption(state.document.fields):
        raise ValueError(f"{name} is not encrypted")
    return ConversionGoal(DECRYPT, None)


def _encrypted(state: TableState, name: str) -> str:
    """The table's master key."""
    found = TableMetadata(state.document.fields).key_id
    if found is None:
        raise ValueError(f"{name} is not encrypted: use {spelled('encrypt_table')}")
    return found


def _relocation(table: CatalogTable, state: TableState, target_location: str, key_id: str | None) -> ConversionGoal:
    metadata = TableMetadata(state.document.fields)
    location = target_location.rstrip("/")
    # A copy may go back to where the table was.
    if not location or below(f"{location}/x", moved(metadata.location, table.expected.moved_from)) == "x":
        raise ValueError(f"{target_location} is the directory of the table itself: name another one")
    return ConversionGoal(RELOCATE, key_id or metadata.key_id, None, location)


def _refuse_other_key(state: TableState, key_id: str) -> None:
    found = TableMetadata(state.document.fields).key_id
    if found is not None and found != key_id:
        raise AlreadyEncryptedError(
            f"the table is encrypted under master key {found!r} already: use {spelled('rekey_table')} for another"
        )


def _changed_metadata(table: CatalogTable, kms: Any, change: ConversionGoal) -> ConversionReport:
    """Change the metadata, and wrap its key encryption keys again, without touching a data file."""
    conversion = Conversion(table, kms, change)

    def attempt(state: TableState, metadata: TableMetadata, files: TableFiles) -> bool:
        conversion.report.attempts += 1
        if change.name == REKEY and change.key_id is not None:
            keys = EncryptionKeys.from_table_metadata(metadata.fields)
            metadata.fields["encryption-keys"] = keys.rewrap(kms, change.key_id).to_list()
        before = dict(metadata.properties)
        metadata.check_upgrade()
        change.apply(metadata)
        return change.name == REKEY or before != metadata.properties

    return conversion.finished(commit(table, conversion.places.of_target, attempt, retries=PATIENT))


def _finished(
    report: ConversionReport, table: CatalogTable, kms: Any, statistics: str, *, converted: bool, expire: bool
) -> ConversionReport:
    """Remove what the commit has dropped, and expire old snapshots, if that is wanted."""
    if converted and statistics == DROP:
        remove_statistics(table, kms, report.dropped_statistics)
    if not expire:
        return report
    report.expired = expire_snapshots(table, kms=kms, statistics=statistics)
    state = table.load()
    report.metadata_location, report.metadata_hash = state.metadata_location, state.document.hash
    report.remaining, report.plaintext, report.statistics = [], [], report.expired.kept_statistics
    return report
