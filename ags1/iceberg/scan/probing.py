"""Whether a scan can read a file: its first rows, as the table's columns."""

from __future__ import annotations

import re
from contextlib import closing

from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.transforms import UnknownTransform, VoidTransform

from ags1.errors import FormatError
from ags1.iceberg.files.file_io import SnapshotFiles, known_file, naming
from ags1.iceberg.metadata.manifests import DATA, Manifest, ManifestEntry
from ags1.iceberg.metadata.metadata_document import Document
from ags1.iceberg.metadata.pyiceberg_view import metadata_text
from ags1.iceberg.scan.planning import DataFile, _Spec
from ags1.iceberg.scan.projection import FurtherColumns
from ags1.iceberg.scan.table_scan import EncryptedArrowScan


class Probe:
    """Reads the first rows of files of a table. Safe to share between threads."""

    def __init__(self, document: Document, files: SnapshotFiles) -> None:
        self._files = files
        self._metadata = TableMetadataUtil.parse_raw(metadata_text(document))
        self._scan = EncryptedArrowScan(self._metadata, files.io, self._metadata.schema())
        self._scan.fetches_ahead = False

    def read(self, entry: ManifestEntry, manifest: Manifest) -> None:
        """Read the first rows of a data file or an equality delete file; raises as a scan does."""
        file, metadata, spec_id = entry.file, self._metadata, manifest.spec_id
        self._files.io.keys.learn([known_file(file)])
        spec = _Spec(metadata.specs()[spec_id], metadata.schema())
        _check_partition(entry.path, manifest, spec)
        scan = self._scan
        if file["content"] != DATA:
            scan = scan.of(FurtherColumns(Schema(), metadata, file.get("equality_ids") or (), required=True).schema)
        task = FileScanTask(DataFile(file, spec_id, spec.values(file["partition"])))
        with naming(entry.path, "cannot be read"), closing(scan.batches(task, None)) as batches:
            next(batches, None)


# What values of a partition may be in Avro, by the type that the transform gives; of all others, whole numbers.
_AVRO_KINDS = {"boolean": ("boolean",), "string": ("string",), "float": ("float",), "double": ("float", "double")}
_AVRO_KINDS |= dict.fromkeys(("decimal", "fixed", "uuid", "binary"), ("bytes", "fixed"))


def _check_partition(path: str, manifest: Manifest, spec: _Spec) -> None:
    declared = {each["field-id"]: each["type"] for each in manifest.partition["fields"]}
    for field, wanted in zip(spec.fields, spec.kinds, strict=True):
        found = declared.get(field.field_id, "null")
        types = found if isinstance(found, list) else [found]
        kinds = {each["type"] if isinstance(each, dict) else each for each in types} - {"null"}
        possible = _AVRO_KINDS.get(re.split(r"\W", str(wanted))[0], ("int", "long"))
        if not isinstance(field.transform, (UnknownTransform, VoidTransform)) and not kinds.issubset(possible):
            raise FormatError(
                f"{path}: its manifest has values of the Avro type {', '.join(kinds)} in the partition field "
                f"{field.name!r}, and {field.transform} gives {wanted}: have its engine rewrite the manifests"
            )
