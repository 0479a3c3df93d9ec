"""One run over an encrypted Iceberg table, on the driver: manifests read, everything else given to workers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing

from ags1.iceberg.catalogs.file import newest_metadata
from ags1.iceberg.catalogs.successor import METADATA_SUFFIX
from ags1.iceberg.file_io import LENGTH_POLICIES, EncryptedFileIO
from ags1.iceberg.locations import io_properties_of
from ags1.iceberg.table_verification import FileChecker, table_faults
from ags1.iceberg.table_walk import TableWalk, walk
from ags1.spark._engine import Engine, Outcome
from ags1.spark._errors import raise_for
from ags1.spark._iceberg_work import Opening, TableVerifying, outcome_of, unit_of
from ags1.spark._locations import locate
from ags1.spark._parquet_run import check_choice
from ags1.spark._results import Recorder, Result
from ags1.spark._sealing import Sealer, kms_client, kms_reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.iceberg.table_walk import Snapshots
    from ags1.spark._planning import Unit

__all__ = ["verify"]


def verify(
    spark: Any,
    location: str,
    kms: str,
    *,
    table_key_id: str | None,
    snapshot_id: Snapshots,
    properties: Mapping[str, str] | None,
    length_policy: str,
    allow_plaintext: bool,
    transfer_key_id: str | None,
    parallelism: int | None,
    threads: int,
    on_error: str,
    progress: Any,
) -> Result:
    """See :func:`ags1.spark.verify_table`."""
    check_choice(on_error, ("fail", "collect"), "on_error")
    check_choice(length_policy, LENGTH_POLICIES, "length_policy")
    url = kms_reference(kms)
    place = locate(location, spark)
    if properties is None:
        properties = io_properties_of(place.storage_options, strict=False)
    else:
        properties = io_properties_of(properties)
    if not location.endswith(METADATA_SUFFIX):
        location = newest_metadata(place.text, properties)
    given = tuple(sorted(properties.items()))
    opening = Opening(given, length_policy, allow_plaintext, table_key_id)
    file_io = opening.file_io(kms_client(url))
    recorder = Recorder(spark, "verify")
    started = time.monotonic()
    try:
        found = walk(location, file_io, snapshot_id)
        _record(recorder, _read_outcomes(found, file_io), on_error)
        if found.encrypted or allow_plaintext:
            seal = _sealer(found, url, table_key_id or found.table_key_id, transfer_key_id)
            work = TableVerifying(opening, threads)
            engine = Engine(spark, work, parallelism=parallelism, progress=progress, seal=seal)
            with closing(engine.run(_units(found))) as waves:
                for outcomes in waves:
                    _record(recorder, outcomes, on_error)
    finally:
        recorder.close(time.monotonic() - started)
    return recorder.result


def _sealer(found: TableWalk, kms: str, table_key_id: str | None, transfer_key_id: str | None) -> Sealer | None:
    """What seals the units; None if there is no key in any."""
    if all(file.key_bits is None for file in found.files.values()):
        return None
    if transfer_key_id is not None:
        return Sealer.create(kms, transfer_key_id)
    if table_key_id is None:
        raise ValueError(
            f"{found.location}: the table does not name its master key, and the keys of its files must travel under "
            "one: give transfer_key_id"
        )
    # Below a key encryption key of the table, as long as that is young enough: who may only unwrap can verify too.
    return Sealer.create(kms, table_key_id, found.keys.to_list())


def _units(found: TableWalk) -> Iterator[Unit]:
    for _, file in sorted(found.files.items()):
        yield unit_of(file)


def _read_outcomes(found: TableWalk, file_io: EncryptedFileIO) -> Iterator[Outcome]:
    """What is known once the manifests were read: of themselves, of the lists, and of the table as a whole."""
    for fault, _ in table_faults(found, file_io.allow_plaintext):
        yield Outcome(found.location, status="error", error=str(fault), kind=type(fault).__name__)
    if found.encrypted or file_io.allow_plaintext:
        checker = FileChecker(file_io, 1)
        for file in [*found.manifest_lists.values(), *found.manifests.values()]:
            yield outcome_of(file.path, file.size, checker.read(file), file.conflict)


def _record(recorder: Recorder, outcomes: Any, on_error: str) -> None:
    rows = list(outcomes)
    recorder.add(rows)
    failed = next((each for each in rows if each.status == "error"), None)
    if failed is not None and on_error == "fail":
        raise_for(failed, "verify", recorder.result, keeps=False)
