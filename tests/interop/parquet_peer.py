"""parquet-java as a partner: built with Maven, kept running, asked over JSON lines.

Both sides know one canonical text of a row, so that digests of rows compare across readers. A row is a JSON object
without white space, its members in the order of the schema and its text not escaped beyond what JSON demands;
a line feed ends each row in a digest. The values:

====================  ==============================================================================
absent                ``null``
boolean, integer      JSON's own
text (and JSON)       a JSON string
float, double         ``{"double":"<16 hex digits>"}``: the bits, as a double
bytes, fixed length   ``{"bytes":"<hex>"}``
decimal               ``{"decimal":"-1.2300"}``: with as many digits as the type's scale
date                  ``{"days":n}``
time                  ``{"time_ms":n}``, ``{"time_us":n}``, ``{"time_ns":n}``
timestamp             ``{"ms":n}``, ``{"us":n}``, ``{"ns":n}`` since the epoch; int96 is ``ns`` and wraps
list, repeated field  an array
map                   ``{"map":[[key,value],...]}``, in the order of the file
struct                an object
====================  ==============================================================================
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.java_peer import JavaError
from tests.interop.jvm import ANSWER_SECONDS, Jvm, PeerFailure, build, compiler_missing

if TYPE_CHECKING:
    import pyarrow as pa

MAIN_CLASS = "ags1.interop.parquet.ParquetPeer"
SPARK_VERSION = "1.16.0"

SAMPLE_LEAVES = (
    "id",
    "price",
    "city",
    "token",
    "active",
    "at",
    "amount",
    "numbers.list.element",
    "counts.key_value.key",
    "counts.key_value.value",
    "point.a",
    "point.b",
)


class ParquetJavaError(JavaError):
    """An exception that parquet-java threw.

    Attributes
    ----------
    causes
        Class and message of each exception beneath it, outermost first.
    """

    def __init__(self, java_class: str, java_message: str, causes: Sequence[str] = ()) -> None:
        super().__init__(java_class, java_message)
        self.causes = list(causes)

    def __str__(self) -> str:
        return " <- ".join([super().__str__(), *self.causes])


def _plain(value: Any) -> Any:
    """Bytes as hex and paths as text, at any depth."""
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key.hex() if isinstance(key, bytes) else key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


class ParquetPeer(Jvm):
    """One JVM with parquet-java on its class path; a context manager.

    Not for use from several threads at once: the protocol has one request under way.

    Every method takes its options by name and leaves out what is not given. Bytes may be given as ``bytes``, paths
    as ``Path``; an option of None is the same as none. Answers are the JSON objects of the peer.

    `encryption` is a mapping with ``footer_key`` and any of ``algorithm`` ("AES_GCM_V1" or "AES_GCM_CTR_V1"),
    ``footer_key_metadata``, ``plaintext_footer``, ``column_keys`` ({dotted path: {"key": ..., "metadata": ...}},
    where a column without a key has the footer's; None for uniform encryption), ``complete_columns``,
    ``aad_prefix`` and ``store_aad_prefix``. `decryption` is a mapping with any of ``footer_key``, ``column_keys``
    ({dotted path: key}), ``key_retriever`` ({key metadata: key}; what is not in it is denied), ``aad_prefix``,
    ``plaintext_files_allowed`` and ``check_signature``. Without them, no keys are in play.

    Parameters
    ----------
    module
        A module of the Maven project: ``parquet``, or ``parquet-1.16``, the release that Spark ships.
    timeout
        Seconds to wait for one answer; the JVM is ended when it stays silent longer.
    jvm_options
        Further options for the ``java`` command, such as a heap size.
    """

    def __init__(
        self,
        module: str = "parquet",
        timeout: float = ANSWER_SECONDS,
        jvm_options: Sequence[str] = (),
    ) -> None:
        if (reason := compiler_missing()) is not None:
            raise PeerFailure(reason)
        super().__init__(build(module), MAIN_CLASS, timeout, jvm_options)

    def ask(self, command: str, timeout: float | None = None, **options: Any) -> dict[str, Any]:
        """Send one request and return its answer.

        Raises
        ------
        ParquetJavaError
            Java threw an exception.
        PeerFailure
            There was no answer in time, or no JVM to give one. The JVM is ended then, because a late answer
            would be taken for the answer to the next request.
        """
        line = self.exchange(json.dumps({"command": command, **_plain(options)}), timeout)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise ParquetJavaError(answer["error"], answer["message"], answer["causes"])
        return answer

    def version(self) -> dict[str, Any]:
        """Return ``parquet``, ``created_by`` and ``java``."""
        return self.ask("version")

    def write(self, path: Path, **options: Any) -> dict[str, Any]:
        """Write a sample file; return ``rows``, ``bytes`` and ``seconds``.

        Options: ``rows`` (100), ``seed`` (0), ``row_group_rows``, ``row_group_bytes``, ``page_rows``, ``page_bytes``,
        ``page_version`` (1), ``codec`` ("UNCOMPRESSED"), ``dictionary`` (True), ``checksum`` (True), ``bloom``
        (leaf paths), ``bloom_values`` (10 000 distinct values), ``int96`` (False: the column ``at`` is a timestamp),
        ``encryption``.
        """
        return self.ask("write", path=path, **options)

    def read(self, path: Path, **options: Any) -> dict[str, Any]:
        """Read rows; return ``count``, ``sha256``, ``seconds`` and ``rows`` (canonical texts, `limit` of them).

        Options: ``decryption``, ``columns`` (dotted paths of leaves or groups), ``limit`` (100), ``digest`` (True),
        ``filter`` (a list of {"column", "op": eq, lt, le, gt or ge, "value"}, all to hold), ``use_statistics``,
        ``use_dictionary``, ``use_bloom``, ``use_column_index``, ``use_record_filter``, ``verify_checksums`` (all
        True). With a filter, ``kept_row_groups`` and ``kept_rows`` tell what the indexes left to read.

        With ``pages_only``, pages are decrypted and decompressed and no row is put together: ``pages``, ``values``,
        ``uncompressed_bytes`` and ``seconds``.
        """
        return self.ask("read", path=path, **options)

    def metadata(self, path: Path, **options: Any) -> dict[str, Any]:
        """Return the footer as Java sees it, with indexes and Bloom filters.

        Options: ``decryption``, ``bloom_probe`` ({path: [values]}, answered by ``found`` of the Bloom filter).
        A column, index or filter that cannot be read has a member ``unreadable`` with the reason.
        """
        return self.ask("metadata", path=path, **options)

    def rewrite(self, source: Path, target: Path, **options: Any) -> dict[str, Any]:
        """Encrypt a plaintext file with ParquetRewriter; return ``bytes`` and the ``seconds`` of each round.

        Options: ``columns`` (leaf paths to encrypt), ``encryption``, ``codec`` (to recompress), ``rounds`` (1).
        ``columns`` and the ``encryption`` have to name the same columns.
        """
        return self.ask("rewrite", source=source, target=target, **options)

    def keytools_write(self, path: Path, **options: Any) -> dict[str, Any]:
        """Write a sample file through the key tools: `write`'s return with ``wraps`` and ``unwraps`` of the KMS.

        Options: those of `write` except ``encryption``; ``properties`` (Hadoop's, ``parquet.encryption...``),
        ``master_keys`` ({id: key}), ``kms`` ("server" or "local"), ``keep_caches`` (False).
        """
        return self.ask("keytools_write", path=path, **options)

    def keytools_read(self, path: Path, **options: Any) -> dict[str, Any]:
        """Read through the key tools: the options of `read` and `keytools_write`."""
        return self.ask("keytools_read", path=path, **options)

    def keytools_metadata(self, path: Path, **options: Any) -> dict[str, Any]:
        """Dump a footer through the key tools: the options of `metadata` and `keytools_write`."""
        return self.ask("keytools_metadata", path=path, **options)

    def rotate(self, folder: Path, **options: Any) -> dict[str, Any]:
        """Rotate master keys in the external key material of a folder; return ``wraps`` and ``unwraps``.

        Options: those of `keytools_write` about keys, and ``new_master_keys`` ({id: key}) to wrap with.
        """
        return self.ask("rotate", folder=folder, **options)


# -- the canonical text of rows ------------------------------------------------------------------------------


def canonical_text(row: Mapping[str, Any]) -> str:
    """The text of a row whose values are in the canonical form already."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def digest_of(rows: Iterable[str]) -> str:
    """SHA-256 of canonical rows, as the peer computes it."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.encode() + b"\n")
    return digest.hexdigest()


def canonical_rows(table: pa.Table) -> list[str]:
    """The canonical text of each row of an Arrow table."""
    columns = [[each for chunk in column.chunks for each in _canonical_values(chunk)] for column in table.itercolumns()]
    names = table.column_names
    return [canonical_text(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]


def _double(value: float) -> dict[str, str]:
    return {"double": "7ff8000000000000" if value != value else struct.pack(">d", value).hex()}


def _tag_of_integers(kind: pa.DataType) -> str | None:
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return str(kind.unit)
    if pa.types.is_time(kind):
        return f"time_{kind.unit}"
    return "days" if pa.types.is_date32(kind) else None


def _canonical_values(array: pa.Array) -> list[Any]:
    import pyarrow as pa

    kind = array.type
    if pa.types.is_dictionary(kind):
        return _canonical_values(array.dictionary_decode())
    if (tag := _tag_of_integers(kind)) is not None:
        integers = array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
        return [None if each is None else {tag: each} for each in integers.to_pylist()]
    if pa.types.is_map(kind):
        pairs = zip(_canonical_values(array.keys), _canonical_values(array.items), strict=True)
        return [None if each is None else {"map": each} for each in _slices(array, [list(pair) for pair in pairs])]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _slices(array, _canonical_values(array.values))
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        rows = zip(*(_canonical_values(child) for child in array.flatten()), strict=True)
        return [
            dict(zip(names, row, strict=True)) if valid else None
            for valid, row in zip(array.is_valid().to_pylist(), rows, strict=True)
        ]
    return [None if each is None else _scalar(each) for each in array.to_pylist()]


def _slices(array: pa.Array, flat: list[Any]) -> list[list[Any] | None]:
    """The elements of each list, out of those of all lists."""
    offsets = array.offsets.to_pylist()
    valid = array.is_valid().to_pylist()
    return [
        flat[start:end] if each else None for each, start, end in zip(valid, offsets[:-1], offsets[1:], strict=True)
    ]


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return _double(value)
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, Decimal):
        return {"decimal": format(value, "f")}
    if isinstance(value, (bool, int, str)):
        return value
    raise TypeError(f"no canonical form for {type(value).__name__}")


# -- the rows of a sample file -------------------------------------------------------------------------------

_MASK = (1 << 64) - 1
_CITIES = ("Oslo", "Zürich", "København", "São Paulo", "東京", "Nuuk", "Quito", "")


class _Draws:
    """SplitMix64 over the seed, the row number and the number of the draw, as Sample.java has it."""

    def __init__(self, seed: int, row: int) -> None:
        self._base = seed * 0x9E3779B97F4A7C15 + row * 0xBF58476D1CE4E5B9

    def __call__(self, number: int, bound: int | None = None) -> int:
        z = (self._base + number * 0x94D049BB133111EB) & _MASK
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _MASK
        z ^= z >> 31
        return z if bound is None else z % bound

    def signed(self, number: int, bits: int) -> int:
        low = self(number) & ((1 << bits) - 1)
        return low - (1 << bits) if low >> (bits - 1) else low


def sample_rows(rows: int, seed: int = 0, *, int96: bool = False) -> list[str]:
    """The canonical text of each row that `ParquetPeer.write` puts into a file."""
    return [canonical_text(_sample_row(row, _Draws(seed, row), int96)) for row in range(rows)]


def _sample_row(row: int, draw: _Draws, int96: bool) -> dict[str, Any]:
    micros = 1_600_000_000_000_000 + draw(10, 100_000_000_000_000)
    magnitude = draw(12, 1_000_000_000_000)
    amount = Decimal(-magnitude if draw(13, 2) else magnitude).scaleb(-4)
    numbers = [draw.signed(30 + i, 32) if draw(20 + i, 8) else None for i in range(draw(15, 5))]
    counts = [[f"k{i}", draw.signed(50 + i, 64) if draw(40 + i, 8) else None] for i in range(draw(17, 4))]
    point = {"a": draw.signed(61, 32) if draw(60, 4) else None, "b": f"b{draw(63, 100)}" if draw(62, 4) else None}
    return {
        "id": row,
        "price": _double((draw(2) >> 11) * 2.0**-53 * 1000.0) if draw(1, 7) else None,
        "city": _CITIES[draw(4, len(_CITIES))] if draw(3, 11) else None,
        "token": f"{draw(6):016x}{draw(7):016x}" if draw(5, 13) else None,
        "active": draw(8, 2) == 1,
        "at": ({"ns": micros * 1000} if int96 else {"us": micros}) if draw(9, 5) else None,
        "amount": {"decimal": format(amount, "f")} if draw(11, 9) else None,
        "numbers": numbers if draw(14, 6) else None,
        "counts": {"map": counts} if draw(16, 6) else None,
        "point": point if draw(18, 5) else None,
    }
