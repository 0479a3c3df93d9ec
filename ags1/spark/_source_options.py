"""Options of ``format("ags1")``: what they are called, what they mean, and which are refused.

Spark gives every option as text, under any case; ``split_bytes`` and ``splitBytes`` are the same. Options are pickled,
sent to executors and kept in plans, so none of them may be a secret: keys come by reference.
"""

from __future__ import annotations

import codecs
import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "DECODES",
    "DROP",
    "FAIL",
    "LINE_DECODES",
    "PERMISSIVE",
    "STREAM_OPTIONS",
    "WRITE_ONLY",
    "SourceOptions",
    "canonical",
    "meant",
]

DECODES = ("binary", "text", "json", "csv", "avro", "arrow", "parquet")
PERMISSIVE, DROP, FAIL = MODES = ("permissive", "dropmalformed", "failfast")
MIB = 1 << 20

STREAM_OPTIONS = ("starting_version", "max_versions_per_batch")
"""Options of streams alone: see :class:`ags1.spark._source_stream.StreamReader`."""

WRITE_ONLY = ("compression", "max_file_bytes", "partition_by")
"""Options of writes alone: see :class:`ags1.spark._write_options.WriteOptions`."""

# What other formats and tools call them.
_CALLED = {
    "format": "decode",
    "pathglobfilter": "include",
    "kmsurl": "kms",
    "version": "expectedversion",
    "versionasof": "expectedversion",
    "codec": "compression",
    "maxpartitionbytes": "splitbytes",
    "filename": "pathcolumn",
    "nullvalues": "nullvalue",
}

# What people would write for a secret, without its separators. What is only a reference to one is fine.
_SECRET = re.compile(
    r"pass(word|wd|phrase)?$|secret|token|credential|apikey|accesskey|privatekey|key$|keys$|^pin$|^dek$"
)
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_SCALES = {"": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30}
_ALIASES = {
    "corruptcolumn": "columnnameofcorruptrecord",
    "delimiter": "sep",
    "charset": "encoding",
    "lineseparator": "linesep",
    "paths": "path",
}
LINE_DECODES = frozenset({"text", "json", "csv"})
_RECORDS = frozenset({"json", "csv"})
# Options that mean nothing to the other decoders: given there, they are a mistake that should be seen.
_ONLY_FOR = {
    "content": frozenset({"binary"}),
    "linesep": LINE_DECODES,
    "maxunpackedbytes": LINE_DECODES,
    "encoding": LINE_DECODES,
    "wholetext": frozenset({"text"}),
    "multiline": _RECORDS,
    "mode": _RECORDS,
    "columnnameofcorruptrecord": _RECORDS,
    "samplingbytes": _RECORDS,
    "timezone": _RECORDS,
    "header": frozenset({"csv"}),
    "sep": frozenset({"csv"}),
    "quote": frozenset({"csv"}),
    "escape": frozenset({"csv"}),
    "nullvalue": frozenset({"csv"}),
    "inferschema": frozenset({"csv"}),
    "missingkeys": frozenset({"parquet"}),
    "allowplaintext": frozenset({"parquet"}),
}


