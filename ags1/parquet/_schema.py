"""The schema of a Parquet file as a tree, with the names that parquet.thrift has for types."""

from __future__ import annotations

from dataclasses import dataclass, field

from ags1.errors import FormatError
from ags1.parquet._thrift import STRUCT, Struct
from ags1.parquet.footer import SCHEMA

__all__ = ["SchemaNode", "schema_tree"]

_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS = ("required", "optional", "repeated")
_CONVERTED = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS",
    "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16", "INT_32",
    "INT_64", "JSON", "BSON", "INTERVAL",
)  # fmt: skip
_LOGICAL = {
    1: "STRING", 2: "MAP", 3: "LIST", 4: "ENUM", 5: "DECIMAL", 6: "DATE", 7: "TIME", 8: "TIMESTAMP", 10: "INTEGER",
    11: "UNKNOWN", 12: "JSON", 13: "BSON", 14: "UUID", 15: "FLOAT16", 16: "VARIANT", 17: "GEOMETRY", 18: "GEOGRAPHY",
}  # fmt: skip
_UNITS = {1: "MILLIS", 2: "MICROS", 3: "NANOS"}


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
    elements = metadata.list(SCHEMA)
    if elements is None or not len(elements):
        raise FormatError(f"{where}the footer has no schema")
    root: SchemaNode | None = None
    # Open groups, and how many children of each are still to come.
    stack: list[tuple[SchemaNode, list[int]]] = []
    for element in elements.structs():
        children = element.integer(5, 0)
        node = SchemaNode(
            element.binary(4, b"").decode("utf-8", "surrogateescape"),
            _name(_REPETITIONS, element.integer(3, 0)) if root is not None else "",
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
    code = element.integer(1)
    if code is None:
        return None
    name = _name(_TYPES, code)
    return f"{name}({element.integer(2, 0)})" if name == "FIXED_LEN_BYTE_ARRAY" else name


def _logical(element: Struct) -> str | None:
    union = element.struct(10)
    if union is not None and union.ids():
        arm = union.ids()[0]
        name = _LOGICAL.get(arm, f"logical type {arm}")
        details = union.struct(arm, Struct()) if union.kind(arm) == STRUCT else Struct()
        if name == "DECIMAL":
            return f"DECIMAL({details.integer(2, 0)}, {details.integer(1, 0)})"
        if name in ("TIME", "TIMESTAMP"):
            unit = details.struct(2, Struct()).ids()
            zone = "UTC" if details.boolean(1, False) else "local"
            return f"{name}({_UNITS.get(unit[0], '?') if unit else '?'}, {zone})"
        if name == "INTEGER":
            return f"{'INT' if details.boolean(2, True) else 'UINT'}({details.integer(1, 0)})"
        return name
    code = element.integer(6)
    if code is None:
        return None
    name = _name(_CONVERTED, code)
    return f"DECIMAL({element.integer(8, 0)}, {element.integer(7, 0)})" if name == "DECIMAL" else name


def _name(names: tuple[str, ...], code: int) -> str:
    return names[code] if 0 <= code < len(names) else str(code)
