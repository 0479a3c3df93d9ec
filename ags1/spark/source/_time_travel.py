"""The version of a dataset that a read names: by its number, or by when it was the last one."""

from __future__ import annotations

import datetime
import errno

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.versions import kept_versions
from ags1.spark.engine._locations import locate
from ags1.spark.engine._sealing import kms_client, kms_reference
from ags1.spark.source._options import SourceOptions
from ags1.spark.source._zones import zone_of


def version_as_of(options: SourceOptions) -> int | None:
    """The number of the version that the options name, None for the last one.

    FileNotFoundError: no version is so old, or those that were have been expired. AuthenticationError: a version that
    was looked at is not authentic.
    """
    if options.version_as_of >= 0:
        return options.version_as_of
    if not options.timestamp_as_of:
        return None
    moment = datetime.datetime.fromisoformat(options.timestamp_as_of)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone_of(options.time_zone))
    location = locate(options.path[0], options.session)
    client = kms_client(kms_reference(options.kms))
    for kept in kept_versions(location):
        if kept.error is not None:
            raise kept.error
        assert kept.version is not None
        kept.version.authenticate(DatasetKeys(kept.version.key, client, location.text), location.text)
        if not kept.is_committed:
            # A late writer takes the number of an expired version, and whatever is older has been expired before it.
            break
        if kept.version.created_ms <= moment.timestamp() * 1000:
            return kept.number
    text = f"no version of this dataset is kept that was there at {options.timestamp_as_of}"
    raise FileNotFoundError(errno.ENOENT, text, location.text)
