"""Pins: what a caller knows of a dataset, so that nobody who can write its directory can decide it.

    Pins(uuid, key_id, version, digest)  --check-->  each version that is read, or that a change builds on
                                         <--holding--  what an own commit made, or what was found

A version is authentic under the master key that it names itself. So whoever can use any key of the same service can
make one; and an older copy, or another dataset of the same key, is authentic as well. Only a pin shows that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from ags1.dataset.versions import MAX_ANCESTORS, Version
from ags1.errors import AuthenticationError, KeyAccessError
from ags1.storage import Location, inside, no_pins, read_pins, write_pins
from ags1.support.arguments import at_least_one, spelled
from ags1.support.typing import Any

ATTEMPTS = 100
"""How often a change is committed on top of other writers' versions, unless the caller says so."""


@dataclass(frozen=True)
class Pins:
    """What a dataset must be. Immutable, so safe to share between threads; it holds no secret.

    Attributes
    ----------
    uuid : str or None
        Identity of the dataset; None accepts any.
    key_id : str or None
        Its master key; None accepts any.
    version : int
        The last version that is known: an older one is refused, a later one is not.
    digest : str or None
        The digest of that version.
    """

    uuid: str | None = None
    key_id: str | None = None
    version: int = 0
    digest: str | None = None

    def check(self, found: Version, where: Location) -> None:
        """Refuse a version that is not what is pinned.

        Raises
        ------
        AuthenticationError
            The version is of another dataset, is older than the pinned version, has other content under its number, or
            was not made from the pinned version.
        KeyAccessError
            It is under another master key.
        """
        if self.uuid is not None and found.uuid != self.uuid:
            raise AuthenticationError(
                f"{where} is the dataset {found.uuid}, but {self.uuid} is expected: it was replaced"
            )
        if found.version < self.version:
            raise AuthenticationError(
                f"{where} has version {found.version}, but {self.version} was seen already: an older copy was put back"
            )
        if self.key_id is not None and found.key_id != self.key_id:
            raise KeyAccessError(
                f"{where} is under the master key {found.key_id!r}, but {self.key_id!r} is expected: if you know that "
                f"it was rewrapped, say the new one with {spelled('key_id', 'NEW')}"
            )
        if self.digest is not None and found.version == self.version and found.digest != self.digest:
            raise AuthenticationError(
                f"version {found.version} of {where} has the digest {found.digest}, but {self.digest} is expected: it "
                "was replaced"
            )
        if self.digest is not None and found.version > self.version:
            self._check_ancestors(found, where)

    def _check_ancestors(self, found: Version, where: Location) -> None:
        """Refuse a later version that was not made from the pinned one.

        An honest writer without a pin may have added versions to an older copy, until it had a higher number.
        """
        made_from = found.made_from[found.version - 1 - self.version :]
        if not made_from:
            raise AuthenticationError(
                f"{where} has version {found.version}, and a version names at most {MAX_ANCESTORS} before it: nothing "
                f"shows whether it was made from version {self.version}, which was seen already. If you trust it, make "
                "a new pin"
            )
        # After damage, whoever restores a version goes back knowingly.
        if made_from[0] not in (None, self.digest):
            raise AuthenticationError(
                f"version {found.version} of {where} was not made from version {self.version} with the digest "
                f"{self.digest}, which was seen already: an older copy was put back, and was changed since"
            )

    def refuse_nothing(self, where: Location) -> None:
        """Refuse a place without any dataset, if one is pinned. AuthenticationError: it was removed."""
        if self.uuid is not None or self.version:
            raise AuthenticationError(f"there is no dataset at {where}, but {self.uuid or 'one'} is expected")

    def holding(self, found: Version) -> Pins:
        """The same with what was found: its UUID and master key where none was pinned, its number if that is later."""
        later = found.version > self.version or (found.version == self.version and self.digest is None)
        return Pins(
            self.uuid or found.uuid,
            self.key_id or found.key_id,
            found.version if later else self.version,
            found.digest if later else self.digest,
        )

    def under(self, key_id: str) -> Pins:
        """The same with another master key, after it was rewrapped."""
        return replace(self, key_id=key_id)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the pins to a file that only its owner can read and write. Keep it where no attacker can write.

        Raises
        ------
        OSError
            It cannot be written.
        """
        fields = {"uuid": self.uuid, "key-id": self.key_id, "version": self.version, "digest": self.digest}
        write_pins(path, fields)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Pins:
        """Read the pins that :meth:`save` wrote.

        Raises
        ------
        FormatError
            The file holds no pins, or others than its owner can write it.
        OSError
            It cannot be read.
        """
        fields = read_pins(path, "dataset")
        texts = ("uuid", "key-id", "digest")
        if (
            fields.keys() != {*texts, "version"}
            or not all(fields[each] is None or isinstance(fields[each], str) for each in texts)
            or type(fields["version"]) is not int
            or fields["version"] < 0
        ):
            raise no_pins(path, "dataset")
        return cls(fields["uuid"], fields["key-id"], fields["version"], fields["digest"])


@dataclass(frozen=True)
class ExpectedVersion:
    """What the opened version must be, by the arguments of :func:`ags1.dataset.open`; None accepts any."""

    version: int | None = None
    uuid: str | None = None
    digest: str | None = None
    key_id: str | None = None

    def check(self, found: Version, where: Location) -> None:
        """Refuse another version; raises as :meth:`Pins.check`."""
        Pins(self.uuid).check(found, where)
        if self.version is not None and found.version != self.version:
            why = "it was changed since"
            if found.version < self.version:
                why = "an older copy was put back, or the number is too high"
            raise AuthenticationError(f"{where} has version {found.version}, but {self.version} is expected: {why}")
        # The digest of whatever version it is.
        Pins(self.uuid, self.key_id, found.version if self.digest else 0, self.digest).check(found, where)


@dataclass(frozen=True)
class Access:
    """Where a dataset is, the KMS client of its master key, and what each version of it must be.

    `attempts` is how often a change is applied on top of the versions of other writers, before ConflictError.
    """

    location: Location
    kms: Any
    pins: Pins = field(default_factory=Pins)
    attempts: int = ATTEMPTS

    @classmethod
    def of(cls, location: Location, kms: Any, pins: Pins | None = None, attempts: int = ATTEMPTS) -> Access:
        """Check the arguments of a caller. ValueError: `attempts` is below 1."""
        at_least_one(attempts, "attempts")
        return cls(location.as_root(), kms, Pins() if pins is None else pins, attempts)


def pins_of(path: str, dataset: Location) -> Pins | None:
    """The pins of a dataset that a file has; None if the file does not exist yet.

    ValueError: the file lies in the dataset, or is none of this machine. FormatError: as :meth:`Pins.load`.
    """
    place = Location(path)
    if not place.is_local:
        raise ValueError(f"--pin {path}: pins are kept in a file of this machine")
    if inside(dataset, place) is not None:
        raise ValueError(
            f"--pin {path} lies in the dataset, where whoever can replace that can replace it too: name another place"
        )
    try:
        return Pins.load(path)
    except FileNotFoundError:
        return None
