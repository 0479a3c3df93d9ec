"""What is possible where the last version of a dataset is damaged: list the others, and restore one by its number.

Pins and expectations hold for what is still known: see :func:`ags1.dataset.damage.damaged_last`.
"""

from __future__ import annotations

from dataclasses import replace

from ags1.dataset._arguments import kms_client
from ags1.dataset._dataset import Dataset
from ags1.dataset._opening import open
from ags1.dataset.damage import DamagedLast, authenticated, damaged_last, kept_with_errors
from ags1.dataset.pins import ATTEMPTS, Access, ExpectedVersion, Pins
from ags1.dataset.versions import Kept, read_latest, read_named
from ags1.errors import AuthenticationError, FormatError
from ags1.storage import Location
from ags1.support.typing import Any


def _access(target: Any, client: Any, expected: ExpectedVersion, pins: Pins | None, attempts: int = ATTEMPTS) -> Access:
    pins = pins or Pins()
    # The caller names the new master key.
    return Access.of(
        Location(target), client, pins if expected.key_id is None else pins.under(expected.key_id), attempts
    )


def _damaged(access: Access, expected: ExpectedVersion) -> DamagedLast | None:
    return damaged_last(access, lambda found: expected.check(found, access.location))


def open_to_restore(
    target: Any,
    kms: Any,
    version: int,
    expected: ExpectedVersion,
    *,
    pins: Pins | None = None,
    attempts: int = ATTEMPTS,
) -> Dataset:
    """Open a dataset for :meth:`Dataset.restore` of a version; this one is shown if the last version is damaged.

    Raises as :func:`ags1.dataset.open`.
    """
    try:
        return open(
            target, kms, expected_version=expected.version, expected_uuid=expected.uuid,
            expected_digest=expected.digest, key_id=expected.key_id, pins=pins, attempts=attempts,
        )  # fmt: skip
    except (FormatError, AuthenticationError, OSError):
        with kms_client(kms) as (client, close):
            access = _access(target, client, expected, pins, attempts)
            last = _damaged(access, expected)
            if last is None:
                raise
            found = read_named(access.location, version)
            # A change goes on under the master key that the dataset has now.
            pins = replace(access.pins, uuid=last.base.uuid, key_id=last.base.key_id)
            return Dataset(replace(access, pins=pins), found, last.keys, None, close)


def find_damage(target: Any, kms: Any, expected: ExpectedVersion, pins: Pins | None = None) -> DamagedLast | None:
    """The last version if it is damaged, and is what is expected; else None."""
    with kms_client(kms) as (client, close):
        found = _damaged(_access(target, client, expected, pins), expected)
    if close is not None:
        close()
    return found


def list_versions(target: Any, kms: Any, expected: ExpectedVersion, pins: Pins | None = None) -> list[Kept]:
    """All versions that exist, ascending; those that cannot be read have an error."""
    with kms_client(kms) as (client, close):
        access = _access(target, client, expected, pins)
        last = _damaged(access, expected)
        if last is not None:
            keys = last.keys
        else:
            newest = read_latest(access.location)
            assert newest is not None
            keys = authenticated(access.location, newest, client)
        found = kept_with_errors(access.location, keys)
    if close is not None:
        close()
    return found
