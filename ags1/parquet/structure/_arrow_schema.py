"""The copy of the Arrow schema that Arrow writers store in the footer, reduced to the columns that a view shows.

Arrow matches it with the Parquet schema field by field, so a schema with more columns would be wrong.
"""

from __future__ import annotations

import base64

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    # For a field: whether it is shown; or a mapping with the same for each of its children, by name.
    Shown: TypeAlias = bool | list[tuple[str, "Shown"]]

KEY = b"ARROW:schema"


def without_fields(encoded: bytes, shown: list[tuple[str, Shown]]) -> bytes | None:
    """The schema with only the fields that are shown; None if it cannot be made, also where PyArrow is missing.

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
        # The file is complete without it.
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