@dataclass(frozen=True)
class SourceOptions:
    """Options of a read, checked. Holds no secret and can be pickled.

    Attributes
    ----------
    path : tuple of str
        A dataset; or files, directories and globs.
    kms : str
        URL of the KMS, as :func:`ags1.kms.load` takes it.
    expected_version : int
        The version that the dataset must have; -1 for any.
    key_id : str
        The master key that the dataset must be under; "" for any.
    keyref : str
        ``env:NAME`` or ``file:PATH``: where the key of plain AGS1 files is.
    aad_prefix, aad_prefix_hex : str
        AAD prefix of plain AGS1 files; ``{name}`` and ``{path}`` in the text stand for those of each file.
    trust_fs_length : bool
        Say nothing about lengths of plain files that nobody vouches for but the file system.
    include, exclude : tuple of str
        Globs on relative paths, as :func:`ags1.dataset.encrypt` has them.
    prefix : str
        A directory in the dataset: only files below it are read.
    decode : str
        How the plaintext is read: one of DECODES.
    content : bool
        Whether ``binary`` gives the bytes, or only path, length, file_length and blocks.
    columns : tuple of str
        Columns that are wanted; all if it is empty. Spark tells Python sources of no projection.
    path_column : str
        A column of this name gets the path of the file; "" for none.
    partition_discovery : bool
        Whether directories like ``year=2026`` become columns.
    split_bytes, batch_bytes : int
        Plaintext of a task, and of an Arrow batch.
    min_partitions : int
        Smaller splits, so that there are about as many tasks.
    threads : int
        Threads that decrypt in a task.
    mode, corrupt_column : str
        What becomes of records that cannot be read: PERMISSIVE, DROP or FAIL; and the column for their text.
    on_error : str
        "fail" or "skip", for files that cannot be opened. What is not authentic always fails.
    pushdown : bool
        Whether Spark's filters prune files and row groups: ``once``, for a DataFrame that is loaded for one query and
        stands in it once; Spark up to 4.3 reads too little for any other. Needs the configuration
        spark.sql.python.filterPushdown.enabled.
    sampling_bytes : int
        How much is read to infer a schema.
    max_unpacked_bytes : int
        What a line of a gzip file may unpack to, and such a file that is read as one piece (`wholetext`, `multiline`).
    line_sep : bytes
        Separator of lines; b"" for any of LF, CR LF and CR.
    encoding : str
        Always UTF-8.
    wholetext, multiline : bool
        A file is one row of text, one JSON document, or CSV with line ends in quoted values: such files are not split.
    header, infer_schema : bool
        Whether CSV has names in its first line; whether types are guessed from a sample.
    sep, quote, escape, null_value : str
        Of CSV. Without `escape`, a quote inside quotes is doubled.
    time_zone : str
        Of times without one, in JSON and CSV.
    missing_keys : str
        "error" or "drop": what to do with columns of encrypted Parquet whose key the KMS refuses.
    allow_plaintext : bool
        Read Parquet files that are not encrypted, where they lie outside of AGS1.
    """

    path: tuple[str, ...] = ()
    kms: str = ""
    expected_version: int = -1
    key_id: str = ""
    keyref: str = ""
    aad_prefix: str = ""
    aad_prefix_hex: str = ""
    trust_fs_length: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    prefix: str = ""
    decode: str = "binary"
    content: bool = True
    columns: tuple[str, ...] = ()
    path_column: str = ""
    partition_discovery: bool = True
    split_bytes: int = 256 * MIB
    batch_bytes: int = 4 * MIB
    min_partitions: int = 1
    threads: int = 1
    mode: str = PERMISSIVE
    corrupt_column: str = "_corrupt_record"
    on_error: str = "fail"
    pushdown: bool = False
    sampling_bytes: int = MIB
    max_unpacked_bytes: int = 256 * MIB
    line_sep: bytes = b""
    encoding: str = "utf-8"
    wholetext: bool = False
    multiline: bool = False
    header: bool = False
    infer_schema: bool = False
    sep: str = ","
    quote: str = '"'
    escape: str = ""
    null_value: str = ""
    time_zone: str = "UTC"
    missing_keys: str = "error"
    allow_plaintext: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], further: Iterable[str] = ()) -> SourceOptions:
        """Read options as Spark gives them.

        Parameters
        ----------
        options : mapping
            Names and texts.
        further : iterable of str
            Names of options that are somebody else's.

        Raises
        ------
        ValueError
            An unknown option, one with a wrong value, a secret, or no path. A secret's value is not repeated.
        """
        known = {canonical(name): name for name in further}
        found: dict[str, str] = {}
        for name, text in options.items():
            plain = canonical(name)
            if plain in known:
                continue
            _refuse_secret(plain, name)
            if plain not in _READERS:
                raise _unknown(plain, name)
            # load() with several paths gives "paths".
            if plain not in found or name.lower() == "path":
                found[plain] = text
        values: dict[str, Any] = {}
        for plain, text in found.items():
            field, read = _READERS[plain]
            try:
                values[field] = read(text)
            except ValueError as error:
                raise ValueError(f"the option {field} {error}") from None
        made = cls(**values)
        for plain in found:
            decoders = _ONLY_FOR.get(plain)
            if decoders is not None and made.decode not in decoders:
                field = _READERS[plain][0]
                raise ValueError(f"the option {field} is for decode={' or '.join(sorted(decoders))}, not {made.decode}")
        made._check()
        return made

    def _check(self) -> None:
        if not self.path:
            raise ValueError('give a path: spark.read.format("ags1").load(PATH), or the option path')
        if not self.kms and not self.keyref:
            raise ValueError(
                "where is the key? Give the option kms (a URL as ags1.kms.load takes it) for a dataset or encrypted "
                "Parquet files, or keyref=env:NAME or keyref=file:PATH for single AGS1 files"
            )
        if not self.content and self.columns:
            raise ValueError("the options content=false and columns contradict each other")
        if self.aad_prefix and self.aad_prefix_hex:
            raise ValueError("give either aad_prefix or aad_prefix_hex")
        if len(self.path) > 1 and not self.keyref and self.decode != "parquet":
            raise ValueError("a dataset is one path; several paths are for AGS1 files with a keyref")
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("the option columns names a column twice")

    @property
    def whole_files(self) -> bool:
        """Whether files cannot be split."""
        return self.wholetext or self.multiline or _overlaps_itself(self.line_sep)


def canonical(name: str) -> str:
    """The name of an option, however it was spelt."""
    plain = name.lower().replace("_", "").replace("-", "")
    return _ALIASES.get(plain, plain)


