"""Options of ``format("ags1")``: their names, and how their texts are parsed.

:mod:`ags1.spark.source.data_source` documents each. Spark passes every option as text, in any case; ``split_bytes`` and
``splitBytes`` are the same. Options are pickled, sent to executors and kept in plans, so none of them may be a secret:
keys come by reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ags1.spark.engine.sealing import kms_reference

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

    from ags1.spark.engine.captured import CapturedSession

DECODES = ("binary", "text", "avro", "arrow", "parquet")
MIB = 1 << 20

_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_SCALES = {"": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30}
_TEXT, _PARQUET = frozenset({"text"}), frozenset({"parquet"})


# -- how texts are read ------------------------------------------------------------------------------------------------


def _matching(pattern: str, what: str, made: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """How a text is read that is of a form, in any case."""

    def read(text: str) -> Any:
        value = text.strip().lower()
        if re.fullmatch(pattern, value) is None:
            raise ValueError(f"must be {what}, not {text!r}")
        return made(value)

    return read


def _one_of(*choices: str) -> Callable[[str], str]:
    return _matching("|".join(choices), f"one of {', '.join(choices)}")


_flag = _matching("true|false", "true or false", "true".__eq__)
_version = _matching(r"\d+", "a number", int)
_count = _matching(r"0*[1-9]\d*", "a number from 1", int)
_starting = _matching(r"earliest|latest|0*[1-9]\d*", "earliest, latest or a number from 1")


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _SCALES[found[2].lower()] if found is not None else 0
    if size < 1:
        raise ValueError(f"must be a number of bytes, such as 268435456 or 256m, not {text!r}")
    return size


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _paths(text: str) -> tuple[str, ...]:
    """One path, or several: a JSON list from Spark, or separated by commas."""
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if isinstance(found, list) and all(isinstance(each, str) for each in found):
            return tuple(found)
    import os

    if "," in text and not os.path.lexists(text):
        return _list(text)
    return (text,) if text else ()


def _keyref(text: str) -> str:
    kind, colon, rest = text.partition(":")
    if not colon or kind not in ("env", "file") or not rest:
        # The text may be the key itself, so the message does not repeat it.
        raise ValueError("must be env:NAME or file:PATH: a reference to a key, never the key")
    return text


def _kms(text: str) -> str:
    if not text or ":" not in text:
        raise ValueError("must be a URL as ags1.kms.load takes it, such as aws: or local:PATH?key_file=PATH")
    return kms_reference(text)


def _separator(text: str) -> bytes:
    if not text:
        raise ValueError("must not be empty")
    return text.encode()


def _hex(text: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"must be hexadecimal, not {text!r}") from None
    return text


def _lower(text: str) -> str:
    found = text.strip().lower()
    return {"uncompressed": "none", "null": "none", "gz": "gzip"}.get(found, found)


# -- options -----------------------------------------------------------------------------------------------------------


def _option(default: Any, read: Callable[[str], Any] = str, only: frozenset[str] | None = None) -> Any:
    """An option: how its text is parsed, and which decoders use it. For the others it is an error."""
    return field(default=default, metadata={"read": read, "only": only})


@dataclass(frozen=True)
class SourceOptions:
    """Options of a read, checked. Holds no secret and can be pickled."""

    path: tuple[str, ...] = _option((), _paths)
    kms: str = _option("", _kms)
    expected_version: int = _option(-1, _version)
    """-1 for any."""
    version_as_of: int = _option(-1, _version)
    """-1 for the last."""
    key_id: str = _option("")
    keyref: str = _option("", _keyref)
    aad_prefix: str = _option("")
    aad_prefix_hex: str = _option("", _hex)
    trust_fs_length: bool = _option(False, _flag)
    include: tuple[str, ...] = _option((), _list)
    exclude: tuple[str, ...] = _option((), _list)
    prefix: str = _option("", lambda text: text.strip("/"))
    decode: str = _option("binary", _one_of(*DECODES))
    columns: tuple[str, ...] = _option((), _list)
    path_column: str = _option("")
    partition_discovery: bool = _option(True, _flag)
    split_bytes: int = _option(256 * MIB, _size)
    batch_bytes: int = _option(4 * MIB, _size)
    min_partitions: int = _option(1, _count)
    threads: int = _option(1, _count)
    on_error: str = _option("fail", _one_of("fail", "skip"))
    max_unpacked_bytes: int = _option(256 * MIB, _size, _TEXT)
    line_sep: bytes = _option(b"", _separator, _TEXT)
    """b"" for any of LF, CR LF and CR."""
    wholetext: bool = _option(False, _flag, _TEXT)
    missing_keys: str = _option("error", _one_of("error", "drop"), _PARQUET)
    allow_plaintext: bool = _option(False, _flag, _PARQUET)
    session: CapturedSession | None = None
    """No option: what was registered with the data source."""

    @classmethod
    def parse(cls, options: Mapping[str, str], session: CapturedSession | None = None) -> Self:
        """Read options as Spark gives them. The message of a ValueError does not repeat a secret's value."""
        values = _values(cls, options)
        _check_decode(cls, values, values.get("decode", cls.decode))
        made = cls(**values, session=session)
        made._check()
        return made

    def _check(self) -> None:
        if not self.path:
            raise ValueError(f"give a path: spark.read.{_FORMAT}.load(PATH), or the option path")
        if not self.kms and not self.keyref:
            raise ValueError(
                "where is the key? Give the option kms (a URL as ags1.kms.load takes it) for a dataset or encrypted "
                "Parquet files, or keyref=env:NAME or keyref=file:PATH for single AGS1 files"
            )
        if self.version_as_of >= 0 and self.expected_version >= 0:
            raise ValueError("give only one of version_as_of and expected_version")
        if self.aad_prefix and self.aad_prefix_hex:
            raise ValueError("give only one of aad_prefix and aad_prefix_hex")
        if len(self.path) > 1 and not self.keyref and self.decode != "parquet":
            raise ValueError("a dataset is one path; several paths are for AGS1 files with a keyref")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("the option columns names a column twice")

    @property
    def whole_files(self) -> bool:
        """Whether files cannot be split."""
        # A separator that can begin inside another one: only a read from the start separates them.
        end = self.line_sep
        return self.wholetext or any(end[:count] == end[-count:] for count in range(1, len(end)))


