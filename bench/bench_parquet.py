"""How fast a Parquet file is encrypted, decrypted and re-keyed, beside `cp`, a C loop, PyArrow and parquet-java.

The same rules as for other files: everything stays in the page cache, outputs are removed and the disk is waited for
between calls, and nothing else comes between them. The file is a table of eight columns, most of it text; see
parquet_files.py. Peers that take many times as long have a run of their own, with fewer rounds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ags1 import parquet
from ags1.bench import Run, Subject
from bench import parquet_files, processes, settings
from bench.conftest import Record
from bench.floors import Floors
from bench.measure import figure
from bench.parquet_samples import DECRYPTION, ENCRYPTION, KEY, OTHER_KEY, Samples, away, size_name

CP_TARGET = 1.3
PYARROW_TARGET = 8.0
JAVA_TARGET = 2.0
# As for other files: the page cache of the first rounds is memory that the host must find first.
WARM_UP = 2
DIRECTIONS = ("encrypt", "decrypt", "rekey")
ALL = settings.cpus()
COLUMN_KEYS = {name: bytes([16 + index] * 32) for index, name in enumerate(parquet_files.table(1).column_names)}


@pytest.fixture
def target(directory: Path) -> Path:
    return directory / "target.parquet"


def _work(direction: str, source: Path, target: Path) -> Callable[[], None]:
    if direction == "encrypt":
        return lambda: parquet.encrypt_file(source, target, ENCRYPTION)
    if direction == "decrypt":
        return lambda: parquet.decrypt_file(source, target, DECRYPTION)
    other = parquet.EncryptionConfig(OTHER_KEY)
    return lambda: parquet.rekey_file(source, target, DECRYPTION, other)


@pytest.mark.parametrize("variant", list(parquet_files.VARIANTS))
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parquet_file(
    direction: str,
    variant: str,
    samples: Samples,
    target: Path,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    source = samples.plain(variant) if direction == "encrypt" else samples.encrypted(variant)
    nbytes = source.stat().st_size
    copy = [*processes.cp_command(), str(source), str(target)]
    subjects = {
        "ags1": Subject(_work(direction, source, target), after=away(target)),
        "cp": Subject(lambda: processes.run(copy), after=away(target)),
    }
    if direction != "rekey":
        encrypting = direction == "encrypt"
        length = samples.plain(variant).stat().st_size
        block = source if encrypting else samples.blocks(variant)
        subjects["C loop"] = Subject(
            lambda: floors.file(block, target, length, KEY, 1 << 20, ALL, encrypting), after=away(target)
        )
    run = interleave(subjects, warm_up=WARM_UP)
    pages = parquet_files.VARIANTS[variant].words
    question = f"{direction} a Parquet file of {size_name(nbytes)}, {pages}, {ALL} thread{'s' * (ALL > 1)}"
    figures = [figure(run, question, "cp", measure="time", target=CP_TARGET, nbytes=nbytes)]
    if "C loop" in subjects:
        note = "the C loop encrypts the same bytes in blocks of 1 MiB: no pages to be found, no footer to be written"
        figures.append(figure(run, question, "C loop", kind="reference", nbytes=nbytes, note=note))
    shown = {}
    if variant == "large":
        shown = {
            "parquet": {"direction": direction, "gbps": {name: nbytes / run.median(name) / 1e9 for name in subjects}}
        }
    record(run, *figures, **shown)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_parquet_file_beside_pyarrow(
    direction: str, samples: Samples, target: Path, interleave: Callable[..., Run], record: Record
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    source = samples.plain("large") if direction == "encrypt" else samples.encrypted("large")
    nbytes = source.stat().st_size
    rows = pq.read_metadata(samples.plain("large")).row_group(0).num_rows
    options = parquet_files.options("large")

    def theirs() -> None:
        reading = None if direction == "encrypt" else pe.create_decryption_properties(KEY)
        writing = None
        if direction != "decrypt":
            writing = pe.create_encryption_properties(KEY if direction == "encrypt" else OTHER_KEY)
        table = pq.read_table(source, decryption_properties=reading)
        pq.write_table(table, target, encryption_properties=writing, row_group_size=rows, **options)

    name = f"PyArrow {pa.__version__}"
    run = interleave(
        {
            "ags1": Subject(_work(direction, source, target), after=away(target)),
            name: Subject(theirs, after=away(target)),
        },
    )
    question = f"{direction} a Parquet file of {size_name(nbytes)}"
    note = "read_table and write_table with the same pages, row groups and compression"
    record(
        run,
        figure(run, question, name, kind="peer", target=PYARROW_TARGET, nbytes=nbytes, note=note),
        parquet={"direction": direction, "gbps": {"PyArrow": nbytes / run.median(name) / 1e9}},
    )


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """One JVM with parquet-java, for as long as this file takes."""
    try:
        from tests.interop import java_peer, jvm, parquet_peer
    except ImportError as error:
        pytest.skip(f"no Java peer: {error}")
    reason = java_peer.available()
    if reason is not None:
        pytest.skip(f"no Java peer: {reason}")
    with parquet_peer.ParquetPeer(timeout=1200, jvm_options=jvm.LONG_LIFE) as peer:
        yield peer


def test_parquet_file_beside_java(
    java: Any, samples: Samples, target: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record
) -> None:
    source = samples.plain("large")
    nbytes = source.stat().st_size
    # The rewriter encrypts what it is told by name, and wants a key for each.
    theirs_encryption = {
        "footer_key": KEY,
        "column_keys": {name: {"key": key, "metadata": name.encode()} for name, key in COLUMN_KEYS.items()},
    }
    ours = parquet.EncryptionConfig(KEY, column_keys=COLUMN_KEYS, column_key_metadata={n: n for n in COLUMN_KEYS})

    def theirs(rounds: int = 1) -> float:
        answer = java.rewrite(source, target, columns=list(COLUMN_KEYS), encryption=theirs_encryption, rounds=rounds)
        return float(answer["seconds"][-1])

    def clean() -> None:
        # Hadoop writes its own checksums beside a local file.
        with contextlib.suppress(FileNotFoundError):
            target.with_name(f".{target.name}.crc").unlink()
        away(target)()

    # The JVM compiles AES-GCM after some gigabytes; before that it has a twentieth of its speed.
    theirs(2 if sizes.quick else max(2, 4 * settings.GIB // nbytes))
    clean()
    version = java.version()
    name = f"parquet-java {version['parquet']}"
    run = interleave(
        {
            "ags1": Subject(lambda: parquet.encrypt_file(source, target, ours), after=away(target)),
            name: Subject(lambda: None, clock=theirs, after=clean),
        },
    )
    question = f"encrypt a Parquet file of {size_name(nbytes)}, a key for each column"
    note = f"ParquetRewriter on Java {version['java']}, after warm-up, by its own clock, JVM start-up excluded"
    record(
        run,
        figure(run, question, name, kind="peer", target=JAVA_TARGET, nbytes=nbytes, note=note),
        parquet={"direction": "encrypt", "gbps": {"parquet-java": nbytes / run.median(name) / 1e9}},
    )


def test_parquet_write_table(
    target: Path, sizes: settings.Settings, interleave: Callable[..., Run], record: Record
) -> None:
    write_table: Any = getattr(parquet, "write_table", None)
    if write_table is None:
        pytest.skip("this ags1 has no parquet.write_table")
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    rows = parquet_files.rows_per_group(sizes.file_bytes // 4)
    table = pa.concat_tables([parquet_files.table(rows, group * rows) for group in range(parquet_files.ROW_GROUPS)])
    options = {"row_group_size": rows, **parquet_files.options("large")}

    def theirs() -> None:
        pq.write_table(table, target, encryption_properties=pe.create_encryption_properties(KEY), **options)

    name = f"PyArrow {pa.__version__}, encrypting"
    run = interleave(
        {
            "ags1": Subject(lambda: write_table(table, target, ENCRYPTION, **options), after=away(target)),
            "PyArrow, plaintext": Subject(lambda: pq.write_table(table, target, **options), after=away(target)),
            name: Subject(theirs, after=away(target)),
        },
    )
    question = f"write_table, {size_name(sizes.file_bytes // 4)} of Parquet"
    record(
        run,
        figure(run, question, "PyArrow, plaintext", measure="time"),
        figure(run, question, name, kind="peer", measure="time"),
    )


@pytest.mark.parametrize("variant", ["large", "small"])
def test_parquet_verify(
    variant: str, samples: Samples, floors: Floors, interleave: Callable[..., Run], record: Record
) -> None:
    verify_file: Any = getattr(parquet, "verify_file", None)
    if verify_file is None:
        pytest.skip("this ags1 has no parquet.verify_file")
    source, blocks = samples.encrypted(variant), samples.blocks(variant)
    nbytes = source.stat().st_size
    length = samples.plain(variant).stat().st_size
    stream, back = np.ones(blocks.stat().st_size, np.uint8), np.ones(length, np.uint8)

    def floor() -> None:
        with open(blocks, "rb", buffering=0) as file:
            view = stream.data
            while len(view):
                view = view[file.readinto(view) :]
        floors.open(stream, length, back, KEY, 1 << 20, ALL)

    run = interleave({"ags1": lambda: verify_file(source, DECRYPTION), "C loop": floor})
    question = f"verify_file of a Parquet file of {size_name(nbytes)}, {parquet_files.VARIANTS[variant].words}"
    note = "the C loop reads as much with one thread, then decrypts it in memory with all"
    record(run, figure(run, question, "C loop", kind="reference", nbytes=nbytes, note=note))


@pytest.fixture(scope="module")
def wide(directory: Path, sizes: settings.Settings) -> Iterator[tuple[Path, int]]:
    """A file of many tiny column chunks, and their number."""
    columns, row_groups = (200, 5) if sizes.quick else (2000, 10)
    path = directory / "wide.parquet"
    parquet_files.write_wide(path, columns, row_groups)
    os.sync()
    yield path, columns * row_groups
    path.unlink()


def test_parquet_wide_file(
    wide: tuple[Path, int], target: Path, interleave: Callable[..., Run], record: Record
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import pyarrow.parquet.encryption as pe

    source, chunks = wide

    def theirs() -> None:
        table = pq.read_table(source)
        properties = pe.create_encryption_properties(KEY)
        pq.write_table(table, target, encryption_properties=properties, row_group_size=1, use_dictionary=False)

    name = f"PyArrow {pa.__version__}"
    run = interleave(
        {
            "ags1": Subject(_work("encrypt", source, target), after=away(target)),
            "read_metadata": Subject(lambda: pq.read_metadata(source)),
            name: Subject(theirs, after=away(target)),
        },
    )
    question = f"encrypt a Parquet file of {chunks:,} column chunks with one value each"
    note = "each is one column chunk; read_metadata only parses the footer"
    record(
        run,
        figure(run, question, name, kind="peer", calls=chunks, note=note),
        figure(run, question, "read_metadata", kind="reference", measure="time", calls=chunks, note=note),
    )
