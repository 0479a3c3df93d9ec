"""Options of ``format("ags1")``: their names, how their texts are parsed, and which are refused.

:mod:`ags1.spark.source.data_source` documents each. Spark passes every option as text, in any case; ``split_bytes`` and
``splitBytes`` are the same. Options are pickled, sent to executors and kept in plans, so none of them may be a secret:
keys come by reference.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

    from ags1.spark.engine._captured import CapturedSession

DECODES = ("binary", "text", "json", "csv", "avro", "arrow", "parquet")
PERMISSIVE, DROP, FAIL = MODES = ("permissive", "dropmalformed", "failfast")
MIB = 1 << 20

# Names in other formats and tools.
_CALLED = {
    "format": "decode",
    "kmsurl": "kms",
    "version": "expectedversion",
    "codec": "compression",
    "maxpartitionbytes": "splitbytes",
    "filename": "pathcolumn",
    "nullvalues": "nullvalue",
}
_ALIASES = {
    "corruptcolumn": "columnnameofcorruptrecord",
    "delimiter": "sep",
    "lineseparator": "linesep",
    "paths": "path",
    "ignoreleadingwhitespace": "trimleft",
    "ignoretrailingwhitespace": "trimright",
    "primitivesasstring": "asstrings",
}
# Options of Spark's own sources that are not here: values that mean what is done anyway, and what to do instead.
_TRUE, _FALSE = ("true",), ("false",)
_AS_STRING = "use a column of strings, with {} after reading, or date_format before writing"
_NO_LIMIT = "there is no limit"
_STRICT = "read the lines with decode=text, and use from_json with this option"
_OF_SPARK: dict[str, tuple[tuple[str, ...], str]] = {
    "encoding": (("utf-8", "utf8"), "only UTF-8 is read: use decode=binary, and decode(content, charset)"),
    "dateformat": ((), _AS_STRING.format("to_date")),
    "timestampformat": ((), _AS_STRING.format("to_timestamp")),
    "timestampntzformat": ((), _AS_STRING.format("to_timestamp_ntz")),
    "enabledatetimeparsingfallback": (_TRUE, _AS_STRING.format("to_date or to_timestamp")),
    "locale": (("en-us", "en_us"), "read the column as a string, and use to_number or to_date"),
    "preferdate": (_TRUE, "give a schema with .schema(...)"),
    "infertimestamp": (_FALSE, "give a schema with .schema(...)"),
    "prefersdecimal": (_FALSE, "give a schema with .schema(...)"),
    "dropfieldifallnull": (_FALSE, "give a schema with .schema(...)"),
    "samplingratio": (("1", "1.0"), "sampling_bytes limits what is looked at"),
    "mergeschema": (_FALSE, "the schema is that of the first file: give one with .schema(...)"),
    "pathglobfilter": ((), "include has globs of paths, such as include=*.csv"),
    "recursivefilelookup": (
        (), "all directories are read; partition_discovery=false makes no columns of them, and prefix chooses one"
    ),
    "modifiedbefore": ((), "choose files with include, exclude or prefix"),
    "modifiedafter": ((), "choose files with include, exclude or prefix"),
    "latestfirst": (_FALSE, "files come in the order of versions; starting_version says where to begin"),
    "maxfileage": ((), "starting_version says where to begin"),
    "cleansource": (("off",), "ags1 dataset expire removes what is not needed any more"),
    "startingtimestamp": ((), "starting_version says where to begin; versions have the times"),
    "basepath": ((), "load the dataset, and choose a directory with prefix"),
    "ignoremissingfiles": (_FALSE, "use on_error=skip"),
    "ignorecorruptfiles": (_FALSE, "use on_error=skip; what is not authentic fails always"),
    "unescapedquotehandling": (("stop_at_delimiter",), "use decode=text, and from_csv with this option"),
    "chartoescapequoteescaping": ((), "it is the option escape"),
    "maxcolumns": ((), _NO_LIMIT),
    "maxcharspercolumn": (("-1",), _NO_LIMIT),
    "inputbuffersize": ((), "use batch_bytes"),
    "quoteall": (_FALSE, "values are quoted where they have to be"),
    "escapequotes": (_TRUE, "values with quotes are quoted"),
    "ignorenullfields": (_TRUE, "fields that are null are left out"),
    "allowcomments": (_FALSE, _STRICT),
    "allowunquotedfieldnames": (_FALSE, _STRICT),
    "allowsinglequotes": (_TRUE, _STRICT),
    "allownumericleadingzeros": (_FALSE, _STRICT),
    "allownonnumericnumbers": (_TRUE, _STRICT),
    "allowbackslashescapinganycharacter": (_FALSE, _STRICT),
    "allowunquotedcontrolchars": (_FALSE, _STRICT),
    "singlevariantcolumn": ((), "read the lines with decode=text, and use parse_json"),
    "datetimerebasemode": (("corrected",), "files with dates in the old calendar are refused"),
    "int96rebasemode": (("corrected",), "files with dates in the old calendar are refused"),
}  # fmt: skip
_OF_SPARK["charset"] = _OF_SPARK["encoding"]
# Likely names of secrets, without separators. Options that only refer to a secret are allowed.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|apikey|accesskey|privatekey|key$|keys$|^pin$|^dek$"
)
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_SCALES = {"": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30}
_MAX_APPLICATION = 255
LINE_DECODES = frozenset({"text", "json", "csv"})
_RECORDS = frozenset({"json", "csv"})
_CSV = frozenset({"csv"})
_PARQUET = frozenset({"parquet"})


# -- how texts are read ------------------------------------------------------------------------------------------------


def _flag(text: str) -> bool:
    value = text.strip().lower()
    if value not in ("true", "false"):
        raise ValueError(f"must be true or false, not {text!r}")
    return value == "true"


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    size = int(found[1]) * _SCALES[found[2].lower()] if found is not None else 0
    if size < 1:
        raise ValueError(f"must be a number of bytes, such as 268435456 or 256m, not {text!r}")
    return size


def _count(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"must be a number from 1, not {text!r}")
    return int(text)


def _version(text: str) -> int:
    if not text.strip().isdecimal():
        raise ValueError(f"must be a number, not {text!r}")
    return int(text)


def _long(text: str) -> int:
    if _version(text) >= 1 << 63:
        raise ValueError(f"must be below 2^63, not {text!r}")
    return int(text)


def _application(text: str) -> str:
    if len(text) > _MAX_APPLICATION:
        raise ValueError(f"must have at most {_MAX_APPLICATION} characters, not {len(text):,}")
    return text


def _timestamp(text: str) -> str:
    import datetime

    try:
        datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"must be a date or a time, such as 2026-01-31 or 2026-01-31 12:00:00, not {text!r}") from None
    return text.strip()


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text.strip().lower()

    return read


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
    return text


def _pushdown(text: str) -> bool:
    value = text.strip().lower()
    if value == "true":
        # Measured with 4.1.4 and 4.3.0: Spark keeps one read plan for a loaded DataFrame, that of the last query with
        # filters, and uses it for all other queries on the same DataFrame.
        raise ValueError(
            "must be once, not true: Spark up to 4.3 gives what one query spares to the next query on the same "
            "DataFrame too, and rows are missing there. pushdown=once says that each DataFrame is loaded for one "
            "query, in which it stands once; the options prefix, include and exclude are safe everywhere"
        )
    if value not in ("false", "once"):
        raise ValueError(f"must be false or once, not {text!r}")
    return value == "once"


def _separator(text: str) -> bytes:
    if not text:
        raise ValueError("must not be empty")
    return text.encode()


def _character(text: str) -> str:
    text = "\t" if text == "\\t" else text
    if len(text.encode()) != 1 or text in "\r\n":
        raise ValueError(f"must be one ASCII character, not {text!r}")
    return text


def _character_or_none(text: str) -> str:
    return _character(text) if text else ""


def _zone(text: str) -> str:
    from ags1.spark.source._zones import zone_of

    try:
        zone_of(text)
    except ValueError:
        raise ValueError(f"must be a time zone, such as Europe/Berlin, not {text!r}") from None
    return text


def _hex(text: str) -> str:
    try:
        bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"must be hexadecimal, not {text!r}") from None
    return text


def _directory(text: str) -> str:
    return text.strip("/")


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
    timestamp_as_of: str = _option("", _timestamp)
    key_id: str = _option("")
    keyref: str = _option("", _keyref)
    aad_prefix: str = _option("")
    aad_prefix_hex: str = _option("", _hex)
    trust_fs_length: bool = _option(False, _flag)
    include: tuple[str, ...] = _option((), _list)
    exclude: tuple[str, ...] = _option((), _list)
    prefix: str = _option("", _directory)
    decode: str = _option("binary", _one_of(*DECODES))
    content: bool = _option(True, _flag, frozenset({"binary"}))
    columns: tuple[str, ...] = _option((), _list)
    path_column: str = _option("")
    partition_discovery: bool = _option(True, _flag)
    split_bytes: int = _option(256 * MIB, _size)
    batch_bytes: int = _option(4 * MIB, _size)
    min_partitions: int = _option(1, _count)
    threads: int = _option(1, _count)
    mode: str = _option(PERMISSIVE, _one_of(*MODES), _RECORDS)
    corrupt_column: str = _option("_corrupt_record", str, _RECORDS)
    on_error: str = _option("fail", _one_of("fail", "skip"))
    pushdown: bool = _option(False, _pushdown)
    sampling_bytes: int = _option(0, _size, _RECORDS)
    """0 for all."""
    max_unpacked_bytes: int = _option(256 * MIB, _size, LINE_DECODES)
    line_sep: bytes = _option(b"", _separator, LINE_DECODES)
    """b"" for any of LF, CR LF and CR."""
    wholetext: bool = _option(False, _flag, frozenset({"text"}))
    multiline: bool = _option(False, _flag, _RECORDS)
    header: bool = _option(False, _flag, _CSV)
    infer_schema: bool = _option(False, _flag, _CSV)
    sep: str = _option(",", _character, _CSV)
    quote: str = _option('"', _character_or_none, _CSV)
    escape: str = _option("\\", _character_or_none, _CSV)
    comment: str = _option("", _character_or_none, _CSV)
    null_value: str = _option("", str, _CSV)
    empty_value: str = _option("", str, _CSV)
    nan_value: str = _option("NaN", str, _CSV)
    positive_inf: str = _option("Inf", str, _CSV)
    negative_inf: str = _option("-Inf", str, _CSV)
    trim_left: bool = _option(False, _flag, _CSV)
    trim_right: bool = _option(False, _flag, _CSV)
    enforce_schema: str = _option("", _one_of("true", "false"), _CSV)
    """Empty for a header that must have the columns of the schema."""
    as_strings: bool = _option(False, _flag, frozenset({"json"}))
    time_zone: str = _option("UTC", _zone)
    missing_keys: str = _option("error", _one_of("error", "drop"), _PARQUET)
    allow_plaintext: bool = _option(False, _flag, _PARQUET)
    session: CapturedSession | None = None
    """No option: what was registered with the data source."""

    @classmethod
    def parse(cls, options: Mapping[str, str], session: CapturedSession | None = None) -> Self:
        """Read options as Spark gives them. The message of a ValueError does not repeat a secret's value."""
        values = _values(cls, options)
        _check_decode(cls, values, values.get("decode", cls.decode))
        if session is not None and session.time_zone:
            values.setdefault("time_zone", _zone(session.time_zone))
        made = cls(**values, session=session)
        made._check()
        return made

    def _check(self) -> None:
        if not self.path:
            raise ValueError(
                f"give a path: spark.read.{_FORMAT}.load(PATH), or the option path. Of a table Spark hands on "
                "only the columns, so each query names the rest: SELECT * FROM t WITH (path = '...', kms = '...')"
            )
        if not self.kms and not self.keyref:
            raise ValueError(
                "where is the key? Give the option kms (a URL as ags1.kms.load takes it) for a dataset or encrypted "
                "Parquet files, or keyref=env:NAME or keyref=file:PATH for single AGS1 files"
            )
        if (self.version_as_of >= 0) + bool(self.timestamp_as_of) + (self.expected_version >= 0) > 1:
            raise ValueError("give only one of version_as_of, timestamp_as_of and expected_version")
        if not self.content and self.columns:
            raise ValueError("the options content=false and columns contradict each other")
        if self.aad_prefix and self.aad_prefix_hex:
            raise ValueError("give only one of aad_prefix and aad_prefix_hex")
        if len(self.path) > 1 and not self.keyref and self.decode != "parquet":
            raise ValueError("a dataset is one path; several paths are for AGS1 files with a keyref")
        if self.decode == "csv" and self.multiline and self.line_sep:
            raise ValueError("the options multiline and line_sep contradict each other for decode=csv")
        if self.decode == "csv" and self.sep in (self.quote, self.escape, self.comment):
            raise ValueError("the option sep must not be the quote, the escape or the comment")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("the option columns names a column twice")

    @property
    def whole_files(self) -> bool:
        """Whether files cannot be split."""
        return self.wholetext or self.multiline or _overlaps_itself(self.line_sep)


