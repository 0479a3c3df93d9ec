"""The base of all reports: what an operation did or found. No report contains a key.

Attributes have locations as they are. Text, JSON values and ``repr()`` are without the secrets of URLs.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from ags1.errors import without_secrets
from ags1.support.typing import Any
from ags1.support.words import printable

UNCHECKED = "no key was checked: the KMS URL has check=no, and a key that the service does not open is noticed too late"


class Record:
    """What a report has many of; a dataclass."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A dataclass keeps the `__repr__` that its class has itself.
        if "__repr__" not in cls.__dict__:
            cls.__repr__ = Record.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return without_secrets(f"{type(self).__name__}({shown})")

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return _fields(self)


class Report(Record):
    """A result with `ok`, `to_dict()` and `str()`; a dataclass.

    Attributes
    ----------
    keys_checked : bool
        False if the KMS URL has ``check=no``: nobody has opened the new wrapped keys again.
    """

    keys_checked = True

    @property
    def ok(self) -> bool:
        """Whether nothing failed. Always true where a failure is an exception."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """Return `ok` and all fields as JSON values."""
        return {"ok": self.ok, **_fields(self), **({} if self.keys_checked else {"keys_checked": False})}

    def __str__(self) -> str:
        """Return the report as text for people."""
        text = without_secrets(self._text())
        return text if self.keys_checked else f"{text}\n{UNCHECKED}"

    def _text(self) -> str:
        """Here a line for each field that is not empty."""
        shown = {name.replace("_", " "): value for name, value in _fields(self).items()}
        return "\n".join(
            printable(f"{name}: {', '.join(map(_shown, value)) if isinstance(value, list) else _shown(value)}")
            for name, value in shown.items()
            if value or type(value) is int
        )


def _fields(report: Any) -> dict[str, Any]:
    return {each.name: _json(getattr(report, each.name)) for each in fields(report)}


def _json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, dict):
        return {_json(key): _json(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json(each) for each in value]
    if isinstance(value, str):
        return without_secrets(value) if "://" in value else value
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, (int, float)) else str(value)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ": ".join(map(_shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    return f"{value:,}" if type(value) is int else str(value)
