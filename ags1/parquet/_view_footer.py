"""The footer of a plaintext view: the schema without the columns that it leaves out, and nothing of encryption."""

from __future__ import annotations

from collections.abc import Sequence

from ags1.errors import FormatError
from ags1.parquet import _arrow_schema
from ags1.parquet._fields import (
    ColumnChunk,
    FileMetaData,
    KeyValue,
    LogicalType,
    RowGroup,
    SchemaElement,
    SortingColumn,
)
from ags1.parquet._source_file import SourceChunk, SourceFile
from ags1.parquet._thrift import BINARY, I32, LIST, STRUCT, List, Struct
from ags1.parquet.footer import encode_footer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ags1.parquet._arrow_schema import Shown

__all__ = ["encode_view_footer", "kept_leaves"]

_MAP, _MAP_KEY_VALUE, _LIST = 1, 2, 3


class _Element:
    """A schema element as a tree."""

    __slots__ = ("children", "leaf", "structure")

    def __init__(self, structure: Struct, leaf: int | None) -> None:
        self.structure = structure
        self.leaf = leaf
        self.children: list[_Element] = []

    @property
    def name(self) -> str:
        return self.structure.binary(SchemaElement.NAME, b"").decode("utf-8", "surrogateescape")


def kept_leaves(file: SourceFile, wanted: Sequence[bool]) -> list[bool]:
    """Which leaves a view shows, if those marked are wanted.

    A list or a map is shown whole or not at all: without one of its leaves it would be something else.
    """
    kept = list(wanted)
    root = _tree(file)

    def leaves(element: _Element) -> list[int]:
        if element.leaf is not None:
            return [element.leaf]
        return [each for child in element.children for each in leaves(child)]

    def visit(element: _Element) -> None:
        below = leaves(element)
        if element is not root and _is_collection(element.structure) and not all(kept[each] for each in below):
            for each in below:
                kept[each] = False
        for child in element.children:
            visit(child)

    visit(root)
    return kept


def _is_collection(structure: Struct) -> bool:
    if structure.integer(SchemaElement.REPETITION_TYPE, 0) == 2 or structure.integer(SchemaElement.CONVERTED_TYPE) in (
        _MAP,
        _MAP_KEY_VALUE,
        _LIST,
    ):
        return True
    logical = structure.struct(SchemaElement.LOGICAL_TYPE)
    return logical is not None and any(arm in (LogicalType.MAP, LogicalType.LIST) for arm in logical.ids())


def _tree(file: SourceFile) -> _Element:
    metadata = file.footer.metadata
    assert metadata is not None
    elements = metadata.list(FileMetaData.SCHEMA)
    assert elements is not None
    structures = [each for each in elements if isinstance(each, Struct)]
    root = _Element(structures[0], None)
    stack = [(root, structures[0].integer(SchemaElement.NUM_CHILDREN, 0))]
    leaf = 0
    # leaf_columns has checked that this adds up.
    for structure in structures[1:]:
        while stack[-1][1] == len(stack[-1][0].children):
            stack.pop()
        children = structure.integer(SchemaElement.NUM_CHILDREN, 0)
        element = _Element(structure, None)
        stack[-1][0].children.append(element)
        if children:
            stack.append((element, children))
        elif structure.kind(SchemaElement.TYPE) is not None:
            element.leaf = leaf
            leaf += 1
    return root


def encode_view_footer(file: SourceFile, groups: Sequence[Sequence[SourceChunk]], kept: Sequence[bool]) -> bytes:
    """Footer of the plaintext view of a file, from its length's and magic's end back to its first byte.

    Parameters
    ----------
    groups : sequence of sequence of SourceChunk
        All chunks of all row groups.
    kept : sequence of bool
        Which leaves are shown.
    """
    assert file.footer.metadata is not None
    metadata = file.footer.metadata.copy()
    if not all(kept):
        metadata.set(FileMetaData.SCHEMA, LIST, List(STRUCT, _schema(file, kept)))
        _prune_arrow_schema(file, metadata, kept)
        orders = metadata.list(FileMetaData.COLUMN_ORDERS)
        if orders is not None and len(orders) == len(kept):
            shown = [order for order, keep in zip(orders, kept, strict=True) if keep]
            metadata.set(FileMetaData.COLUMN_ORDERS, LIST, List(STRUCT, shown))
    structures = metadata.list(FileMetaData.ROW_GROUPS)
    for index, chunks in enumerate(groups):
        assert structures is not None
        structure = structures[index]
        assert isinstance(structure, Struct)
        _settle_row_group(structure, chunks, kept)
    return encode_footer(metadata, None)