def _starting(text: str) -> str:
    found = text.strip().lower()
    if found not in ("earliest", "latest") and not (found.isdecimal() and int(found) > 0):
        raise ValueError(f"must be earliest, latest or a number from 1, not {text!r}")
    return found


@dataclass(frozen=True)
class StreamOptions(SourceOptions):
    """Options of a stream, checked: those of a read and four more. A limit of 0 is none."""

    starting_version: str = _option("earliest", _starting)
    max_versions_per_batch: int = _option(0, _count)
    max_files_per_trigger: int = _option(0, _count)
    max_bytes_per_trigger: int = _option(0, _size)


_LINES = ("none", "gzip")
# The first is the default. Encrypted data cannot be compressed afterwards.
_COMPRESSIONS = {
    "text": _LINES,
    "json": _LINES,
    "csv": _LINES,
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
    partition_by: tuple[str, ...] = _option((), _list)
    partition_overwrite_mode: str = _option("", _one_of("static", "dynamic"))
    txn_app_id: str = _option("", _application)
    txn_version: int = _option(-1, _long)
    """-1 for none."""
    header: bool = _option(False, _flag, _CSV)
    sep: str = _option(",", _character, _CSV)
    quote: str = _option('"', _character_or_none, _CSV)
    escape: str = _option("\\", _character_or_none, _CSV)
    null_value: str = _option("", str, _CSV)
    session: CapturedSession | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], session: CapturedSession | None = None) -> WriteOptions:
        values = _values(cls, options)
        for name, what in _NEEDED.items():
            if not values.get(name):
                raise ValueError(what)
        _check_decode(cls, values, values["decode"])
        known = _COMPRESSIONS[values["decode"]]
        if values.setdefault("compression", known[0]) not in known:
            raise ValueError(f"the option compression must be one of {', '.join(known)} for decode={values['decode']}")
        if len(set(values.get("partition_by", ()))) != len(values.get("partition_by", ())):
            raise ValueError("the option partition_by names a column twice")
        if bool(values.get("txn_app_id")) != ("txn_version" in values):
            raise ValueError("give the options txn_app_id and txn_version together")
        if values.get("partition_overwrite_mode") == "dynamic" and not values.get("partition_by"):
            raise ValueError("the option partition_overwrite_mode=dynamic needs partition_by too")
        return cls(**values, session=session)


