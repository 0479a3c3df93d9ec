"""What needs no task: another master key for a dataset, and tidying up after runs that were killed."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence

from ags1.dataset._control import CONTROL
from ags1.dataset._update import clean as clean_control
from ags1.dataset.reports import RewrapReport
from ags1.spark._locations import Location, locate
from ags1.spark._sealing import kms_client, kms_reference
from ags1.spark.decryption import open_dataset
from ags1.spark.encryption import store_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["clean", "rewrap"]


def rewrap(
    spark: Any,
    target: str | os.PathLike[str],
    new_key_id: str,
    *,
    kms: str,
    new_kms: str | None = None,
    dry_run: bool = False,
) -> RewrapReport:
    """Put a dataset under another master key. Only wrapped keys are written: no file changes, and no task runs.

    Parameters
    ----------
    spark : SparkSession or None
        Whose configuration says how the storage is reached.
    target : path or URL
        The dataset.
    new_key_id : str
        The new master key.
    kms, new_kms : str
        The services that have the old and the new key, as :func:`ags1.kms.load` takes them; one if it has both.
    dry_run : bool
        Make every call to the services, and write nothing.

    Returns
    -------
    RewrapReport

    Raises
    ------
    KeyAccessError
        A service refused, or did not answer the same key again. The dataset is as it was.
    BlockingIOError
        Another process is changing this dataset.
    """
    kms = kms_reference(kms)
    renewed = None if new_kms is None else kms_client(kms_reference(new_kms, "new_kms"))
    with open_dataset(locate(target, spark), kms, None, None) as dataset:
        return dataset.rewrap(new_key_id, renewed, dry_run=dry_run)


def clean(spark: Any, target: str | os.PathLike[str]) -> list[str]:
    """Throw away what interrupted runs left at a target: their records, what they staged, uploads that they began.

    The dataset itself, if there is one, stays as it is. Writes of Spark's data source that still go on are thrown away
    too, and their commits will say so: nothing tells them from those of a job that died. Run it when nobody is going to
    go on with an interrupted run; going on with one costs less than beginning anew.

    Parameters
    ----------
    spark : SparkSession or None
        Whose configuration says how the storage is reached.
    target : path or URL
        The dataset.

    Returns
    -------
    list of str
        What was removed.

    Raises
    ------
    FileNotFoundError
        There is neither a dataset nor anything of an interrupted run.
    BlockingIOError
        A run is changing this dataset now.
    """
    location = locate(target, spark)
    began = datetime.datetime.now(datetime.timezone.utc)
    removed: Sequence[str] = [f"{CONTROL}/{name}" for name in clean_control(store_of(location))]
    return [*removed, *_abort_uploads(location, began)]


def _abort_uploads(location: Location, before: datetime.datetime) -> list[str]:
    """End multipart uploads below the location: unseen, they are kept and paid for. Later ones are of another run."""
    if location.protocol != "s3":
        return []
    file_system = location.file_system()
    bucket, _, prefix = location.root.partition("/")
    ended = []
    marker: dict[str, str] = {}
    while True:
        found = file_system.call_s3(
            "list_multipart_uploads", Bucket=bucket, Prefix=f"{prefix}/" if prefix else "", **marker
        )
        for each in found.get("Uploads", ()):
            if each.get("Initiated", before) > before:
                continue
            file_system.call_s3("abort_multipart_upload", Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])
            ended.append(f"the upload of {each['Key']}")
        if not found.get("IsTruncated"):
            return ended
        marker = {"KeyMarker": found["NextKeyMarker"], "UploadIdMarker": found["NextUploadIdMarker"]}
