"""Iceberg tables in an object store, over a link of 20 ms and 90 MB/s a connection.

PyIceberg works on the same table unencrypted; what moves or reads whole files stands beside obstore, which gets and
puts the same objects through the client, 16 at a time. The server is MinIO on loopback, behind a proxy of our own that
shapes latency and rate: all of it shares the machine's cores with what is measured, so the ratios count.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from ags1.bench import Run, Subject
from ags1.expected import Expected
from bench import settings, storage_peers
from bench.bench_storage import CONDITIONS
from bench.bench_storage import link as link
from bench.conftest import Record
from bench.measure import figure

pytest.importorskip("pyarrow")
pytest.importorskip("pyiceberg")
pytest.importorskip("fastavro")

KEYS = {"lake": bytes(16)}
LARGE, SMALL = "12 files, 332 MB", "200 files of 1,000 rows"
SCAN, SCAN_FLOOR, APPEND, VERIFY = 1.0, 1.15, 1.0, {LARGE: 1.2, SMALL: 1.0}
CONVERSION = 1.5
COMMITS = 20


@dataclass
class Tables:
    """A table unencrypted, with the objects of its data files, and the same table encrypted."""

    link: storage_peers.Link
    catalog: Any
    plain: str
    encrypted: str
    objects: list[str]
    sizes: dict[str, int]
    # Objects of the encrypted table that name others: metadata, manifest list, manifests. Each names the next.
    above: list[list[str]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def properties(self) -> dict[str, str]:
        """Of the way to the store that is measured."""
        return _properties(self.link.server)

    def copy_of(self, metadata: str) -> str:
        """A copy of a table's metadata file: what is written to the table goes elsewhere, its files stay."""
        store = self.link.direct.store("lake")
        fields = json.loads(bytes(store.get(metadata.removeprefix("s3://lake/")).bytes()))
        fields["location"] = f"s3://lake/{self.catalog.name}/copy-{next(self.numbers)}"
        path = f"{fields['location']}/metadata/00000-start.metadata.json"
        store.put(path.removeprefix("s3://lake/"), json.dumps(fields).encode())
        return path


def _properties(server: Any) -> dict[str, str]:
    return {
        "s3.endpoint": server.endpoint,
        "s3.region": server.region,
        "s3.access-key-id": server.access_key,
        "s3.secret-access-key": server.secret_key,
    }