def _settle_row_group(structure: Struct, chunks: Sequence[SourceChunk], kept: Sequence[bool]) -> None:
    nodes = structure.list(RowGroup.COLUMNS)
    assert nodes is not None
    for chunk, keep, node in zip(chunks, kept, nodes, strict=True):
        assert isinstance(node, Struct)
        if keep and chunk.encrypted:
            node.remove(ColumnChunk.CRYPTO_METADATA)
            node.remove(ColumnChunk.ENCRYPTED_COLUMN_METADATA)
            node.set(ColumnChunk.META_DATA, STRUCT, chunk.known_metadata())
    if all(kept):
        return
    shown = [node for node, keep in zip(nodes, kept, strict=True) if keep]
    structure.set(RowGroup.COLUMNS, LIST, List(STRUCT, shown))
    sorting = structure.list(RowGroup.SORTING_COLUMNS)
    if sorting is None:
        return
    places = {old: new for new, old in enumerate(index for index, keep in enumerate(kept) if keep)}
    still: list[Any] = []
    for entry in sorting:
        # What is sorted within a column that is left out is not sorted by itself.
        if not isinstance(entry, Struct) or entry.integer(SortingColumn.COLUMN_IDX) not in places:
            break
        column = entry.copy()
        column.set(SortingColumn.COLUMN_IDX, I32, places[entry.integer(SortingColumn.COLUMN_IDX, 0)])
        still.append(column)
    if still:
        structure.set(RowGroup.SORTING_COLUMNS, LIST, List(STRUCT, still))
    else:
        structure.remove(RowGroup.SORTING_COLUMNS)


def _schema(file: SourceFile, kept: Sequence[bool]) -> list[Struct]:
    shown: list[Struct] = []

    def visit(element: _Element) -> bool:
        if element.leaf is not None:
            if kept[element.leaf]:
                shown.append(element.structure)
            return kept[element.leaf]
        place = len(shown)
        shown.append(element.structure)
        children = sum(visit(child) for child in element.children)
        if element.children and not children and place:
            del shown[place:]
            return False
        if children != len(element.children):
            group = element.structure.copy()
            group.set(SchemaElement.NUM_CHILDREN, I32, children)
            shown[place] = group
        return True

    visit(_tree(file))
    if not shown:
        raise FormatError(f"{file.where}the schema has no elements")
    return shown


def _prune_arrow_schema(file: SourceFile, metadata: Struct, kept: Sequence[bool]) -> None:
    pairs = metadata.list(FileMetaData.KEY_VALUE_METADATA)
    if pairs is None:
        return

    def shown(element: _Element) -> Shown:
        if element.leaf is not None:
            return kept[element.leaf]
        below = [(child.name, shown(child)) for child in element.children]
        found = {children if isinstance(children, bool) else None for _, children in below}
        # Collections are shown whole or not at all, so that only structs are left to have some of their children.
        return below if found != {True} and found != {False} else found == {True}

    others: list[Any] = []
    for pair in pairs:
        if isinstance(pair, Struct) and pair.binary(KeyValue.KEY) == _arrow_schema.KEY:
            top = [(child.name, shown(child)) for child in _tree(file).children]
            schema = _arrow_schema.without_fields(pair.binary(KeyValue.VALUE, b""), top)
            if schema is None:
                continue
            pair = pair.copy()
            pair.set(KeyValue.VALUE, BINARY, schema)
        others.append(pair)
    if others:
        metadata.set(FileMetaData.KEY_VALUE_METADATA, LIST, List(STRUCT, others))
    else:
        metadata.remove(FileMetaData.KEY_VALUE_METADATA)
