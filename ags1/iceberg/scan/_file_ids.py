"""Field ids of the columns of a Parquet or ORC file, as Iceberg Java finds them.

    a file with field ids        fields without one are not read
    else, with a name mapping    fields that it does not name, or names without an id, are not read
    else, of Parquet             1, 2, ... by the position of a column
    else, of ORC and Avro        by the names of the table's columns

Sources: Iceberg table spec, "Column Projection"; Iceberg Java's ParquetSchemaUtil and ReadConf.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow
from pyiceberg.table.name_mapping import MappedField, create_mapping_from_schema
from pyiceberg.types import TimestampNanoType, TimestamptzNanoType

from ags1.errors import FormatError
from ags1.iceberg.metadata.variant import parquet_variant, variants_of

_FIELD_ID = b"PARQUET:field_id"
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)


def expected_type(scan: Any, field_id: int) -> Any:
    """Return a field's type in the scan or else in the table; None if the field was dropped."""
    for schema in (scan.schema, scan.metadata.schema()):
        try:
            return schema.find_type(field_id)
        except ValueError:
            continue
    return None


def mapped_field(field_id: int, name: str) -> MappedField:
    """Return the entry of a name mapping."""
    return MappedField.model_validate({"field-id": field_id, "names": [name]})


def name_mapping(scan: Any) -> Any:
    """Return the table's mapping from names to field ids; by default that of its columns."""
    found = scan.metadata.name_mapping()
    return create_mapping_from_schema(scan.metadata.schema()) if found is None else found


def with_field_ids(physical: pyarrow.Schema, scan: Any, *, is_parquet: bool) -> pyarrow.Schema:
    """Return the fields of a file that a scan reads, with ids; a FormatError if the ids in a nested one are not known.

    Timestamps have the unit of the table's columns: nanoseconds may be stored below a column of microseconds.
    """
    fields = _Fields(scan, own=any(map(_has_ids, physical)))
    mapped: Iterable[Any] = name_mapping(scan)
    if is_parquet and scan.metadata.name_mapping() is None:
        mapped = [mapped_field(place, each.name) for place, each in enumerate(physical, 1)]
    return pyarrow.schema(fields.of(physical, mapped))


class _Fields:
    def __init__(self, scan: Any, *, own: bool) -> None:
        self._scan, self._own, self._wanted = scan, own, scan.schema.field_ids
        self._variants = variants_of(scan.metadata.schemas)

    def of(self, fields: Iterable[pyarrow.Field], mapped: Iterable[Any]) -> list[pyarrow.Field]:
        by_name = {name: each for each in mapped for name in each.names}
        found = (self._field(each, by_name.get(each.name)) for each in fields)
        return [each for each in found if each is not None]

    def _field(self, field: pyarrow.Field, mapped: Any) -> pyarrow.Field | None:
        number: Any = _id_of(field) if self._own else getattr(mapped, "field_id", None)
        if number not in self._wanted:
            return None
        kind, below = field.type, () if mapped is None else mapped.fields
        expected = expected_type(self._scan, number)
        if pyarrow.types.is_timestamp(kind) and kind.unit == "ns" and not isinstance(expected, _NANOSECONDS):
            kind = pyarrow.timestamp("us", kind.tz)
        elif pyarrow.types.is_struct(kind):
            is_variant = number in self._variants
            kind = parquet_variant(field, number) if is_variant else pyarrow.struct(self.of(kind, below))
        elif pyarrow.types.is_map(kind):
            key, value = self._inside(field, below, key=kind.key_field, value=kind.item_field)
            kind = pyarrow.map_(key, value, kind.keys_sorted)
        elif pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            (element,) = self._inside(field, below, element=kind.value_field)
            kind = pyarrow.list_(element) if pyarrow.types.is_list(kind) else pyarrow.large_list(element)
        return pyarrow.field(field.name, kind, field.nullable, {_FIELD_ID: str(number)})

    def _inside(self, field: pyarrow.Field, mapped: Iterable[Any], **inside: pyarrow.Field) -> list[pyarrow.Field]:
        found = self.of([each.with_name(name) for name, each in inside.items()], mapped)
        if len(found) != len(inside):
            raise FormatError(
                f"what is in the column {field.name!r} has no field ids, neither in the file nor in a name mapping: "
                "set the table property schema.name-mapping.default"
            )
        return [each.with_name(old.name) for each, old in zip(found, inside.values(), strict=True)]


def _id_of(field: pyarrow.Field) -> int | None:
    found = (field.metadata or {}).get(_FIELD_ID)
    return None if found is None else int(found)


def _has_ids(field: pyarrow.Field) -> bool:
    below = (field.type.field(place) for place in range(field.type.num_fields))
    return _id_of(field) is not None or any(map(_has_ids, below))
