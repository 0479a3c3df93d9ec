"""The footer of a plaintext view: the schema without hidden columns, and no encryption metadata."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from ags1.errors import FormatError
from ags1.parquet.native.thrift import BINARY, I32, LIST, STRUCT, List, Struct
from ags1.parquet.structure.chunks import SourceChunk
from ags1.parquet.structure.fields import (
    ColumnChunk,
    FileMetaData,
    KeyValue,
    LogicalType,
    RowGroup,
    SchemaElement,
    SortingColumn,
)
from ags1.parquet.structure.footer import encode_footer
from ags1.parquet.structure.schema import Element
from ags1.parquet.structure.source_file import SourceFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    # For a field: whether it is shown; or a mapping with the same for each of its children, by name.
    Shown: TypeAlias = bool | list[tuple[str, "Shown"]]

_ARROW_SCHEMA = b"ARROW:schema"
_MAP, _MAP_KEY_VALUE, _LIST = 1, 2, 3


def kept_leaves(file: SourceFile, wanted: Sequence[bool]) -> list[bool]:
    """The leaves that a view shows, if the marked ones are requested.

    A list or a map is shown whole or not at all: without one of its leaves it would have another type.
    """
    kept = list(wanted)

    def leaves(element: Element) -> list[int]:
        if element.index is not None:
            return [element.index]
        return [each for child in element.children for each in leaves(child)]

    def visit(element: Element) -> None:
        below = leaves(element)
        if element.path and _is_collection(element.structure) and not all(kept[each] for each in below):
            for each in below:
                kept[each] = False
        for child in element.children:
            visit(child)

    visit(_root(file))
    return kept


def _root(file: SourceFile) -> Element:
    assert file.schema is not None
    return file.schema


def _is_collection(structure: Struct) -> bool:
    if structure.integer(SchemaElement.REPETITION_TYPE, 0) == 2 or structure.integer(SchemaElement.CONVERTED_TYPE) in (
        _MAP,
        _MAP_KEY_VALUE,
        _LIST,
    ):
        return True
    logical = structure.struct(SchemaElement.LOGICAL_TYPE)
    return logical is not None and any(arm in (LogicalType.MAP, LogicalType.LIST) for arm in logical.ids())


def encode_view_footer(file: SourceFile, groups: Sequence[Sequence[SourceChunk]], kept: Sequence[bool]) -> bytes:
    """Footer of the plaintext view of a file with all chunks of all row groups; `kept` leaves are shown."""
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
        # Rows sorted within a column that is left out are not sorted without it.
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

    def visit(element: Element) -> bool:
        if element.index is not None:
            if kept[element.index]:
                shown.append(element.structure)
            return kept[element.index]
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

    visit(_root(file))
    if not shown:
        raise FormatError(f"{file.where}the schema has no elements")
    return shown


def _prune_arrow_schema(file: SourceFile, metadata: Struct, kept: Sequence[bool]) -> None:
    pairs = metadata.list(FileMetaData.KEY_VALUE_METADATA)
    if pairs is None:
        return

    def shown(element: Element) -> Shown:
        if element.index is not None:
            return kept[element.index]
        below = [(child.path[-1], shown(child)) for child in element.children]
        found = {children if isinstance(children, bool) else None for _, children in below}
        # Collections are shown whole or not at all, so only a struct can lose some of its children.
        return below if found != {True} and found != {False} else found == {True}

    others: list[Any] = []
    for pair in pairs:
        if isinstance(pair, Struct) and pair.binary(KeyValue.KEY) == _ARROW_SCHEMA:
            top = [(child.path[-1], shown(child)) for child in _root(file).children]
            schema = _without_fields(pair.binary(KeyValue.VALUE, b""), top)
            if schema is None:
                continue
            pair = pair.copy()
            pair.set(KeyValue.VALUE, BINARY, schema)
        others.append(pair)
    if others:
        metadata.set(FileMetaData.KEY_VALUE_METADATA, LIST, List(STRUCT, others))
    else:
        metadata.remove(FileMetaData.KEY_VALUE_METADATA)


def _without_fields(encoded: bytes, shown: list[tuple[str, Shown]]) -> bytes | None:
    """The Arrow schema that Arrow writers store, with the shown fields only; None if it cannot be made.

    Arrow matches the schema with the Parquet schema field by field, so a schema with more columns would be wrong.
    Without PyArrow it cannot be made.

    `encoded` is the value of the key "ARROW:schema": an IPC message in base64.
    """
    try:
        import pyarrow
    except ImportError:
        return None
    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(encoded)))
        fields = _arrow_fields(list(schema), shown)
        if fields is None:
            return None
        message = pyarrow.schema(fields, schema.metadata).serialize()
    except (ValueError, OSError, pyarrow.ArrowException):
        # The file is complete without it.
        return None
    return base64.b64encode(message)


def _arrow_fields(fields: list[Any], shown: list[tuple[str, Shown]]) -> list[Any] | None:
    import pyarrow

    if [field.name for field in fields] != [name for name, _ in shown]:
        return None
    kept = []
    for field, (_, children) in zip(fields, shown, strict=True):
        if isinstance(children, bool):
            if children:
                kept.append(field)
            continue
        if not pyarrow.types.is_struct(field.type):
            return None
        below = _arrow_fields(list(field.type), children)
        if below is None:
            return None
        kept.append(field.with_type(pyarrow.struct(below)))
    return kept
