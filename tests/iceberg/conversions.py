"""Tables for conversions: Spark's, with everything that is new written below a directory of the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ags1.expected import Expected
from ags1.iceberg import open_table
from ags1.iceberg.catalogs import CatalogTable, catalog_table
from ags1.iceberg.conversion.journal import DIRECTORY, KIND, moved
from ags1.iceberg.conversion.work import FileResult
from ags1.iceberg.keys.wrapped_key import unwrapping_under
from ags1.kms import MemoryKms
from ags1.storage import Location
from ags1.work.records import found_runs, opened_runs
from tests.iceberg.canonical import arrow_rows, sorted_rows
from tests.iceberg.warehouse import SparkTable

LINEAGE = ["_row_id", "_last_updated_sequence_number"]
PLAINTEXT = (b"Obj\x01", b"PAR1", b"PFA1")
ENCRYPTED = (b"AGS1", b"PARE")


def writable(table: SparkTable, directory: Path) -> CatalogTable:
    """A table whose files stay where they are, and whose new files go below a directory."""
    fields = json.loads(table.metadata_path.read_bytes())
    fields["properties"] |= {
        "write.data.path": (directory / "data").as_uri(),
        "write.metadata.path": (directory / "metadata").as_uri(),
    }
    (directory / "metadata").mkdir(parents=True)
    start = directory / "metadata" / "00099-start.metadata.json"
    start.write_text(json.dumps(fields))
    allowed = [str(table.metadata_path.parent.parent), str(directory)]
    return catalog_table(None, str(start), expected=Expected(allowed_locations=allowed))


def read_rows(table: CatalogTable | str, kms: MemoryKms, columns: list[str] | None = None, **of: Any) -> list[Any]:
    """Rows as ags1 reads them, in the canonical form."""
    location = table if isinstance(table, str) else table.load().metadata_location
    opened = open_table(location, kms, allow_plaintext=True)
    return sorted_rows(arrow_rows(opened.scan(columns=columns, **of).to_arrow()))


def beginning_with(directory: Path, magics: tuple[bytes, ...]) -> list[Path]:
    """Files below a directory that begin so."""
    return [path for path in directory.rglob("*") if path.is_file() and path.read_bytes()[:4] in magics]


def killed_runs(directory: Path, key_id: str, kms: MemoryKms) -> list[list[FileResult]]:
    """What killed conversions of the table in a directory have moved; their journals must be authentic, and whole."""
    newest = max((directory / "metadata").glob("*.metadata.json"), key=lambda path: path.stat().st_mtime_ns)
    table = json.loads(newest.read_bytes())["table-uuid"]

    def refused(name: str, error: Exception) -> None:
        raise error

    found = found_runs(Location(str(directory / "metadata" / DIRECTORY)))
    opened = opened_runs(found, KIND, table, unwrapping_under(key_id, kms), refused)
    return [moved(each, refused) for each in opened]
