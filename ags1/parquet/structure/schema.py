"""The schema of a Parquet file as a tree of elements, with the names of types from parquet.thrift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ags1.errors import FormatError, LimitError
from ags1.parquet.native.thrift import STRUCT, Struct
from ags1.parquet.structure.fields import (
    DecimalType,
    FileMetaData,
    IntType,
    LogicalType,
    SchemaElement,
    TimeType,
    TimeUnit,
    names_of,
)

_TYPES = ("BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY")
_REPETITIONS = ("required", "optional", "repeated")
_CONVERTED = (
    "UTF8", "MAP", "MAP_KEY_VALUE", "LIST", "ENUM", "DECIMAL", "DATE", "TIME_MILLIS", "TIME_MICROS",
    "TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "UINT_8", "UINT_16", "UINT_32", "UINT_64", "INT_8", "INT_16", "INT_32",
    "INT_64", "JSON", "BSON", "INTERVAL",
)  # fmt: skip
_LOGICAL = names_of(LogicalType)
_UNITS = names_of(TimeUnit)


# PyArrow reads 100. The length of paths and the depth of recursion grow with it.
_MOST_NESTED = 128
# Thirty times as many as an encrypted file can have.
_MOST_ELEMENTS = 1 << 20
_LONGEST_SHOWN = 200


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


class Element:
    """A leaf of the schema, which has an index among the leaves, or a group with children. The root has no path."""

    __slots__ = ("_shown", "children", "index", "octets", "path", "structure")

    def __init__(self, structure: Struct, above: Element | None) -> None:
        self.structure = structure
        self.path: tuple[str, ...] = ()
        # The path as the metadata of column chunks has it. What is above is shared: names may be long.
        self.octets: list[bytes] = []
        if above is not None:
            self.path = (*above.path, _name_of(structure))
            self.octets = [*above.octets, structure.binary(SchemaElement.NAME, b"")]
        self.children: list[Element] = []
        self.index: int | None = None
        self._shown: str | None = None

    @property
    def name(self) -> str:
        """The path with dots."""
        return ".".join(self.path)

    @property
    def shown(self) -> str:
        """The path, shortened for messages."""
        if self._shown is None:
            name = self.name
            self._shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."
        return self._shown


def read_schema(metadata: Struct, where: str = "") -> tuple[Element, list[Element]]:
    """The root of the schema, and its leaves in the order of the column chunks. FormatError: it is inconsistent."""
    elements = metadata.list(FileMetaData.SCHEMA)
    if elements is None or len(elements) == 0:
        raise FormatError(f"{where}the footer has no schema")
    if len(elements) > _MOST_ELEMENTS:
        raise LimitError(f"{where}the schema has {len(elements)} elements; at most {_MOST_ELEMENTS} are read")
    leaves: list[Element] = []
    # Open groups, with the number of children that each must have.
    stack: list[tuple[Element, int]] = []
    root: Element | None = None
    for structure in elements:
        if not isinstance(structure, Struct):
            raise FormatError(f"{where}the schema has an element that is not a structure")
        count = structure.integer(SchemaElement.NUM_CHILDREN, 0)
        if count < 0 or count > len(elements):
            raise FormatError(f"{where}the schema has a group of {count} columns in {len(elements)} elements")
        if root is None:
            root = Element(structure, None)
            stack.append((root, count))
            continue
        while stack and len(stack[-1][0].children) == stack[-1][1]:
            stack.pop()
        if not stack:
            raise FormatError(f"{where}the schema has more elements than its groups count")
        group = stack[-1][0]
        element = Element(structure, group)
        group.children.append(element)
        if count:
            if len(stack) > _MOST_NESTED:
                raise FormatError(f"{where}the schema is nested deeper than {_MOST_NESTED}")
            stack.append((element, count))
        elif structure.kind(SchemaElement.TYPE) is not None:
            element.index = len(leaves)
            leaves.append(element)
    if any(len(group.children) < count for group, count in stack):
        raise FormatError(f"{where}the schema has fewer elements than its groups count")
    assert root is not None
    return root, leaves


def schema_tree(root: Element) -> SchemaNode:
    """The schema as a tree of SchemaNode."""
    made = _node(root)
    stack = [(root, made)]
    while stack:
        element, node = stack.pop()
        for child in element.children:
            node.children.append(_node(child))
            stack.append((child, node.children[-1]))
    return made


def same_columns(first: Sequence[Element], second: Sequence[Element]) -> bool:
    """Whether two lists of columns have the same names, types and field ids, at all levels."""
    return len(first) == len(second) and all(
        _shape(one) == _shape(other) and same_columns(one.children, other.children)
        for one, other in zip(first, second, strict=True)
    )


def _shape(element: Element) -> tuple[Any, ...]:
    node, structure = _node(element), element.structure
    # Some writers say of the pairs of a map what its parent says.
    kind = None if node.logical_type == "MAP_KEY_VALUE" else node.logical_type
    return node.name, node.repetition, node.type, kind, structure.integer(SchemaElement.FIELD_ID)


def _node(element: Element) -> SchemaNode:
    structure, path = element.structure, element.path
    return SchemaNode(
        _name_of(structure),
        _name(_REPETITIONS, structure.integer(SchemaElement.REPETITION_TYPE, 0)) if path else "",
        _physical(structure) if path and not element.children else None,
        _logical(structure),
    )


def _name_of(structure: Struct) -> str:
    return structure.binary(SchemaElement.NAME, b"").decode("utf-8", "surrogateescape")


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
