"""``--pin FILE``: what the last command knew of a dataset, kept where nobody can write who can write the dataset."""

from __future__ import annotations

import argparse

from ags1.cli import warn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ags1.dataset import Dataset, Pins


def load_pins(options: argparse.Namespace) -> Pins | None:
    """The pins of ``--pin FILE``; None without that option, or if the file does not exist yet."""
    from ags1.dataset.pins import pins_of
    from ags1.storage import Location

    path = getattr(options, "pin", None)
    return None if path is None else pins_of(path, Location(options.vault))


def save_pins(options: argparse.Namespace, before: Pins | None, vault: Dataset) -> None:
    """Write what is known now to ``--pin FILE``; the first time, say that what was found was trusted."""
    path = getattr(options, "pin", None)
    if path is None or vault.pins == before:
        return
    if before is None and not (vault.version == 1 and vault.report is not None and vault.report.changed):
        # Only what this command has made itself needs no trust.
        warn(
            f"ags1: warning: {path} is new, so this trusted what it found: dataset {vault.pins.uuid}, version "
            f"{vault.pins.version}, under the master key {vault.pins.key_id!r}"
        )
    vault.pins.save(path)