@pytest.fixture(scope="module", params=[LARGE, SMALL])
def tables(
    request: pytest.FixtureRequest,
    link: storage_peers.Link,
    sizes: settings.Settings,
    tmp_path_factory: pytest.TempPathFactory,
) -> Tables:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyiceberg.catalog.sql import SqlCatalog

    from ags1 import iceberg
    from ags1.iceberg.catalogs import catalog_table
    from ags1.kms import MemoryKms

    directory, is_large = tmp_path_factory.mktemp("tables"), request.param == LARGE
    files, rows = (12, 432_000) if is_large else (200, 1_000)
    if sizes.quick:
        files, rows = files // 4, min(rows, 10_000)
    name, store = "large" if is_large else "small", link.direct.store("lake")
    chooser = np.random.default_rng(5)
    objects, lengths = list[str](), dict[str, int]()
    for number in range(files):
        table = pa.table({f"c{index}": chooser.integers(0, 1 << 60, rows) for index in range(8)})
        path = directory / "file.parquet"
        pq.write_table(table, path, compression="none", use_dictionary=False, row_group_size=max(1, rows // 4))
        objects.append(f"{name}/data/{number:03}.parquet")
        store.put(objects[-1], path.read_bytes())
        lengths[objects[-1]] = path.stat().st_size
    catalog = SqlCatalog(
        name, uri=f"sqlite:///{directory}/catalog.db", warehouse=f"s3://lake/{name}", **_properties(link.direct)
    )
    catalog.create_namespace("t")
    plain = catalog.create_table("t.plain", table.schema, location=f"s3://lake/{name}/plain")
    step = -(-files // COMMITS)
    for first in range(0, files, step):
        plain.add_files([f"s3://lake/{each}" for each in objects[first : first + step]])
    made = Tables(link, catalog, plain.metadata_location, "", objects, lengths)
    copied = catalog_table(
        None,
        made.copy_of(plain.metadata_location),
        storage_options=_properties(link.direct),
        expected=Expected(allowed_locations=["s3://lake/"]),
    )
    made.encrypted = iceberg.encrypt_table(copied, key_id="lake", kms=MemoryKms(KEYS)).metadata_location
    table = _ours(made)
    snapshot = table.table.current_snapshot()
    manifests = [each.manifest_path for each in snapshot.manifests(table.io)]
    levels = ([made.encrypted], [snapshot.manifest_list], manifests)
    made.above = [[path.removeprefix("s3://lake/") for path in level] for level in levels]
    return made


def _name(tables: Tables) -> str:
    return LARGE if "large" in tables.plain else SMALL


def _ours(tables: Tables) -> Any:
    from ags1 import iceberg
    from ags1.kms import MemoryKms

    return iceberg.open_table(
        tables.encrypted, MemoryKms(KEYS), properties=tables.properties, allowed_locations=["s3://lake/"]
    )


def _theirs(tables: Tables) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(tables.plain, tables.properties)


# Half of the rows, in every row group.
LEAST_LEFT_OUT = 1 << 59
WHERE, COLUMNS = f"c1 < {LEAST_LEFT_OUT}", ("c1", "c2")
PLAN, FLOOR = "plan", "the same ranges by obstore, decoded by PyArrow"
NAMED = "obstore, get of the same objects, after those that name them"
NAMED_COPY = "obstore, copy of the same objects between those that name them, which are read before and written behind"
# As ags1.storage has them.
FILES_AT_ONCE, RANGES_AT_ONCE, PIECE, WHOLE, TAIL = 16, 64, 4 << 20, 1 << 20, 64 << 10
SCANS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "scan of everything": (lambda table: table.scan().to_arrow(), lambda table: table.scan().to_arrow()),
    "scan of two columns, with a filter": (
        lambda table: table.scan(columns=COLUMNS, row_filter=WHERE).to_arrow(),
        lambda table: table.scan(selected_fields=COLUMNS, row_filter=WHERE).to_arrow(),
    ),
    PLAN: (lambda table: list(table.scan().plan_files()), lambda table: list(table.scan().plan_files())),
}


def _fetched_and_decoded(tables: Tables, columns: tuple[str, ...] | None) -> Any:
    """What a scan cannot do without: the ranges that it needs, side by side through obstore, and PyArrow's decoding.

    The data files are the plaintext ones. What names them is fetched before them, and not read: no manifest, no key.
    """
    import numpy as np
    import obstore
    import pyarrow as pa
    import pyarrow.parquet as pq

    store = tables.link.server.store("lake")
    with ThreadPoolExecutor(FILES_AT_ONCE) as files, ThreadPoolExecutor(RANGES_AT_ONCE) as requests:

        def one(name: str) -> Any:
            size = tables.sizes[name]
            if size <= WHOLE:
                data = memoryview(store.get(name).bytes())
            else:
                memory = np.empty(size, np.uint8)
                data = memoryview(memory)

                def fetch(place: tuple[int, int]) -> None:
                    data[place[0] : place[1]] = memoryview(obstore.get_range(store, name, start=place[0], end=place[1]))

                fetch((size - TAIL, size))
                metadata = pq.read_metadata(pa.BufferReader(data))
                list(requests.map(fetch, _ranges(metadata, columns)))
            return pq.ParquetFile(pa.BufferReader(data)).read(columns, use_threads=False)

        _fetch_above(tables, store, files)
        found = pa.concat_tables(files.map(one, tables.objects))
    return found if columns is None else found.filter(pa.compute.field("c1") < LEAST_LEFT_OUT)


def _fetch_above(tables: Tables, store: Any, pool: ThreadPoolExecutor) -> list[list[tuple[str, Any]]]:
    """Get what names the files, level by level: a level is known when the one above it has come."""
    return [list(pool.map(lambda name: (name, store.get(name).bytes()), level)) for level in tables.above]


def _ranges(metadata: Any, columns: tuple[str, ...] | None) -> Iterator[tuple[int, int]]:
    """Of the column chunks, as one request each has them."""
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        found = [group.column(place) for place in range(group.num_columns)]
        wanted = [each for each in found if columns is None or each.path_in_schema in columns]
        begin = min(each.data_page_offset for each in wanted)
        end = max(each.data_page_offset + each.total_compressed_size for each in wanted)
        count = -(-(end - begin) // PIECE)
        yield from (
            (begin + (end - begin) * n // count, begin + (end - begin) * (n + 1) // count) for n in range(count)
        )


@pytest.mark.parametrize("which", SCANS)
def test_iceberg_store_scan(which: str, tables: Tables, interleave: Callable[..., Run], record: Record) -> None:
    import pyiceberg

    ours, theirs = SCANS[which]
    peer = f"PyIceberg {pyiceberg.__version__}, not encrypted"
    subjects = {"ags1": lambda: ours(_ours(tables)), peer: lambda: theirs(_theirs(tables))}
    if which != PLAN:
        columns = COLUMNS if "columns" in which else None
        subjects[FLOOR] = lambda: _fetched_and_decoded(tables, columns)
        assert subjects["ags1"]().num_rows == subjects[FLOOR]().num_rows
    run = interleave(subjects)
    words = f"{which} of an Iceberg table, {_name(tables)}, {CONDITIONS}"
    figures = [figure(run, words, peer, kind="peer", measure="time", target=SCAN)]
    if which != PLAN:
        figures.append(figure(run, words, FLOOR, kind="floor", measure="time", target=SCAN_FLOOR))
    record(run, *figures)


def _copy(tables: Tables, *, put: bool, above: bool = False) -> None:
    """Get or copy the data files; `above`: after what names them, which a copy writes behind them, level by level."""
    store = tables.link.server.store("lake")

    def one(name: str) -> None:
        data = store.get(name).bytes()
        if put:
            store.put(f"copied/{name}", data)

    with ThreadPoolExecutor(16) as pool:
        named = _fetch_above(tables, store, pool) if above else []
        list(pool.map(one, tables.objects))
        for level in reversed(named if put else []):
            list(pool.map(lambda each: store.put(f"copied/{each[0]}", each[1]), level))


@pytest.mark.parametrize("which", ["conversion", "re-key with new data keys", "verify"])
def test_iceberg_store_files(which: str, tables: Tables, interleave: Callable[..., Run], record: Record) -> None:
    from ags1 import iceberg
    from ags1.iceberg.catalogs import catalog_table
    from ags1.kms import MemoryKms

    kms, copies, name = MemoryKms(KEYS), list[str](), _name(tables)

    def fresh() -> None:
        copies.append(tables.copy_of(tables.plain if which == "conversion" else tables.encrypted))

    def convert() -> None:
        options = {
            "storage_options": tables.properties,
            "expected": Expected(allowed_locations=["s3://lake/"]),
        }
        made = catalog_table(None, copies.pop(), **options)
        if which == "conversion":
            report = iceberg.encrypt_table(made, key_id="lake", kms=kms)
        else:
            report = iceberg.rekey_table(made, key_id="lake", kms=kms, data_keys=True)
        assert report.files == len(tables.objects)

    def verify() -> None:
        assert _ours(tables).verify(None).ok

    if which == "verify":
        peer, target = "obstore, get of the same objects", VERIFY[name]
        subjects: dict[str, Any] = {"ags1": verify, peer: lambda: _copy(tables, put=False)}
        subjects[NAMED] = lambda: _copy(tables, put=False, above=True)
    else:
        peer, target = "obstore, copy of the same objects through the client", CONVERSION
        subjects = {"ags1": Subject(convert, before=fresh), peer: lambda: _copy(tables, put=True)}
        subjects[NAMED_COPY] = lambda: _copy(tables, put=True, above=True)
    run = interleave(subjects)
    words = f"{which} of an Iceberg table, {name}, {CONDITIONS}"
    figures = [figure(run, words, peer, kind="floor", measure="time", target=target)]
    figures.append(figure(run, words, NAMED if which == "verify" else NAMED_COPY, kind="floor", measure="time"))
    record(run, *figures)


def test_iceberg_store_append(tables: Tables, interleave: Callable[..., Run], record: Record) -> None:
    import pyarrow as pa
    import pyiceberg
    from pyiceberg.catalog import load_catalog

    from ags1 import iceberg
    from ags1.kms import MemoryKms

    rows = pa.table({f"c{index}": range(1000) for index in range(8)})
    # The same database under the same name: tables of a SQL catalog are found by both.
    catalog = load_catalog(tables.catalog.name, **{**tables.catalog.properties, **tables.properties, "type": "sql"})
    for table in ("ours", "theirs"):
        catalog.register_table(f"t.{table}", tables.copy_of(tables.encrypted if table == "ours" else tables.plain))
    options = {"kms": MemoryKms(KEYS), "allowed_locations": ["s3://lake/"]}
    peer = f"PyIceberg {pyiceberg.__version__}, not encrypted"
    run = interleave(
        {
            "ags1": lambda: iceberg.load_table(catalog, "t.ours", **options).append(rows),
            peer: lambda: catalog.load_table("t.theirs").append(rows),
        },
    )
    words = f"append of one file to an Iceberg table, {_name(tables)}, {CONDITIONS}"
    record(run, figure(run, words, peer, kind="peer", measure="time", target=APPEND))
