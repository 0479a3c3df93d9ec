"""Reading encrypted Parquet: PyArrow through the plaintext view, and what footers of many columns take.

The view is read by the same call on the same machine as the file before it was encrypted; PyArrow's own decryption,
which knows one key for a whole file, stands beside it.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ags1
from ags1 import parquet
from ags1.bench import Run
from ags1.parquet.native.thrift import I64, Struct
from bench import parquet_files, settings
from bench.conftest import Record
from bench.floors import Floors
from bench.measure import figure
from bench.parquet_samples import DECRYPTION, KEY, Samples, size_name

pq = pytest.importorskip("pyarrow.parquet")

VIEW_TARGET = 1.15
COLUMN = "price"
PAGE = 8 << 10


class Opened(io.RawIOBase):
    """A plaintext file that PyArrow reads as it reads the view; with each read, the C loop decrypts as many bytes.

    The C loop has nothing to find: blocks of 8 KiB lie one after the other. So no view can be faster than this.
    """

    def __init__(self, file: Any, floors: Floors, stream: Any, scratch: Any) -> None:
        super().__init__()
        self._file, self._floors, self._stream, self._scratch = file, floors, stream, scratch

    def read_buffer(self, size: int) -> Any:
        """Into memory of PyArrow's pool, as the view does."""
        import pyarrow as pa

        data = pa.allocate_buffer(size)
        self._file.readinto(memoryview(data).cast("B"))
        if size >= 1 << 20:
            whole = min(size, len(self._scratch)) // PAGE * PAGE
            self._floors.open(self._stream, whole, self._scratch, KEY, PAGE, settings.cpus())
        return data

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def read(self, size: int = -1) -> Any:
        """As the file."""
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> Any:
        """As the file."""
        return self._file.seek(offset, whence)

    def tell(self) -> Any:
        """As the file."""
        return self._file.tell()


@pytest.fixture(scope="module")
def stream() -> tuple[Any, Any]:
    """Blocks of the size of a page, as many bytes of them as a column chunk may have, and memory to open them into."""
    plaintext = np.random.default_rng(4).integers(0, 256, 16 << 20, np.uint8)
    sealed = np.empty(ags1.layout.encrypted_length(plaintext.nbytes, PAGE), np.uint8)
    ags1.encrypt_into(plaintext.data, sealed.data, KEY, block_length=PAGE)
    return sealed, plaintext


@pytest.mark.parametrize(
    ("columns", "variant"), [("all", "large"), ("all", "java"), ("all", "small"), ("one", "large"), ("one", "small")]
)
def test_parquet_view(
    columns: str,
    variant: str,
    samples: Samples,
    stream: tuple[Any, Any],
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    import pyarrow as pa
    import pyarrow.parquet.encryption as pe

    plain, encrypted = samples.plain(variant), samples.encrypted(variant)
    wanted = [COLUMN] if columns == "one" else None

    def through_view() -> None:
        with parquet.open(encrypted, DECRYPTION) as view:
            pq.read_table(view, columns=wanted)

    def theirs() -> None:
        pq.read_table(encrypted, columns=wanted, decryption_properties=pe.create_decryption_properties(KEY))

    def through_floor() -> None:
        with open(plain, "rb", buffering=0) as file:
            pq.read_table(Opened(file, floors, *stream), columns=wanted)

    name = f"PyArrow {pa.__version__}, decrypting"
    floor = "not encrypted, and a C loop that decrypts blocks of 8 KiB"
    run = interleave(
        {
            "ags1": through_view,
            "not encrypted": lambda: pq.read_table(plain, columns=wanted),
            floor: through_floor,
            name: theirs,
        }
    )
    size = size_name(plain.stat().st_size)
    which = "all columns" if wanted is None else "one column"
    question = f"read_table through the view, {which} of {size}, {parquet_files.VARIANTS[variant].words}"
    record(
        run,
        figure(run, question, "not encrypted", measure="time", target=VIEW_TARGET),
        figure(run, question, floor, measure="time"),
        figure(run, question, name, kind="peer", measure="time"),
    )


@pytest.mark.parametrize("what", ["open", "open-and-metadata"])
def test_parquet_open(what: str, samples: Samples, interleave: Callable[..., Run], record: Record) -> None:
    plain, encrypted = samples.plain("large"), samples.encrypted("large")

    def ours() -> None:
        with parquet.open(encrypted, DECRYPTION) as view:
            if what != "open":
                pq.ParquetFile(view).close()

    run = interleave({"ags1": ours, "read_metadata": lambda: pq.read_metadata(plain)})
    question = "open the view" + (" and read its metadata" if what != "open" else "")
    record(run, figure(run, question, "read_metadata", kind="peer", measure="time", calls=1))


@pytest.fixture(scope="module")
def footer(sizes: settings.Settings) -> tuple[bytes, int]:
    """FileMetaData of a file of very many column chunks, and their number."""
    import pyarrow as pa

    columns, row_groups = (500, 5) if sizes.quick else (10_000, 30)
    sink = pa.BufferOutputStream()
    one = parquet_files.wide_table(columns)
    pq.write_table(one, sink, use_dictionary=False, compression="none", store_schema=False)
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    metadata = Struct.parse(data[-8 - length : -8])
    groups = metadata.list(4)
    assert groups is not None
    first = groups[0]
    for _ in range(row_groups - 1):
        groups.append(first)
    return metadata.encode(), columns * row_groups


@pytest.mark.parametrize("work", ["parse and encode", "parse, change two fields of each column chunk, and encode"])
def test_parquet_footer(work: str, footer: tuple[bytes, int], interleave: Callable[..., Run], record: Record) -> None:
    import pyarrow as pa

    data, chunks = footer
    changing = "change" in work

    def ours() -> bytes:
        tree = Struct.parse(data)
        if changing:
            for group in _structs(tree, 4):
                for chunk in _structs(group, 1):
                    metadata = chunk.struct(3)
                    assert metadata is not None
                    metadata.set(7, I64, metadata.integer(7, 0) + 60)
                    metadata.set(9, I64, metadata.integer(9, 0) + 60)
        return tree.encode()

    file = pa.BufferReader(b"PAR1" + data + len(data).to_bytes(4, "little") + b"PAR1")

    def theirs() -> Any:
        return pq.read_metadata(file)

    run = interleave({"ags1": ours, "memcpy": lambda: bytearray(data), "read_metadata": theirs})
    question = f"footer of {chunks:,} column chunks, {len(data) / 1e6:.0f} MB: {work}"
    note = "each is one column chunk; read_metadata of PyArrow parses, and encodes nothing"
    record(
        run,
        figure(run, question, "memcpy", measure="time", calls=chunks, note=note),
        figure(run, question, "read_metadata", kind="peer", calls=chunks, note=note),
    )


def _structs(structure: Struct, field: int) -> Any:
    items = structure.list(field)
    assert items is not None
    return items.structs()
