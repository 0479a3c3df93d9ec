"""Iceberg tables on a cluster: encrypted, decrypted, re-keyed and compacted in place, and verified.

    convert  driver   plan, manifests, one commit                            REFRESH TABLE in the session
             workers  data files and equality deletes, to new paths          pages are moved, not decoded
    compact  driver   plan, manifests, commits                               as `EncryptedTable.compact`
             workers  bins of data files, written again
    verify   driver   metadata.json  -->  manifest lists  -->  manifests     read whole, which authenticates each block
             workers  data files, delete files, deletion vectors             every module of Parquet, every AGS1 block

>>> from ags1.spark.iceberg import verify_table
>>> str(verify_table(spark, "s3a://lake/db/t/metadata/00007.metadata.json", kms="aws:"))  # doctest: +SKIP

Key metadata travel to the workers sealed under a key that the KMS wraps, and a worker asks it once.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

import ags1.iceberg as tables
from ags1.expected import Expected
from ags1.iceberg import CompactionOptions, CompactionReport, ConversionPlan, ConversionReport, EncryptedTable
from ags1.iceberg.catalogs import catalog_table
from ags1.iceberg.catalogs.file import newest_metadata
from ags1.iceberg.conversion.journal import Journal
from ags1.iceberg.conversion.work import FileResult, FileTask, Places
from ags1.iceberg.files.file_io import EncryptedFileIO, KnownFile, file_io_at
from ags1.iceberg.keys.encryption_keys import EncryptionKeys
from ags1.iceberg.maintenance.compaction import compact
from ags1.iceberg.maintenance.rewriting import Bin, RewriteJob, Rewritten
from ags1.iceberg.metadata.locations import io_properties_of
from ags1.iceberg.metadata.metadata_document import is_metadata_file
from ags1.iceberg.walk.table_verification import FileChecker, table_findings
from ags1.iceberg.walk.table_walk import Snapshots, TableWalk, walk
from ags1.iceberg.writing.change import WriteTarget
from ags1.iceberg.writing.metadata import TableMetadata
from ags1.spark.engine.catalogs import find_table
from ags1.spark.engine.iceberg_work import (
    Job,
    TableCompacting,
    TableMoving,
    TableVerifying,
    rewritten_of,
    unit_of,
    unit_of_bin,
)
from ags1.spark.engine.locations import locate
from ags1.spark.engine.planning import Unit
from ags1.spark.engine.progress import phase_lines
from ags1.spark.engine.results import Recorder, Result, outcome_of, raise_for
from ags1.spark.engine.runner import Engine, Outcome, check_arguments
from ags1.spark.engine.sealing import Sealer, kms_client, kms_reference
from ags1.spark.engine.unsealed import has_secrets, without_secrets
from ags1.support.arguments import at_least_one, one_of, spelled
from ags1.support.reports import VerifyReport

# Names of the arguments that both the function and its plan have.
_OF_PLANS = {
    "encrypt": ("key_id", "data_key_length"),
    "decrypt": (),
    "rekey": ("key_id", "data_keys", "data_key_length"),
}


def encrypt_table(
    spark: Any,
    table: Any,
    *,
    kms: str,
    key_id: str,
    data_key_length: int | None = None,
    steps: Collection[str] = ("enable", "convert"),
    parallelism: int | None = None,
    threads: int = 1,
    progress: Any = True,
    dry_run: bool = False,
) -> ConversionReport | ConversionPlan:
    """Encrypt an Iceberg table in place on a cluster, without decoding a page of its Parquet files.

    As :func:`ags1.iceberg.encrypt_table`, but tasks move the files. The driver reads the manifests and each file's
    footer, writes new manifests and commits; until the commit the table is unchanged. If the run is killed, run it
    again: it reuses the files in the journal below the table's metadata.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    table : str, tuple, EncryptedTable or CatalogTable
        ``"catalog.db.table"`` as in the session's SQL; the catalog is found in ``spark.sql.catalog.*``, and is of the
        type hive, rest, glue or jdbc. REFRESH TABLE then lets the session read the new state. Or a pair of a PyIceberg
        catalog, or its name, and an identifier, or the result of :func:`ags1.iceberg.load_table`.
    kms : str
        URL of the key management service, as :func:`ags1.kms.load` takes it. Executors need the right to unwrap only.
    key_id, data_key_length, steps
        As for :func:`ags1.iceberg.encrypt_table`.
    parallelism : int, optional
        Tasks; by default some for each core of the cluster.
    threads : int
        Threads for each file.
    progress : bool or callable
        Whether to show how far it is; or called as ``progress(done, total)`` with stored bytes.
    dry_run : bool
        Return the plan, and write nothing.

    Returns
    -------
    ConversionReport or ConversionPlan
        It lists what is not encrypted yet.

    Raises
    ------
    TypeError, ValueError
        A wrong argument; a KMS that is not a URL; a table that the session does not know; another master key.
    UnsupportedError
        A type of catalog that is not supported, or cannot have an encrypted table.
    KeyAccessError
        The KMS refused the driver or a worker.
    Ags1Error, OSError
        As for :func:`ags1.iceberg.encrypt_table`. The table is unchanged.
    """
    options = {"key_id": key_id, "data_key_length": data_key_length, "steps": steps, "dry_run": dry_run}
    return convert("encrypt", spark, table, kms, options, parallelism, threads, progress)


def decrypt_table(
    spark: Any,
    table: Any,
    *,
    kms: str,
    expire: bool = False,
    parallelism: int | None = None,
    threads: int = 1,
    progress: Any = True,
    dry_run: bool = False,
) -> ConversionReport | ConversionPlan:
    """Make a plaintext table of an encrypted one, in place on a cluster.

    Parameters
    ----------
    spark, table, kms, parallelism, threads, progress, dry_run
        As for :func:`encrypt_table`.
    expire : bool
        As for :func:`ags1.iceberg.decrypt_table`.

    Raises
    ------
    Ags1Error, OSError, TypeError, ValueError
        As for :func:`encrypt_table`; the table is not encrypted.
    """
    options = {"expire": expire, "dry_run": dry_run}
    return convert("decrypt", spark, table, kms, options, parallelism, threads, progress)


def rekey_table(
    spark: Any,
    table: Any,
    *,
    kms: str,
    key_id: str | None = None,
    data_key_length: int | None = None,
    expire: bool = False,
    parallelism: int | None = None,
    threads: int = 1,
    progress: Any = True,
    dry_run: bool = False,
) -> ConversionReport | ConversionPlan:
    """Give all files of a table new keys, and with `key_id` another master key, on a cluster.

    Parameters
    ----------
    spark, table, kms, parallelism, threads, progress, dry_run
        As for :func:`encrypt_table`.
    key_id, data_key_length, expire
        As for :func:`ags1.iceberg.rekey_table`, which alone changes a master key and no file.

    Raises
    ------
    Ags1Error, OSError, TypeError, ValueError
        As for :func:`encrypt_table`; the table is not encrypted.
    """
    options = {"key_id": key_id, "data_keys": True, "data_key_length": data_key_length, "expire": expire}
    return convert("rekey", spark, table, kms, options | {"dry_run": dry_run}, parallelism, threads, progress)


def compact_table(
    spark: Any,
    table: Any,
    *,
    kms: str,
    target_bytes: int | None = None,
    where: Any = None,
    sort_by: Sequence[str] | None = None,
    min_input_files: int = 5,
    rewrite_all: bool = False,
    ref: str = "main",
    snapshot_properties: Mapping[str, str] | None = None,
    parallelism: int | None = None,
    progress: Any = True,
    dry_run: bool = False,
) -> CompactionReport:
    """Write small files, and files with deletes, again as fewer files with the same rows, on a cluster.

    As :meth:`ags1.iceberg.EncryptedTable.compact`, but tasks write the files. What a task that died has written is
    removed; what a killed run leaves, :func:`ags1.iceberg.clean` removes. What is committed before that stays.

    Parameters
    ----------
    spark, kms, parallelism, progress
        As for :func:`encrypt_table`.
    table : str, tuple or EncryptedTable
        As for :func:`encrypt_table`. How an EncryptedTable was opened holds for the tasks too.
    target_bytes, where, sort_by, min_input_files, rewrite_all, ref, snapshot_properties
        As for :meth:`ags1.iceberg.EncryptedTable.compact`.
    dry_run : bool
        Only report what would be done.

    Returns
    -------
    CompactionReport

    Raises
    ------
    TypeError, ValueError, UnsupportedError, KeyAccessError
        As for :func:`encrypt_table`.
    Ags1Error, OSError
        As for :meth:`ags1.iceberg.EncryptedTable.compact`. What was not committed is as it was.
    """
    session = check_arguments(spark, parallelism)
    url = kms_reference(kms)
    catalog, identifier, properties, name = _place(spark, table)
    if identifier is not None:
        table = tables.load_table(catalog, identifier, kms=kms_client(url), properties=properties)
    if not isinstance(table, EncryptedTable):
        raise TypeError(f"table must be a name, a pair or an EncryptedTable, not {type(table).__name__}")
    target = WriteTarget(table, ref, snapshot_properties)
    options = CompactionOptions(target_bytes, where, sort_by, min_input_files, rewrite_all, dry_run)
    if dry_run:
        return compact(target, options)
    report = compact(target, options, perform=_Compacting(spark, table, url, parallelism, progress, session.slots()))
    if name is not None:
        _refresh(spark, name)
    return report


class _Compacting:
    """Writes bins as tasks, which get them sealed below a key encryption key of the table."""

    def __init__(
        self, spark: Any, table: EncryptedTable, kms: str, parallelism: int | None, progress: Any, slots: int
    ) -> None:
        self.at_once = slots
        self._spark, self._table, self._kms = spark, table, kms
        self._parallelism, self._progress = parallelism, progress

    def __call__(self, job: RewriteJob, bins: list[tuple[Bin, list[KnownFile]]]) -> Iterable[Rewritten]:
        document = self._table.document
        key_id = TableMetadata(document.fields).key_id
        assert key_id is not None
        seal = Sealer.create(self._kms, key_id, EncryptionKeys(document.entries()).to_list())
        units = [unit_of_bin(each, known) for each, known in bins]
        work, made = TableCompacting(job, seal.opener), dict[str, Rewritten]()
        engine = Engine(self._spark, work, parallelism=self._parallelism, progress=self._progress, seal=seal)
        with closing(engine.run(sorted(units, key=lambda each: each.path))) as waves:
            for outcome in chain.from_iterable(waves):
                if outcome.status != "ok":
                    raise_for(outcome, "compact", None, keeps=False)
                made[outcome.path] = rewritten_of(outcome, seal)
        return [made[each.path] for each in units]


def verify_table(
    spark: Any,
    metadata_location: str | tuple[Any, Any],
    *,
    kms: str,
    table_key_id: str | None = None,
    snapshot_id: Snapshots = "all",
    properties: Mapping[str, str] | None = None,
    length_policy: str = "trusted",
    allow_plaintext: bool = False,
    allowed_locations: Sequence[str] | None = None,
    transfer_key_id: str | None = None,
    parallelism: int | None = None,
    threads: int = 1,
    on_error: str = "collect",
    progress: Any = True,
) -> Result:
    """Authenticate every block and every module of the files of an Iceberg table, each file once, on a cluster.

    Manifest lists and manifests are read by the driver, which has to know all files at once: about a kilobyte of its
    memory for each. Everything else is read by the workers.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    metadata_location : str or tuple
        A pair of a PyIceberg catalog, or its name, and an identifier. Or path or URL of the table's ``metadata.json``;
        of the table's directory, the newest one is taken, by its number: whoever can write there chooses which that is.
    kms : str
        URL of the key management service, as :func:`ags1.kms.load` takes it.
    table_key_id, length_policy, allow_plaintext, allowed_locations
        As for :func:`ags1.iceberg.open_table`.
    snapshot_id : int, "all" or None
        Files of one snapshot, of all, or of the current one.
    properties : mapping, optional
        For PyIceberg's FileIO. Without them a table in an object store is read as Spark's configuration says.
    transfer_key_id : str, optional
        Master key under which keys of files travel to the workers; by default the table's own, below a key encryption
        key that the table has.
    parallelism : int, optional
        Tasks; by default some for each core of the cluster.
    threads : int
        Threads for each file.
    on_error : {"fail", "collect"}
        "collect" checks all files and reports; "fail" raises the first error.
    progress : bool
        Whether to show how far it is.

    Returns
    -------
    Result
        A row for each file, with the path that the table has for it. `plaintext_length` is the stored length, too. A
        plaintext file is "not protected", also where it was allowed; a row that is "ok" and has an error tells of
        contradictions in a file that authenticates. What concerns the whole table is in the row of its metadata file.

    Raises
    ------
    TypeError, ValueError
        A wrong argument, no such snapshot; a KMS that is no URL.
    FormatError, OSError
        The metadata file cannot be read, or there is none in the directory.
    KeyAccessError
        The KMS does not unwrap, or does not wrap where that is needed, the key for the way to the workers.
    PermissionError
        There are credentials of the storage, and neither the table nor `transfer_key_id` names a master key to seal
        them under, nor has the environment other ones.
    Ags1Error, OSError
        With ``on_error="fail"``, the first error.
    """
    one_of(on_error, ("fail", "collect"), "on_error")
    expected = Expected(table_key_id, None, allow_plaintext, length_policy, allowed_locations)
    url = kms_reference(kms)
    client = kms_client(url)
    if isinstance(metadata_location, tuple):
        table = catalog_table(*_pair(metadata_location), storage_options=properties, expected=expected)
        state = table.load()
        metadata_location = state.metadata_location
        file_io = file_io_at(state, table.io_properties, client, table.expected)
    else:
        place = locate(metadata_location, spark)
        if properties is None:
            properties = io_properties_of(place.storage_options, strict=False)
        else:
            properties = io_properties_of(properties)
        if not is_metadata_file(metadata_location):
            metadata_location = newest_metadata(place.text, properties)
        file_io = EncryptedFileIO(properties, kms=client, expected=expected.within(properties))
    recorder = Recorder(spark, "verify", on_error, keeps=False, failures=("error",))
    phase_lines("verify", progress)("reading the manifests", 0, None)
    try:
        found = walk(metadata_location, file_io, snapshot_id)
        recorder.add(_read_outcomes(found, file_io))
        if found.encrypted or allow_plaintext:
            expected = replace(file_io.expected, allowed_locations=file_io.locations.roots)
            given = dict(file_io.properties)
            seal = _sealer(found, url, expected.table_key_id or found.table_key_id, transfer_key_id, has_secrets(given))
            given = without_secrets(given) if seal is None else given
            work = TableVerifying(given, metadata_location, expected, threads)
            engine = Engine(spark, work, parallelism=parallelism, progress=progress, seal=seal)
            with closing(engine.run(unit_of(file) for _, file in sorted(found.files.items()))) as waves:
                for outcomes in waves:
                    recorder.add(outcomes)
    finally:
        recorder.close()
    return recorder.result


def _sealer(
    found: TableWalk, kms: str, table_key_id: str | None, transfer_key_id: str | None, has_secrets: bool
) -> Sealer | None:
    """What seals the work and its units; None if there is no key in any, and nothing to seal or to seal with."""
    if transfer_key_id is not None:
        return Sealer.create(kms, transfer_key_id)
    if all(file.key_bits is None for file in found.files.values()) and (table_key_id is None or not has_secrets):
        return None
    if table_key_id is None:
        raise ValueError(
            f"{found.location}: the table does not name its master key, and the keys of its files must travel under "
            f"one: give {spelled('transfer_key_id')}"
        )
    # Below a key encryption key of the table, as long as that is young enough: who may only unwrap can verify too.
    return Sealer.create(kms, table_key_id, found.keys.to_list())


def _read_outcomes(found: TableWalk, file_io: EncryptedFileIO) -> Iterator[Outcome]:
    """What is known once the manifests were read: of themselves, of the lists, and of the table as a whole."""
    for finding in table_findings(found, file_io.expected.allow_plaintext):
        report = VerifyReport(found.location)
        report.add(finding)
        yield outcome_of(found.location, 0, report)
    if found.encrypted or file_io.expected.allow_plaintext:
        checker = FileChecker(file_io, 1)
        for file in [*found.manifest_lists.values(), *found.manifests.values()]:
            yield outcome_of(file.path, file.size, checker.read(file))


def convert(
    change: str,
    spark: Any,
    table: Any,
    kms: str,
    options: dict[str, Any],
    parallelism: int | None,
    threads: int,
    progress: Any,
) -> ConversionReport | ConversionPlan:
    """See :func:`ags1.spark.encrypt_table`, :func:`ags1.spark.decrypt_table` and :func:`ags1.spark.rekey_table`."""
    check_arguments(spark, parallelism)
    at_least_one(threads, "threads")
    url = kms_reference(kms)
    client = kms_client(url)
    catalog, identifier, properties, name = _place(spark, table)
    if identifier is not None:
        table = catalog_table(catalog, identifier, storage_options=properties)
    if options.pop("dry_run"):
        chosen = {each: options[each] for each in _OF_PLANS[change]}
        expire = options.get("expire", False) or "expire" in options.get("steps", ())
        return tables.plan_conversion(table, kms=client, decrypt=change == "decrypt", expire=expire, **chosen)

    def perform(tasks: list[FileTask], journal: Journal | None, places: Places) -> Iterator[FileResult]:
        seal = None if journal is None else Sealer.create(url, journal.key.key_id)
        if seal is None:
            places = replace(places, source=without_secrets(places.source), target=without_secrets(places.target))
        # One object, which is pickled once for each Spark task.
        job = Job(places, journal)
        units = [Unit(each.source, each.length, (each, job)) for each in sorted(tasks, key=lambda each: each.source)]
        engine = Engine(spark, TableMoving(change, url, threads), parallelism=parallelism, progress=progress, seal=seal)
        with closing(engine.run(units)) as waves:
            for outcomes in waves:
                for each in outcomes:
                    if each.status != "ok":
                        raise_for(each, change, None, keeps=False)
                    yield each.detail

    report: ConversionReport = getattr(tables, f"{change}_table")(table, kms=client, perform=perform, **options)
    if name is not None:
        _refresh(spark, name)
    return report


def _place(spark: Any, table: Any) -> tuple[Any, Any, Mapping[str, str] | None, str | None]:
    """The catalog and identifier of a table, properties of its storage, and its name in SQL; None if it is no name."""
    if isinstance(table, str):
        found = find_table(spark, table)
        return found.catalog, found.identifier, found.properties, found.sql
    if isinstance(table, tuple):
        return *_pair(table), None, None
    return None, None, None, None


def _pair(table: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(table) != 2:
        raise ValueError("give a table as 'catalog.db.name', or as a pair (catalog, identifier)")
    return table


def _refresh(spark: Any, name: str) -> None:
    try:
        spark.sql(f"REFRESH TABLE {name}")
    except Exception as error:
        # The table is changed, and whoever is told of a failure would do it again.
        text = str(error).partition("\n")[0]
        warnings.warn(
            f"the table is changed, but this session could not refresh {name}, and may read its old state: {text}",
            stacklevel=4,
        )
