"""A limit for Avro blocks whose few bytes become very many objects in memory, such as arrays of tiny records.

A record of one byte becomes a dict of two hundred bytes. Writers make blocks of about 64 KiB, which cannot have many
records. The items of a larger block are counted before it is decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ags1.errors import UnsupportedError

# Items of arrays and maps that are no numbers or texts: a block may have _FREE_ITEMS, and one more per _BYTES_PER_ITEM.
_FREE_ITEMS, _BYTES_PER_ITEM = 1 << 20, 16
_FIXED = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_INTEGERS, _TEXTS = ("int", "long", "enum"), ("string", "bytes")
_MOST_BITS = 70

# Takes the position of a value, and returns the position after it.
_Skip = Callable[[bytes, int], int]


class ItemBound:
    """Counts the items in the blocks of one container.

    Parameters
    ----------
    schema : object
        The JSON value by which fastavro decodes the rows, checked by :func:`ags1.avro.check_schema`.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._skip: _Skip | None = None
        self._named: dict[str, _Skip] = {}
        self._left = 0

    def check(self, count: int, data: bytes) -> None:
        """Refuse a block of `count` rows with more items than its bytes allow.

        Raises
        ------
        UnsupportedError
            The block has more.
        """
        if len(data) <= _FREE_ITEMS:
            # An item has at least one byte.
            return
        if self._skip is None:
            from fastavro import parse_schema

            self._skip = self._value(parse_schema(self._schema, {}, _force=True))
        self._left = most = _FREE_ITEMS + len(data) // _BYTES_PER_ITEM
        position = 0
        try:
            for _ in range(count):
                position = self._skip(data, position)
        except IndexError:
            # The rows are damaged: the decoder raises the error.
            return
        except _TooMany:
            raise UnsupportedError(
                f"an Avro block of {len(data):,} bytes has more than {most:,} items in its arrays and maps, which is "
                "not read: if it is meant to be, write the file again, with smaller blocks"
            ) from None

    def _value(self, schema: Any) -> _Skip:
        if isinstance(schema, list):
            branches = [self._value(each) for each in schema]

            def union(data: bytes, at: int) -> int:
                index, at = _number(data, at)
                if index < 0:
                    raise IndexError
                return branches[index](data, at)

            return union
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, (dict, list)):
            return self._value(kind)
        if kind in ("array", "map"):
            return self._items(schema)
        if kind == "fixed":
            made = _by(schema["size"])
        elif kind in ("record", "error"):
            made = self._record(schema)
        elif kind in _FIXED:
            return _by(_FIXED[kind])
        elif kind in _TEXTS:
            return _text
        elif kind in _INTEGERS:
            made = _integer
        else:
            return self._named[kind]
        if isinstance(schema, dict) and "name" in schema:
            self._named[schema["name"]] = made
        return made

    def _record(self, schema: Any) -> _Skip:
        fields = [self._value(each["type"]) for each in schema["fields"]]

        def record(data: bytes, at: int) -> int:
            for each in fields:
                at = each(data, at)
            return at

        return record

    def _items(self, schema: Any) -> _Skip:
        is_map = schema["type"] == "map"
        item = schema["values" if is_map else "items"]
        skip = self._value(item)
        if isinstance(item, dict) and "logicalType" not in item:
            item = item["type"]
        is_counted = not isinstance(item, str) or item not in (*_FIXED, *_INTEGERS, *_TEXTS)
        size = None if is_counted or is_map else _FIXED.get(item)

        def items(data: bytes, at: int) -> int:
            while True:
                count, at = _number(data, at)
                if count == 0:
                    return at
                if count < 0:
                    count = -count
                    _, at = _number(data, at)
                if is_counted:
                    self._left -= count
                    if self._left < 0:
                        raise _TooMany
                if size is not None:
                    at += count * size
                    continue
                for _ in range(count):
                    at = skip(data, _text(data, at) if is_map else at)

        return items


class _TooMany(Exception):
    pass


def _by(size: int) -> _Skip:
    return lambda _, at: at + size


def _integer(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _text(data: bytes, at: int) -> int:
    length, at = _number(data, at)
    if length < 0:
        raise IndexError
    return at + length


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and the position after it."""
    octet = data[at]
    value, shift = octet & 0x7F, 7
    while octet & 0x80:
        at += 1
        octet = data[at]
        value |= (octet & 0x7F) << shift
        shift += 7
        if shift > _MOST_BITS:
            raise IndexError
    return (value >> 1) ^ -(value & 1), at + 1
