"""Whether a scan can read a file: its first rows, as the table's columns."""

from __future__ import annotations

from contextlib import closing

from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil

from ags1.iceberg.files.file_io import SnapshotFiles
from ags1.iceberg.keys._document import Document
from ags1.iceberg.metadata.manifests import DATA, ManifestEntry
from ags1.iceberg.scan._planning import DataFile, _Spec
from ags1.iceberg.scan._projection import FurtherColumns
from ags1.iceberg.scan._reading import EncryptedArrowScan
from ags1.iceberg.scan._variant import metadata_text


class Probe:
    """Reads the first rows of files of a table. Safe to share between threads."""

    def __init__(self, document: Document, files: SnapshotFiles) -> None:
        self._files = files
        self._metadata = TableMetadataUtil.parse_raw(metadata_text(document))
        self._scan = EncryptedArrowScan(self._metadata, files.io, self._metadata.schema())

    def read(self, entry: ManifestEntry, spec_id: int) -> None:
        """Read the first rows of a data file or an equality delete file; raises as a scan does."""
        file, metadata = entry.file, self._metadata
        self._files.io.keys.learn([self._files.known(file)])
        values = _Spec(metadata.specs()[spec_id], metadata.schema()).values(file["partition"])
        scan = self._scan
        if file["content"] != DATA:
            scan = scan.of(FurtherColumns(Schema(), metadata, file.get("equality_ids") or (), required=True).schema)
        with closing(scan.batches(FileScanTask(DataFile(file, spec_id, values)), None)) as batches:
            next(batches, None)
