"""The schema of a Parquet file as a tree, with the names that parquet.thrift has for types."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.errors import FormatError
from ags1.parquet._fields import (
    DecimalType,
    FileMetaData,
    IntType,
    LogicalType,
    SchemaElement,
    TimeType,
    TimeUnit,
    names_of,
)
from ags1.parquet._thrift import STRUCT, Struct

__all__ = ["SchemaNode", "schema_tree"]

_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS = ("required", "optional", "repeated")
_CONVERTED = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS",
    "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16", "INT_32",
    "INT_64", "JSON", "BSON", "INTERVAL",
)  # fmt: skip
_LOGICAL = names_of(LogicalType)
_UNITS = names_of(TimeUnit)


@dataclass
class SchemaNode:
    """A column or a group of columns.

    Attributes
    ----------
    name : str
    repetition : str
        "required", "optional" or "repeated"; "" at the root.
    type : str or None
        Physical type; None for a group.
    logical_type : str or None
        As "STRING" or "DECIMAL(9, 2)".
    children : list of SchemaNode
    """

    name: str
    repetition: str
    type: str | None = None
    logical_type: str | None = None
    children: list[SchemaNode] = field(default_factory=list)


def schema_tree(metadata: Struct, where: str = "") -> SchemaNode:
    """The root of a schema whose tree was found to add up by ``leaf_columns``.

    Raises
    ------
    FormatError
        Something in it has a wrong kind.
    """
    elements = metadata.list(FileMetaData.SCHEMA)
    if elements is None or not len(elements):
        raise FormatError(f"{where}the footer has no schema")
    root: SchemaNode | None = None
    # Open groups, and how many children of each are still to come.
    stack: list[tuple[SchemaNode, list[int]]] = []
    for element in elements.structs():
        children = element.integer(SchemaElement.NUM_CHILDREN, 0)
        node = SchemaNode(
            element.binary(SchemaElement.NAME, b"").decode("utf-8", "surrogateescape"),
            _name(_REPETITIONS, element.integer(SchemaElement.REPETITION_TYPE, 0)) if root is not None else "",
            None if children or root is None else _physical(element),
            _logical(element),
        )
        while stack and not stack[-1][1][0]:
            stack.pop()
        if root is None:
            root = node
        elif stack:
            stack[-1][0].children.append(node)
            stack[-1][1][0] -= 1
        if children:
            stack.append((node, [children]))
    assert root is not None
    return root


def _physical(element: Struct) -> str | None:
    code = element.integer(SchemaElement.TYPE)
    if code is None:
        return None
    name = _name(_TYPES, code)
    return f"{name}({element.integer(SchemaElement.TYPE_LENGTH, 0)})" if name == "FIXED_LEN_BYTE_ARRAY" else name


def _logical(element: Struct) -> str | None:
    union = element.struct(SchemaElement.LOGICAL_TYPE)
    if union is not None and union.ids():
        arm = union.ids()[0]
        name = _LOGICAL.get(arm, f"logical type {arm}")
        details = union.struct(arm, Struct()) if union.kind(arm) == STRUCT else Struct()
        if name == "DECIMAL":
            return f"DECIMAL({details.integer(DecimalType.PRECISION, 0)}, {details.integer(DecimalType.SCALE, 0)})"
        if name in ("TIME", "TIMESTAMP"):
            unit = details.struct(TimeType.UNIT, Struct()).ids()
            zone = "UTC" if details.boolean(TimeType.IS_ADJUSTED_TO_UTC, False) else "local"
            return f"{name}({_UNITS.get(unit[0], '?') if unit else '?'}, {zone})"
        if name == "INTEGER":
            signed = details.boolean(IntType.IS_SIGNED, True)
            return f"{'INT' if signed else 'UINT'}({details.integer(IntType.BIT_WIDTH, 0)})"
        return name
    code = element.integer(SchemaElement.CONVERTED_TYPE)
    if code is None:
        return None
    name = _name(_CONVERTED, code)
    if name == "DECIMAL":
        return f"DECIMAL({element.integer(SchemaElement.PRECISION, 0)}, {element.integer(SchemaElement.SCALE, 0)})"
    return name


def _name(names: tuple[str, ...], code: int) -> str:
    return names[code] if 0 <= code < len(names) else str(code)
