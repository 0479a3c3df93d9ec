"""The copy of the Arrow schema that Arrow's writers put into the footer, without columns that a file does not show.

Arrow lays it over the Parquet schema field by field, so one of all columns would be wrong for fewer.
"""

from __future__ import annotations

import base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    # Of a field: whether it is shown, or what is of each of its children, by name.
    Shown: TypeAlias = bool | list[tuple[str, "Shown"]]

KEY = b"ARROW:schema"


def without_fields(encoded: bytes, shown: list[tuple[str, Shown]]) -> bytes | None:
    """The schema with only the fields that are shown; None if that cannot be told, also where PyArrow is missing.

    `encoded` is the value of the key "ARROW:schema": an IPC message in base64.
    """
    try:
        import pyarrow
    except ImportError:
        return None
    try:
        schema = pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(encoded)))
        fields = _fields(list(schema), shown)
        if fields is None:
            return None
        message = pyarrow.schema(fields, schema.metadata).serialize()
    except (ValueError, OSError, pyarrow.ArrowException):
        # It is nothing that the file needs.
        return None
    return base64.b64encode(message)


def _fields(fields: list[Any], shown: list[tuple[str, Shown]]) -> list[Any] | None:
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
        below = _fields(list(field.type), children)
        if below is None:
            return None
        kept.append(field.with_type(pyarrow.struct(below)))
    return kept