_FORMAT = 'format("ags1")'
_NEEDED = {
    "path": (
        f"give a path: df.write.{_FORMAT}.save(PATH). Of a table Spark hands on only the columns, so each statement "
        "names the rest: INSERT INTO t WITH (path = '...', kms = '...', decode = '...') SELECT ..."
    ),
    "kms": "where is the master key? Give the option kms, a URL as ags1.kms.load takes it",
    "decode": f"what is to be written? Give the option decode: {', '.join(_COMPRESSIONS)}",
}


def canonical(name: str) -> str:
    """The canonical name of an option."""
    plain = name.lower().replace("_", "").replace("-", "")
    return _ALIASES.get(plain, plain)


def _known(cls: Any) -> dict[str, Any]:
    """The fields of a class of options, by their canonical names."""
    return {canonical(each.name): each for each in fields(cls) if each.metadata}


def refuse_table(options: Mapping[str, str]) -> None:
    """Refuse CREATE TABLE without columns, before it is made: Spark would not hand its options to any query."""
    if {"provider", "owner"} <= options.keys():
        raise ValueError(
            "Spark hands the options of a table to no query of a Python data source: CREATE TABLE t (id BIGINT, ...) "
            "USING ags1, with columns and without options, and SELECT * FROM t WITH (path = '...', kms = '...'), maybe "
            "as a view; or CREATE TEMPORARY VIEW v USING ags1 OPTIONS (path '...', kms '...')"
        )


