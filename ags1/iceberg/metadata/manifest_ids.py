"""Field ids that a manifest or manifest list lacks, by the names in the specification, as Iceberg Java finds them.

manifest_path             500    of a manifest list; older writers have other names for the counts
data_file.file_path       100    of a manifest
data_file.partition.*    1000    by the partition spec in the header
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyiceberg.manifest import MANIFEST_ENTRY_SCHEMAS_STRUCT, MANIFEST_LIST_FILE_STRUCTS
from pyiceberg.schema import make_compatible_name
from pyiceberg.types import ListType, MapType, StructType

from ags1.errors import FormatError

# The names of format version 1.
_OLD_NAMES = {f"{kind}_data_files_count": f"{kind}_files_count" for kind in ("added", "existing", "deleted")}
_FIRST_PARTITION_FIELD = 1000


def add_field_ids(schema: dict[str, Any], header: Mapping[str, bytes]) -> None:
    """Add the missing ids to the Avro schema of a manifest or manifest list, in place; `header` is the container's.

    FormatError: a partition field has no id, and the partition spec in the header does not have its name.
    """
    is_list = any(each.get("name") == "manifest_path" for each in schema["fields"])
    _add_to_record(schema, (MANIFEST_LIST_FILE_STRUCTS if is_list else MANIFEST_ENTRY_SCHEMAS_STRUCT)[3], header)


def _add_to_record(record: dict[str, Any], struct: Any, header: Mapping[str, bytes]) -> None:
    if not struct.fields:
        _add_to_partition(record, header)
        return
    taken = {each.get("field-id") for each in record["fields"]}
    ids = {each.field_id: each for each in struct.fields}
    names = {each.name: each for each in struct.fields if each.field_id not in taken}
    for each in record["fields"]:
        wanted = ids.get(each.get("field-id"))
        if "field-id" not in each:
            name = each.get("name")
            wanted = names.get(_OLD_NAMES.get(name, name))
        if wanted is not None:
            each["field-id"] = wanted.field_id
            for kind in each["type"] if isinstance(each["type"], list) else [each["type"]]:
                if isinstance(kind, dict):
                    _add_below(kind, wanted.field_type, header)


def _add_below(kind: dict[str, Any], wanted: Any, header: Mapping[str, bytes]) -> None:
    if kind.get("type") == "record" and wanted.is_struct:
        _add_to_record(kind, wanted, header)
    elif kind.get("type") == "array" and isinstance(wanted, ListType):
        kind.setdefault("element-id", wanted.element_id)
        if isinstance(kind["items"], dict):
            _add_below(kind["items"], wanted.element_type, header)
    elif kind.get("type") == "array" and isinstance(wanted, MapType) and isinstance(kind["items"], dict):
        kind.setdefault("logicalType", "map")
        _add_below(kind["items"], StructType(wanted.key_field, wanted.value_field), header)


def _add_to_partition(record: dict[str, Any], header: Mapping[str, bytes]) -> None:
    unknown = [each for each in record["fields"] if "field-id" not in each]
    if not unknown:
        return
    spec = json.loads(header.get("partition-spec", b"[]"))
    fields = spec.get("fields", []) if isinstance(spec, dict) else spec
    # Format version 1 counts the fields.
    ids = {each["name"]: each.get("field-id", _FIRST_PARTITION_FIELD + place) for place, each in enumerate(fields)}
    ids |= {make_compatible_name(name): number for name, number in ids.items()}
    for each in unknown:
        if each.get("name") not in ids:
            raise FormatError(
                f"its partition field {each.get('name')!r} has no field id, and the partition spec in the header has "
                "no field of this name: have the table's engine rewrite its manifests"
            )
        each["field-id"] = ids[each["name"]]