@dataclass(frozen=True)
class StreamOptions(SourceOptions):
    """Options of a stream, checked: those of a read and two more. A limit of 0 is none."""

    starting_version: str = _option("earliest", _starting)
    max_versions_per_batch: int = _option(0, _count)


# The first is the default. Encrypted data cannot be compressed afterwards.
_COMPRESSIONS = {
    "text": ("none", "gzip"),
    "avro": ("deflate", "none"),
    "arrow": ("none", "lz4", "zstd"),
    "parquet": ("snappy", "zstd", "gzip", "none"),
}


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write, checked. Options that a read also has keep their names. Holds no secret, can be pickled."""

    path: str = _option("")
    kms: str = _option("", _kms)
    key_id: str = _option("")
    decode: str = _option("", _one_of(*_COMPRESSIONS))
    compression: str = _option("", _lower)
    max_file_bytes: int = _option(1024 * MIB, _size)
    session: CapturedSession | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], session: CapturedSession | None = None) -> WriteOptions:
        """Read the options of a write. ValueError: one is missing or wrong."""
        values = _values(cls, options)
        for name, what in _NEEDED.items():
            if not values.get(name):
                raise ValueError(what)
        _check_decode(cls, values, values["decode"])
        known = _COMPRESSIONS[values["decode"]]
        if values.setdefault("compression", known[0]) not in known:
            raise ValueError(f"the option compression must be one of {', '.join(known)} for decode={values['decode']}")
        return cls(**values, session=session)


_FORMAT = 'format("ags1")'
_NEEDED = {
    "path": f"give a path: df.write.{_FORMAT}.save(PATH)",
    "kms": "where is the master key? Give the option kms, a URL as ags1.kms.load takes it",
    "decode": f"what is to be written? Give the option decode: {', '.join(_COMPRESSIONS)}",
}


def canonical(name: str) -> str:
    """The canonical name of an option."""
    plain = name.lower().replace("_", "").replace("-", "")
    # load() with several paths gives "paths".
    return "path" if plain == "paths" else plain


def _known(cls: Any) -> dict[str, Any]:
    """The fields of a class of options, by their canonical names."""
    return {canonical(each.name): each for each in fields(cls) if each.metadata}


def _values(cls: Any, options: Mapping[str, str]) -> dict[str, Any]:
    known = _known(cls)
    found: dict[str, str] = {}
    for name, text in options.items():
        plain = canonical(name)
        if plain not in known:
            names = ", ".join(sorted(each.name for each in known.values()))
            raise ValueError(
                f"{_FORMAT} has no option {name[:40]!r} here; it has {names}. A key is never an option: kms and keyref "
                "refer to keys"
            )
        if plain not in found or name.lower() == "path":
            found[plain] = text
    values: dict[str, Any] = {}
    for plain, text in found.items():
        each = known[plain]
        try:
            values[each.name] = each.metadata["read"](text)
        except ValueError as error:
            raise ValueError(f"the option {each.name} {error}") from None
    return values


def _check_decode(cls: Any, values: Mapping[str, Any], decode: str) -> None:
    """Refuse options that the decoder does not use: they are mistakes."""
    for each in _known(cls).values():
        only = each.metadata["only"]
        if each.name in values and only is not None and decode not in only:
            raise ValueError(f"the option {each.name} is for decode={' or '.join(sorted(only))}, not {decode}")
