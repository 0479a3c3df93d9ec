"""Access to a dataset: where it is, what opens it, and what it must be."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.dataset.pins import Pins
from ags1.storage import Location
from ags1.support.arguments import at_least_one
from ags1.support.typing import Any

ATTEMPTS = 100
"""How often a change is committed on top of other writers' versions, unless the caller says so."""


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
