"""Columns that a scan needs and was not asked for: those of its filter, and those that equality deletes compare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow
import pyarrow.compute as compute
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from ags1.errors import FormatError

__all__ = ["FurtherColumns", "path_to"]


class FurtherColumns:
    """Further columns of a scan.

    Each is at the end of the scan's schema, with the structs it is in, even if the scan has it already: so it does not
    matter what the scan asks for. `schema` has those of the scan, which are `width` columns, and then these. With
    `required`, a file must have them all.
    """

    def __init__(self, schema: Schema, metadata: Any, field_ids: Iterable[int], *, required: bool = False) -> None:
        names = {each.name for each in schema.fields}
        fields = list(schema.fields)
        self.width = len(fields)
        self._columns: dict[int, tuple[int, int, NestedField]] = {}
        for field_id in field_ids:
            path = _path(schema, metadata, field_id)
            name = path[0].name
            while name in names:
                name += "'"
            names.add(name)
            self._columns[field_id] = (len(fields), len(path) - 1, path[-1])
            fields.append(_only(path, name, required))
        self.schema = Schema(*fields)

    def field(self, field_id: int) -> NestedField:
        """The field of an id, as the table has it."""
        return self._columns[field_id][2]

    def column(self, rows: pyarrow.Table | pyarrow.RecordBatch, field_id: int) -> Any:
        """The values of a field, null also where a struct around it is."""
        position, depth, _ = self._columns[field_id]
        found = rows.column(position)
        return compute.struct_field(found, [0] * depth) if depth else found


def path_to(fields: Iterable[NestedField], field_id: int) -> list[NestedField] | None:
    """A field and the structs it is in, the outermost first; None if it is in a list or a map."""
    for field in fields:
        if field.field_id == field_id:
            return [field]
        if isinstance(field.field_type, StructType):
            below = path_to(field.field_type.fields, field_id)
            if below is not None:
                return [field, *below]
    return None


def _path(schema: Schema, metadata: Any, field_id: int) -> list[NestedField]:
    """By the scan's schema, or else the newest that has the field."""
    older = sorted(metadata.schemas, key=lambda each: each.schema_id, reverse=True)
    # The table's schema first: the scan may have asked for a part of a struct.
    for each in (metadata.schema(), schema, *older):
        if field_id in each.field_ids:
            found = path_to(each.fields, field_id)
            if found is None:
                raise FormatError(f"the column {each.find_column_name(field_id)} is needed, which is no single value")
            return found
    raise FormatError(f"a column with the id {field_id} is needed, which the table never had")


def _only(path: list[NestedField], name: str, required: bool) -> NestedField:
    """A field with nothing in it but one path."""
    first, *rest = path
    return NestedField(
        field_id=first.field_id,
        name=name,
        field_type=StructType(_only(rest, rest[0].name, required)) if rest else first.field_type,
        required=required,
        # A file that must have the column is not helped by a default.
        initial_default=None if rest or required else first.initial_default,
    )