_READ, _STREAM, _WRITE = _known(SourceOptions), _known(StreamOptions), _known(WriteOptions)


def _values(cls: Any, options: Mapping[str, str]) -> dict[str, Any]:
    known = _known(cls)
    found: dict[str, str] = {}
    for name, text in options.items():
        plain = canonical(name)
        if plain not in known:
            if plain in _OF_SPARK and text.strip().lower() in _OF_SPARK[plain][0]:
                continue
            raise _unknown(plain, name, known)
        # load() with several paths gives "paths".
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


def _unknown(plain: str, name: str, known: Mapping[str, Any]) -> ValueError:
    elsewhere = (
        (_READ, "reading: spark.read"), (_WRITE, "writing: df.write"), (_STREAM, "streams: spark.readStream")
    )  # fmt: skip
    for others, what in elsewhere:
        if plain in others:
            return ValueError(f"the option {name!r} is for {what}.{_FORMAT}")
    if plain in _OF_SPARK:
        usual, instead = _OF_SPARK[plain]
        but = f" but {' or '.join(usual)}" if usual else ""
        return ValueError(f"{_FORMAT} has no option {name!r}{but}: {instead}")
    if _SECRET.search(plain):
        return ValueError(
            f"the option {name[:40]!r} is refused: never put a secret into an option, which is kept in plans and "
            "sent to executors. Give a reference: kms=URL for a dataset, or keyref=env:NAME or keyref=file:PATH"
        )
    meant = _CALLED.get(plain) or next(iter(difflib.get_close_matches(plain, known, 1, 0.75)), "")
    guess = f" (is {known[meant].name} meant?)" if meant in known else ""
    names = ", ".join(sorted(each.name for each in known.values()))
    return ValueError(f"{_FORMAT} has no option {name[:40]!r}{guess}; it has {names}")


def _overlaps_itself(separator: bytes) -> bool:
    """Whether a separator can begin inside another one, so that only a read from the start separates them."""
    return any(separator[:count] == separator[-count:] for count in range(1, len(separator)))