def _refuse_secret(plain: str, name: str) -> None:
    if plain in _READERS or not _SECRET.search(plain):
        return
    raise ValueError(
        f"the option {name[:40]!r} is refused: options are no place for secrets, for they are kept in plans and sent "
        "to executors. Give a reference: kms=URL for a dataset, or keyref=env:NAME or keyref=file:PATH"
    )


def _unknown(plain: str, name: str) -> ValueError:
    for other, what in ((STREAM_OPTIONS, "streams: spark.readStream"), (WRITE_ONLY, "writing: df.write")):
        if plain in map(canonical, other):
            return ValueError(f'the option {name!r} is for {what}.format("ags1")')
    return ValueError(
        f'format("ags1") has no option {name[:40]!r}{meant(plain, _READERS)}; it has {", ".join(_shown_names())}'
    )


def meant(plain: str, known: Mapping[str, tuple[str, Any]]) -> str:
    """A guess at what was meant by an option that is none, in words that go behind its name; "" without one."""
    found = _CALLED.get(plain) or next(iter(difflib.get_close_matches(plain, known, 1, 0.75)), "")
    return f" (is {known[found][0]} meant?)" if found in known else ""


def _overlaps_itself(separator: bytes) -> bool:
    """Whether a separator can begin inside another one, so that only reading from the start tells them apart."""
    return any(separator[:count] == separator[-count:] for count in range(1, len(separator)))


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


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text.strip().lower() not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}, not {text!r}")
        return text.strip().lower()

    return read


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _paths(text: str) -> tuple[str, ...]:
    """One path, or several: Spark gives several as a JSON list; people write commas."""
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
        # It may well be the key itself, so it is not repeated.
        raise ValueError("must be env:NAME or file:PATH: a reference to a key, never the key")
    return text


def _kms(text: str) -> str:
    if not text or ":" not in text:
        raise ValueError("must be a URL as ags1.kms.load takes it, such as aws: or local:PATH?key_file=PATH")
    return text


def _pushdown(text: str) -> bool:
    value = text.strip().lower()
    if value == "true":
        # Measured with 4.1.4 and 4.3.0: Spark keeps one plan of reading for a loaded DataFrame, that of the last query
        # with filters, and reads by it for whatever else uses the same DataFrame.
        raise ValueError(
            "must be once, not true: Spark up to 4.3 gives what one query spares to the next query on the same "
            "DataFrame too, and rows are missing there. pushdown=once says that each DataFrame is loaded for one "
            "query, in which it stands once; the options prefix, include and exclude are safe everywhere"
        )
    if value not in ("false", "once"):
        raise ValueError(f"must be false or once, not {text!r}")
    return value == "once"


def _utf8(text: str) -> str:
    try:
        name = codecs.lookup(text).name
    except LookupError:
        name = ""
    if name not in ("utf-8", "ascii", "utf-8-sig"):
        raise ValueError(f"must be UTF-8, not {text!r}: read the files with decode=binary, and convert them")
    return "utf-8"


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
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
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


_SPECIAL: dict[str, tuple[str, Callable[[str], Any]]] = {
    "columnnameofcorruptrecord": ("corrupt_column", str),
    "linesep": ("line_sep", _separator),
    "encoding": ("encoding", _utf8),
    "path": ("path", _paths),
    "kms": ("kms", _kms),
    "expectedversion": ("expected_version", _version),
    "keyref": ("keyref", _keyref),
    "aadprefixhex": ("aad_prefix_hex", _hex),
    "prefix": ("prefix", _directory),
    "decode": ("decode", _one_of(*DECODES)),
    "splitbytes": ("split_bytes", _size),
    "batchbytes": ("batch_bytes", _size),
    "samplingbytes": ("sampling_bytes", _size),
    "maxunpackedbytes": ("max_unpacked_bytes", _size),
    "mode": ("mode", _one_of(*MODES)),
    "onerror": ("on_error", _one_of("fail", "skip")),
    "missingkeys": ("missing_keys", _one_of("error", "drop")),
    "sep": ("sep", _character),
    "quote": ("quote", _character_or_none),
    "escape": ("escape", _character_or_none),
    "pushdown": ("pushdown", _pushdown),
    "timezone": ("time_zone", _zone),
}


def _readers() -> dict[str, tuple[str, Callable[[str], Any]]]:
    by_type: dict[object, Callable[[str], Any]] = {"bool": _flag, "int": _count, "str": str, "tuple[str, ...]": _list}
    # Annotations are texts.
    made = {
        canonical(field.name): (field.name, by_type[field.type])
        for field in fields(SourceOptions)
        if field.type in by_type
    }
    made.update(_SPECIAL)
    return made


_READERS = _readers()


def _shown_names() -> list[str]:
    return sorted({field for field, _ in _READERS.values()})
