"""Options of ``df.write.format("ags1")``. Those that a read has too have the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ags1.spark._source_options import (
    _READERS,
    _character,
    _character_or_none,
    _flag,
    _kms,
    _list,
    _refuse_secret,
    _size,
    canonical,
    meant,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["WriteOptions"]

GIB = 1 << 30
_LINES = ("none", "gzip")
# The first is what is taken if nothing is said. What is encrypted cannot be compressed any more.
_COMPRESSIONS = {
    "text": _LINES,
    "json": _LINES,
    "csv": _LINES,
    "avro": ("deflate", "none"),
    "arrow": ("none", "lz4", "zstd"),
    "parquet": ("snappy", "zstd", "gzip", "none"),
}
_CSV = frozenset({"header", "sep", "quote", "nullvalue"})


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write, checked. Holds no secret and can be pickled.

    Attributes
    ----------
    path : str
        The dataset.
    kms : str
        URL of the KMS, as :func:`ags1.kms.load` takes it.
    key_id : str
        The master key; "" for that of the dataset, which has to be there then.
    decode : str
        What a read needs to read it: text, json, csv, avro, arrow or parquet. Parquet files are plain ones inside of
        AGS1; those with Parquet's own encryption come of :func:`ags1.spark.encrypt_parquet`.
    compression : str
        Inside of the encryption: gzip for text, json and csv; deflate for avro; lz4 or zstd for arrow; snappy, zstd or
        gzip for parquet; or none. Files of lines that are gzip are read by one task each, so `max_file_bytes`, of the
        compressed text, says how far a read can be spread.
    max_file_bytes : int
        Plaintext after which a task begins another file.
    partition_by : tuple of str
        Columns that become directories ``a=1/b=2``; Spark does not tell Python sources of ``partitionBy``.
    header, sep, quote, null_value
        Of CSV.
    """

    path: str
    kms: str
    key_id: str = ""
    decode: str = ""
    compression: str = ""
    max_file_bytes: int = GIB
    partition_by: tuple[str, ...] = ()
    header: bool = False
    sep: str = ","
    quote: str = '"'
    null_value: str = ""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read options as Spark gives them.

        Raises
        ------
        ValueError
            An unknown option, one with a wrong value, a secret, or one that is missing. A secret's value is not
            repeated.
        """
        values: dict[str, Any] = {}
        for name, text in options.items():
            plain = canonical(name)
            if plain not in _WRITERS:
                _refuse_secret(plain, name)
                reads = (
                    f"is for reading; a write of {_FORMAT}"
                    if plain in _READERS
                    else f"is unknown{meant(plain, _WRITERS)}: a write of {_FORMAT}"
                )
                raise ValueError(f"the option {name[:40]!r} {reads} has {', '.join(sorted(_shown_names()))}")
            field, read = _WRITERS[plain]
            try:
                values[field] = read(text)
            except ValueError as error:
                raise ValueError(f"the option {field} {error}") from None
            if plain in _CSV and values.get("decode", options.get("decode", "").strip().lower()) != "csv":
                raise ValueError(f"the option {field} is for decode=csv")
        for field, what in _NEEDED.items():
            if not values.get(field):
                raise ValueError(what)
        known = _COMPRESSIONS[values["decode"]]
        if values.setdefault("compression", known[0]) not in known:
            raise ValueError(f"the option compression must be one of {', '.join(known)} for decode={values['decode']}")
        if len(set(values.get("partition_by", ()))) != len(values.get("partition_by", ())):
            raise ValueError("the option partition_by names a column twice")
        return cls(**values)


_FORMAT = 'format("ags1")'
_NEEDED = {
    "path": f"give a path: df.write.{_FORMAT}.save(PATH)",
    "kms": "where is the master key? Give the option kms, a URL as ags1.kms.load takes it",
    "decode": f"what is to be written? Give the option decode: {', '.join(_COMPRESSIONS)}",
}


def _path(text: str) -> str:
    return text


def _decode(text: str) -> str:
    found = text.strip().lower()
    if found not in _COMPRESSIONS:
        raise ValueError(f"must be one of {', '.join(_COMPRESSIONS)}, not {text!r}")
    return found


def _lower(text: str) -> str:
    found = text.strip().lower()
    return {"uncompressed": "none", "null": "none", "gz": "gzip"}.get(found, found)


_WRITERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "path": ("path", _path),
    "kms": ("kms", _kms),
    "keyid": ("key_id", str),
    "decode": ("decode", _decode),
    "compression": ("compression", _lower),
    "maxfilebytes": ("max_file_bytes", _size),
    "partitionby": ("partition_by", _list),
    "header": ("header", _flag),
    "sep": ("sep", _character),
    "quote": ("quote", _character_or_none),
    "nullvalue": ("null_value", str),
}


def _shown_names() -> list[str]:
    return [field for field, _ in _WRITERS.values()]
