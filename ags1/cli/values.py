"""Types and actions for argparse: they check the values of options, and their errors name the expected form."""

from __future__ import annotations

import argparse
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable
    from typing import Any

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_MAX_BLOCK_LENGTH = (1 << 31) - 1
_REPORT_ENDINGS = (".parquet", ".json", ".jsonl")
_SECRET = re.compile(r"secret|passw|account[.-]?key|connection-string|sas[.-]token|credential$|token$", re.IGNORECASE)
# Settings of Kubernetes name its secrets, and names of files or classes are not secret.
_NO_SECRET = re.compile(r"^spark\.kubernetes\.|(file|path|provider|class|enabled)$", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Whether the value of this setting is a secret, which other users could read in the arguments."""
    return _SECRET.search(name) is not None and _NO_SECRET.search(name) is None


# -- values --------------------------------------------------------------------------------------------------------


def _refused(text: str, wanted: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"{text!r} is not {wanted}")


def integer(wanted: str, *, least: int = 0) -> Callable[[str], int]:
    """A type for a number; `wanted` describes it in the error."""

    def value(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) < least:
            raise _refused(text, wanted)
        return int(text)

    return value


count = integer("a number of 1 or more", least=1)
version = integer("a version such as 7")
rows = integer("a number of rows")
attempts = integer("a number of attempts, at least 1", least=1)


def directory(text: str) -> str:
    if text == "-":
        raise argparse.ArgumentTypeError("- is a stream, and this takes a directory or URL (./- is one of that name)")
    return text


def percent(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < 100:
        raise _refused(text, "a percentage above 0 and below 100, such as 5")
    return found


def threads(text: str) -> int:
    return min(count(text), 1024)


def kept(text: str) -> int:
    if version(text) < 1:
        raise argparse.ArgumentTypeError("the last version always stays: at least 1")
    return int(text)


def size(text: str) -> int:
    """A number of bytes: 4096, 64K, 16M, 2G (powers of 1024)."""
    digits, unit = (text[:-1], text[-1].upper()) if text[-1:].upper() in _UNITS else (text, "")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise _refused(text, "a number of bytes such as 4096, 64K, 16M or 2G")
    return int(digits) << _UNITS.get(unit, 0)


def some_bytes(text: str) -> int:
    found = size(text)
    if found < 1:
        raise argparse.ArgumentTypeError("at least 1 byte is needed")
    return found


def block_length(text: str) -> int:
    found = size(text)
    if not 1 <= found <= _MAX_BLOCK_LENGTH:
        raise argparse.ArgumentTypeError(f"a block has 1 to {_MAX_BLOCK_LENGTH} bytes, not {text}")
    return found


def duration(text: str) -> float:
    """Seconds: 90s, 30m, 24h, 5d, 2w; 0."""
    if text == "0":
        return 0.0
    digits, unit = text[:-1], text[-1:].lower()
    if unit not in _SECONDS or not (digits.isascii() and digits.isdigit()) or len(digits) > 9:
        raise _refused(text, "a time such as 90s, 30m, 24h, 5d or 2w")
    return float(int(digits) * _SECONDS[unit])


def moment(text: str) -> datetime.datetime | int:
    """A time, or milliseconds since 1970."""
    import datetime

    if text.isascii() and text.isdigit() and 11 <= len(text) <= 15:
        return int(text)
    try:
        # Python 3.10 reads neither a Z nor a fraction with other than 3 or 6 digits.
        return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
    except ValueError:
        raise _refused(text, "a time such as 2026-11-01, 2026-11-01T12:30:00Z, or milliseconds since 1970") from None


def snapshot(text: str) -> int | str | None:
    if text in ("all", "current"):
        return None if text == "current" else text
    if re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither the id of a snapshot (`ags1 iceberg inspect` shows them), nor all, nor current"
        )
    return int(text)


def snapshot_id(text: str) -> int:
    found = snapshot(text)
    if not isinstance(found, int):
        raise _refused(text, "the id of a snapshot (`ags1 iceberg inspect` shows them)")
    return found


def prefix_text(text: str) -> str:
    """An AAD prefix in which ``{path}`` and ``{name}`` stand for those of a file."""
    # A misspelt name would give all files one prefix, so that they could be exchanged unnoticed.
    for unknown in set(re.findall(r"\{\w+\}", text)) - {"{path}", "{name}"}:
        raise argparse.ArgumentTypeError(
            f"{unknown} is unknown: write {{path}} or {{name}}, or for this text itself, --aad-prefix-hex"
        )
    return text


def hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise _refused(text, "hexadecimal") from None


def key_bytes(text: str) -> int:
    """Bytes of a key of so many bits."""
    if text not in ("128", "192", "256"):
        raise _refused(text, "128, 192 or 256")
    return int(text) // 8


def report(text: str) -> str:
    if not text.lower().endswith(_REPORT_ENDINGS):
        raise argparse.ArgumentTypeError(f"a report ends with {', '.join(_REPORT_ENDINGS)}: {text!r} does not")
    return text


def column_names(text: str) -> list[str | tuple[str, ...]]:
    r"""Names of columns with commas between them; ``\,`` and ``\.`` are a comma and a dot inside a name."""
    names: list[str | tuple[str, ...]] = []
    for piece in re.split(r"(?<!\\),", text):
        name = piece.replace("\\,", ",")
        if not name:
            raise argparse.ArgumentTypeError("there is an empty column name")
        if "\\." in name:
            names.append(tuple(part.replace("\\.", ".") for part in re.split(r"(?<!\\)\.", name)))
        else:
            names.append(name)
    return names


class Names(argparse.Action):
    """COLUMNS into a tuple."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), *values))


class Pair(argparse.Action):
    """LEFT=RIGHT into a dict; each left side may appear once."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        left, equals, right = values.partition("=")
        if not equals or not left or not self.is_right(right):
            raise argparse.ArgumentError(self, f"needs {self.metavar}{self.example}")
        found = dict(getattr(namespace, self.dest) or {})
        self.take(found, left, right)
        setattr(namespace, self.dest, found)

    example = ""

    def is_right(self, right: str) -> bool:
        return bool(right)

    def take(self, found: dict[Any, Any], left: str, right: str) -> None:
        if found.setdefault(left, right) != right:
            raise argparse.ArgumentError(self, f"has {left} twice")


class Setting(Pair):
    """NAME=VALUE; the value may be empty. Secrets are refused."""

    def is_right(self, right: str) -> bool:
        return True

    def take(self, found: dict[Any, Any], left: str, right: str) -> None:
        if is_secret_name(left):
            raise argparse.ArgumentError(
                self,
                f"{left} is a secret, and other users can read the arguments: put it into spark-defaults.conf, "
                "or use the environment, a profile or a role",
            )
        found[left] = right


class ColumnIds(Pair):
    """COLUMNS=ID, as a dict of the ids with lists of columns."""

    example = ", such as ssn,salary=alias/pii"

    def take(self, found: dict[Any, Any], left: str, right: str) -> None:
        found[right] = [*found.get(right, ()), *_names_of(self, left)]


class ColumnTexts(argparse.Action):
    """COLUMNS=VALUE, as pairs of a list of columns and the value."""

    pattern = re.compile("([^=]*)=(.*)", re.DOTALL)
    wanted = "COLUMNS=TEXT"

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        match = self.pattern.fullmatch(values)
        if match is None:
            raise argparse.ArgumentError(self, f"needs {self.wanted}")
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), (self.left(match[1]), match[2])])

    def left(self, text: str) -> Any:
        return _names_of(self, text)


class ColumnKeys(ColumnTexts):
    """COLUMNS=file:PATH and COLUMNS=env:NAME, as pairs of a list of columns and the reference to the key."""

    pattern = re.compile(r"(.*?)=((?:file|env):.*)", re.DOTALL)
    wanted = "COLUMNS=file:PATH or COLUMNS=env:NAME, such as ssn,salary=file:s.key"


class MetadataKeys(ColumnKeys):
    """METADATA=file:PATH and METADATA=env:NAME, as pairs of texts."""

    wanted = "METADATA=file:PATH or METADATA=env:NAME"

    def left(self, text: str) -> str:
        return text


def _names_of(action: argparse.Action, text: str) -> list[str | tuple[str, ...]]:
    try:
        return column_names(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentError(action, str(error)) from None
