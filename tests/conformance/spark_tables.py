"""Make the tables that Spark and Iceberg Java write: ``make_tables.py`` starts this, since a JVM needs a process.

python -m tests.conformance.spark_tables DIRECTORY CLASS_PATH
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.conformance.make_tables import LOCATION, SPARK_TABLES
from tests.iceberg import spark_tables
from tests.iceberg.spark_process import Lake


class _Lake(Lake):
    """A catalog whose tables are where the cases have them."""

    def create(self, name: str, columns: str, *, properties: dict[str, str] | None = None, **_: Any) -> None:
        found = {
            "format-version": "3",
            "encryption.key-id": "keyA",
            "write.delete.mode": "merge-on-read",
            "write.distribution-mode": "none",
            **(properties or {}),
        }
        listed = ", ".join(f"'{each}' = '{value}'" for each, value in found.items())
        place = (LOCATION / name.replace("_", "-")).as_uri()
        self.sql(f"CREATE TABLE {name} ({columns}) USING iceberg LOCATION '{place}' TBLPROPERTIES ({listed})")


def main(directory: str, class_path: str) -> None:
    """Make every table."""
    lake = _Lake(Path(directory), class_path)
    for name, (_, definition) in SPARK_TABLES.items():
        made = next(each for each in spark_tables.DEFINITIONS if each.name == definition)
        made.make(lake, name.replace("-", "_"))


if __name__ == "__main__":
    main(*sys.argv[1:])
