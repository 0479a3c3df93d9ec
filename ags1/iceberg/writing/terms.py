"""Partition and sort fields written as texts: ``country``, ``day(ts)``, ``bucket(16, id)``, ``id desc nulls last``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import parse_transform

_TERM = re.compile(r"\s*(?:(?P<transform>\w+)\s*\(\s*(?:(?P<before>\d+)\s*,)?)?\s*(?P<name>[^,()]+?)"
                   r"\s*(?:(?:,\s*(?P<after>\d+)\s*)?\))?\s*")  # fmt: skip
_WITH_WIDTH = ("bucket", "truncate")
_PLURALS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}


def as_spec(given: PartitionSpec | Sequence[str] | None, schema: Schema) -> PartitionSpec:
    """Return the partition spec of a schema; a ValueError or TypeError refuses a text that is none."""
    if given is None:
        return UNPARTITIONED_PARTITION_SPEC
    if isinstance(given, PartitionSpec):
        return given
    fields = []
    for place, text in enumerate(_texts(given, "partition_spec")):
        transform, name = _term(text)
        label = name.replace(".", "_") if transform == "identity" else f"{name}_{transform.partition('[')[0]}"
        source = _source(schema, name, text)
        number = PARTITION_FIELD_ID_START + place
        fields.append(PartitionField(source_id=source, field_id=number, transform=_parsed(transform, text), name=label))
    return PartitionSpec(*fields)


def as_order(given: SortOrder | Sequence[str] | None, schema: Schema) -> SortOrder:
    """Return the sort order of a schema; a ValueError or TypeError refuses a text that is none."""
    if given is None:
        return UNSORTED_SORT_ORDER
    if isinstance(given, SortOrder):
        return given
    fields = []
    for text in _texts(given, "sort_order"):
        words = text.split()
        nulls = None
        if [each.lower() for each in words[-2:]] in (["nulls", "first"], ["nulls", "last"]):
            nulls = NullOrder.NULLS_FIRST if words[-1].lower() == "first" else NullOrder.NULLS_LAST
            words = words[:-2]
        descending = words[-1].lower() == "desc"
        if descending or words[-1].lower() == "asc":
            words = words[:-1]
        transform, name = _term(" ".join(words))
        direction = SortDirection.DESC if descending else SortDirection.ASC
        source = _source(schema, name, text)
        # Without a null order, PyIceberg derives it from the direction, as Java does.
        options = {} if nulls is None else {"null_order": nulls}
        fields.append(SortField(source, _parsed(transform, text), direction, **options))
    return SortOrder(*fields) if fields else UNSORTED_SORT_ORDER


def _texts(given: Sequence[str], what: str) -> Sequence[str]:
    if isinstance(given, str) or not all(str(each).strip() for each in given):
        raise TypeError(f"{what} must be PyIceberg's object or a list of texts such as 'day(ts)', not {given!r}")
    return given


def _term(text: str) -> tuple[str, str]:
    """Return the transform, as Iceberg spells it, and the column of ``bucket(16, id)``, ``day(ts)`` or ``country``."""
    found = _TERM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no partition or sort field: write country, day(ts), bucket(16, id)")
    transform = (found["transform"] or "identity").lower()
    transform = _PLURALS.get(transform, transform)
    width = found["before"] or found["after"]
    if (transform in _WITH_WIDTH) != (width is not None):
        raise ValueError(f"{text!r} is no partition or sort field: only bucket and truncate take a number")
    return (f"{transform}[{width}]" if width else transform), found["name"]


def _parsed(transform: str, text: str) -> Any:
    made = parse_transform(transform)
    if str(made) != transform:
        raise ValueError(f"{text!r}: there is no transform {transform}")
    return made


def _source(schema: Schema, name: str, text: str) -> int:
    try:
        return schema.find_field(name).field_id
    except ValueError:
        raise ValueError(
            f"{text!r}: the schema has no column {name}; it has {', '.join(schema.column_names)}"
        ) from None
