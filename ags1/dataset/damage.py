"""A version that is damaged: told from a key service that refuses and from a dataset that was replaced.

A key of the dataset opens all versions, before and after a rewrap. So an older version that is authentic shows whether
a later one is. Nothing goes back to an older version by itself: only `restore` does, to the one that its caller names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ags1.dataset.keys import DatasetKeys
from ags1.dataset.manifests import Manifests, open_root
from ags1.dataset.names import version_name
from ags1.dataset.pins import Access
from ags1.dataset.versions import (
    MAX_ANCESTORS,
    MAX_BYTES,
    Kept,
    Version,
    damaged,
    kept_versions,
    latest_number,
    numbers,
    read_version,
)
from ags1.errors import Ags1Error, AuthenticationError, KeyAccessError
from ags1.storage import Location, read_whole
from ags1.support.reports import DAMAGED, ERROR, NOT_CHECKED, Finding, VerifyReport
from ags1.support.typing import Any


def authenticated(
    location: Location, version: Version, kms: Any, check: Callable[[], object] = lambda: None
) -> DatasetKeys:
    """Check what the caller expects of a version, then its tag; return the keys of the dataset.

    If it is damaged, the error names its file and says what to do, also where a damaged field failed the check or was
    refused by the KMS.
    """
    keys = DatasetKeys(version.key, kms, location.shown)
    try:
        check()
    except AuthenticationError as error:
        # A version under another master key than the pinned one is a KeyAccessError: no service is asked for that key.
        try:
            version.authenticate(keys, "it")
        except KeyAccessError:
            raise error from None
        except Ags1Error as own:
            raise damaged(location, version.version, own) from None
        raise
    try:
        version.authenticate(keys, "it")
    except KeyAccessError as error:
        if error.holds_for_all:
            raise
        other = _other_keys(location, version, kms)
        if other is None or _is_authentic(version, other[0]):
            raise type(error)(f"{error}; the wrapped key is in {version_name(version.version)}") from error
        fault = AuthenticationError(f"it is not authentic under the key of version {other[1]}")
        raise damaged(location, version.version, fault) from None
    except Ags1Error as error:
        raise damaged(location, version.version, error) from None
    return keys


def _is_authentic(version: Version, keys: DatasetKeys) -> bool:
    try:
        version.authenticate(keys, "it")
    except AuthenticationError:
        return False
    return True


def _others(location: Location, number: int, kms: Any) -> Iterator[tuple[Version, DatasetKeys]]:
    """Versions but this one that are authentic by themselves, the newest first. A key is tried once."""
    keys: dict[str, DatasetKeys | None] = {}
    for each in reversed(numbers(location)):
        if each == number:
            continue
        try:
            version = read_version(location, each)
        except (Ags1Error, OSError):
            continue
        name = repr(version.key)
        if name not in keys:
            made = DatasetKeys(version.key, kms, location.shown)
            try:
                made.key()
            except Ags1Error as error:
                if getattr(error, "holds_for_all", False):
                    return
            keys[name] = made if made.is_open else None
        found = keys[name]
        if found is not None and _is_authentic(version, found):
            yield version, found


def newest_keys(location: Location, kms: Any) -> DatasetKeys | None:
    """The keys of the newest version that is authentic by itself; None if there is none, or the KMS refuses."""
    return next((keys for _, keys in _others(location, 0, kms)), None)


def _other_keys(location: Location, version: Version, kms: Any) -> tuple[DatasetKeys, int] | None:
    found = next(_others(location, version.version, kms), None)
    return None if found is None else (found[1], found[0].version)


@dataclass(frozen=True)
class DamagedLast:
    """The last version, which is damaged.

    Attributes
    ----------
    base : Version
        What a version after it follows: itself if its own file is authentic, and only manifests are damaged. Otherwise
        its number, the digest of its file as it is, and the rest of the newest version before it that is authentic.
    error : Ags1Error or OSError
        It names the damaged file, and says what to do.
    keys : DatasetKeys
        Of the dataset.
    """

    base: Version
    error: Ags1Error | OSError
    keys: DatasetKeys

    def report(self, subject: str) -> VerifyReport:
        """What a verification can say: that no file was verified, and why."""
        report = VerifyReport(subject)
        report.checked, report.facts = {"files": 0, "bytes": 0}, {"version": self.base.version}
        report.add(damage_finding(self.base.version, self.error))
        return report


def damaged_last(access: Access, check: Callable[[Version], object] = lambda found: None) -> DamagedLast | None:
    """The last version if it is damaged; None if nothing is wrong with it, or there is no dataset.

    The pins of `access` and `check` hold for it. If its file is damaged, they hold for what is still known: its number,
    and the UUID and the master key of the newest authentic version before it, but not the digest of a pin.
    KeyAccessError, or the error for the damage: no version before it is authentic.
    """
    location = access.location
    try:
        number = latest_number(location)
    except OSError:
        # A store that cannot be listed: the caller has the error for what it read.
        return None
    if not number:
        return None
    last: Version | None = None
    error: Ags1Error | OSError
    try:
        last = read_version(location, number)
        keys = authenticated(location, last, access.kms)
    except (KeyAccessError, FileNotFoundError):
        raise
    except (Ags1Error, OSError) as fault:
        error = fault if last is not None else damaged(location, number, fault)
    else:
        access.pins.check(last, location)
        check(last)
        manifests = Manifests(location, last.uuid, version=number)
        try:
            for _ in manifests.object_names(open_root(manifests, last, keys), set()):
                pass
        except (Ags1Error, OSError) as fault:
            return DamagedLast(last, fault, keys)
        return None
    found = next(_others(location, number, access.kms), None)
    if found is None:
        raise error
    older, keys = found
    # Of the versions between nobody knows whether they were made from that one.
    before = (*[None] * (number - 1 - older.version), older.digest, *older.made_from)
    base = replace(
        older, version=number, operation="", parent=before[0], ancestors=before[1 : 1 + MAX_ANCESTORS],
        digest=_raw_digest(location, number),
    )  # fmt: skip
    replace(access.pins, digest=None).check(base, location)
    check(base)
    return DamagedLast(base, error, keys)


def damage_finding(number: int, error: Exception) -> Finding:
    """The finding for a version that cannot be read; the error names the file, and says what to do."""
    subject = f"version {number}"
    if isinstance(error, OSError):
        return Finding(ERROR, "unreadable", subject, error.strerror or str(error), NOT_CHECKED)
    return Finding(ERROR, "damaged", subject, str(error), DAMAGED)


def _raw_digest(location: Location, number: int) -> str:
    try:
        data = read_whole(location.as_root().join(version_name(number)), MAX_BYTES)
    except (Ags1Error, OSError):
        return ""
    return hashlib.sha256(data).hexdigest()


def kept_with_errors(location: Location, keys: DatasetKeys) -> list[Kept]:
    """All versions that exist, ascending; one that is not authentic, or whose root manifest is damaged, has an error.

    Read where some version is known to be damaged: it reads an object more of each.
    """
    found = []
    for each in kept_versions(location, keys=keys):
        if not each.is_committed:
            # Nothing vouches for what is below a break in the chain of parents.
            break
        if each.error is not None:
            each = replace(each, error=damaged(location, each.number, each.error))
        elif each.version is not None:
            manifests = Manifests(location, each.version.uuid, version=each.number)
            try:
                open_root(manifests, each.version, keys)
            except (Ags1Error, OSError) as error:
                each = replace(each, error=error)
        found.append(each)
    return found[::-1]
