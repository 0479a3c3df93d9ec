"""Questions that any revision of ags1 can answer, by the public API alone: compare.py and count.py ask both sides.

Every public function that has a floor has a question; tests/bench/test_questions.py delays each of them and looks
whether a question notices. Run as a program this is one side: it reads JSON requests, and answers each with one line::

    {"prepare": "encrypt_into-1MiB-1"}   ->  {"ok": true} or {"error": "..."}
    {"run": "encrypt_into-1MiB-1"}       ->  {"seconds": 0.214}
    {"memory": "encrypt_into-1MiB-1"}    ->  {"bytes": 4096}    by how much the peak of memory rises during a call
    {"count": "encrypt_into-1MiB-1"}     ->  {"ok": true}       under Valgrind: what the call does is written to a file

It stands alone: the package that it lies in may be of another revision than the ags1 that it asks.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

KEY = bytes(range(32))
MASTER = {"lake": b"a key for a lake", "next": b"another key, new"}


def _nothing() -> None:
    """Most questions have nothing to make or to remove."""


@dataclass(frozen=True)
class Prepared:
    """The work of a question, and what is made before and removed after each call, which counts for nothing."""

    work: Callable[[], object]
    before: Callable[[], object] = _nothing
    after: Callable[[], object] = _nothing

    def seconds(self) -> float:
        """Do the work once; return how long it took."""
        self.before()
        start = time.perf_counter()
        self.work()
        seconds = time.perf_counter() - start
        self.after()
        return seconds

    def memory(self) -> int:
        """Do the work once; return by how many bytes the peak of this process rose above what it had before."""
        self.before()
        gc.collect()
        # What the C library keeps for later is no part of what a call needs.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        had = _status("VmRSS")
        self.work()
        peak = _status("VmHWM")
        self.after()
        return max(0, peak - had)

    def count(self, counter: Any, name: str) -> None:
        """Do the work once, with Valgrind counting only that, in all threads."""
        # Twice before: what is made once, and what is compiled or cached, is no part of a call.
        for _ in range(2):
            self.before()
            self.work()
            self.after()
        self.before()
        gc.collect()
        gc.disable()
        counter.begin()
        self.work()
        counter.end(name.encode())
        gc.enable()
        self.after()


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


class Workplace:
    """Data and files for the questions of one side, made when first needed.

    Parameters
    ----------
    nbytes
        Bytes of plaintext.
    directory
        Where files go.
    """

    def __init__(self, nbytes: int, directory: Path) -> None:
        self.nbytes = nbytes
        self.directory = directory
        self._memory: dict[str, bytearray] = {}

    def plain(self) -> bytearray:
        """Random bytes."""
        if "plain" not in self._memory:
            piece = os.urandom(1 << 20)
            self._memory["plain"] = bytearray(piece * -(-self.nbytes // len(piece)))[: self.nbytes]
        return self._memory["plain"]

    def room(self) -> bytearray:
        """Touched memory for an encrypted stream."""
        if "room" not in self._memory:
            self._memory["room"] = bytearray(b"\x01") * (self.nbytes + self.nbytes // 8 + 4096)
        return self._memory["room"]

    def back(self) -> bytearray:
        """Touched memory for plaintext."""
        if "back" not in self._memory:
            self._memory["back"] = bytearray(b"\x01") * self.nbytes
        return self._memory["back"]

    def source(self) -> Path:
        """A plaintext file."""
        path = self.directory / "plain"
        if not path.exists():
            path.write_bytes(self.plain())
        return path

    def pieces(self, length: int) -> list[bytes]:
        """As many pieces of one length as a batch has."""
        view = memoryview(self.plain())
        return [bytes(view[length * i :][:length]) for i in range(max(1, min(200_000, len(view) // length)))]


def _encrypt_into(place: Workplace, block_length: int, threads: int) -> Prepared:
    import ags1

    data, room = place.plain(), place.room()
    return Prepared(lambda: ags1.encrypt_into(data, room, KEY, block_length=block_length, threads=threads))


def _decrypt_into(place: Workplace, block_length: int, threads: int) -> Prepared:
    import ags1

    data, back = place.plain(), place.back()
    length = ags1.encrypt_into(data, place.room(), KEY, block_length=block_length)
    stream = bytes(memoryview(place.room())[:length])
    return Prepared(lambda: ags1.decrypt_into(stream, back, KEY, threads=threads))


def _encrypt(place: Workplace) -> Prepared:
    import ags1

    data = place.plain()
    return Prepared(lambda: ags1.encrypt(data, KEY))


def _decrypt(place: Workplace) -> Prepared:
    import ags1

    stream = ags1.encrypt(place.plain(), KEY)
    return Prepared(lambda: ags1.decrypt(stream, KEY))


def _small(place: Workplace, *, encrypt: bool) -> Prepared:
    import ags1

    data = bytes(place.plain()[:256])
    stream = ags1.encrypt(data, KEY)
    count = min(20_000, max(100, place.nbytes // 4096))

    def work() -> None:
        for _ in range(count):
            if encrypt:
                ags1.encrypt(data, KEY)
            else:
                ags1.decrypt(stream, KEY)

    return Prepared(work)


# -- batches ---------------------------------------------------------------------------------------------------


def _packed(pieces: list[bytes]) -> tuple[bytes, Any]:
    """The pieces in one, and their offsets."""
    from array import array
    from itertools import accumulate

    return b"".join(pieces), array("q", [0, *accumulate(map(len, pieces))])


def _form(pieces: list[bytes], form: str) -> Any:
    """A batch of one length in the form that is asked for."""
    if form == "list":
        return pieces
    if form == "offsets":
        return _packed(pieces)
    import pyarrow as pa

    return pa.array(pieces, pa.large_binary())


def _encrypt_many(place: Workplace, length: int, form: str) -> Prepared:
    import ags1

    pieces = place.pieces(length)
    if form == "out":
        batch = ags1.Batch.reserve(ags1.encrypted_length(length) * len(pieces), len(pieces))
        return Prepared(lambda: ags1.encrypt_many(pieces, KEY, out=batch))
    buffers = _form(pieces, form)
    return Prepared(lambda: ags1.encrypt_many(buffers, KEY))


def _decrypt_many(place: Workplace, length: int, form: str) -> Prepared:
    import ags1

    streams = [bytes(each) for each in ags1.encrypt_many(place.pieces(length), KEY)]
    if form == "out":
        batch = ags1.Batch.reserve(length * len(streams), len(streams))
        return Prepared(lambda: ags1.decrypt_many(streams, KEY, out=batch))
    buffers = _form(streams, form)
    return Prepared(lambda: ags1.decrypt_many(buffers, KEY))


def _table(place: Workplace) -> Any:
    """Rows of three types: 40 bytes a row, and values of a kilobyte."""
    import pyarrow as pa

    pieces = place.pieces(1024)
    count = len(pieces)
    columns = {"id": pa.array(range(count), pa.int64()), "amount": pa.array([i / 4 for i in range(count)])}
    return pa.table({**columns, "text": pa.array(pieces, pa.binary())})


def _arrow(place: Workplace, name: str) -> Prepared:
    import ags1.arrow

    table = _table(place)
    array = table.column("text").chunk(0)
    if name == "encrypt_array":
        return Prepared(lambda: ags1.arrow.encrypt_array(array, KEY))
    if name == "decrypt_array":
        sealed = ags1.arrow.encrypt_array(array, KEY)
        return Prepared(lambda: ags1.arrow.decrypt_array(sealed, KEY, value_type=array.type))
    if name == "encrypt_columns":
        return Prepared(lambda: ags1.arrow.encrypt_columns(table, ["text", "id"], KEY))
    if name == "decrypt_columns":
        columns = ags1.arrow.encrypt_columns(table, ["text", "id"], KEY)
        return Prepared(lambda: ags1.arrow.decrypt_columns(columns, KEY))
    if name == "encrypt_buffers":
        return Prepared(lambda: ags1.arrow.encrypt_buffers(array.buffers(), KEY))
    if name == "decrypt_buffers":
        buffers = ags1.arrow.encrypt_buffers(array.buffers(), KEY)
        return Prepared(lambda: ags1.arrow.decrypt_buffers(buffers, KEY))
    if name == "encrypt_table":
        return Prepared(lambda: ags1.arrow.encrypt_table(table, KEY))
    if name == "decrypt_table":
        stream = ags1.arrow.encrypt_table(table, KEY)
        return Prepared(lambda: ags1.arrow.decrypt_table(stream, KEY))
    path = place.directory / "table.arrow"
    if name == "write_ipc_file":
        return Prepared(lambda: ags1.arrow.write_ipc_file(table, path, KEY), after=path.unlink)
    ags1.arrow.write_ipc_file(table, path, KEY)

    def read() -> None:
        with ags1.arrow.open_ipc_file(path, KEY) as file:
            file.read_all()

    return Prepared(read)


# -- streams and files -----------------------------------------------------------------------------------------


def _pread(place: Workplace, *, into: bool) -> Prepared:
    import ags1

    reader = ags1.open(ags1.encrypt(place.plain(), KEY), key=KEY)
    blocks = max(1, place.nbytes >> 20)
    offsets = [(7 * i % blocks) << 20 for i in range(200 if place.nbytes >= 1 << 24 else 20)]
    room = bytearray(4096)

    def work() -> None:
        for offset in offsets:
            if into:
                reader.pread_into(offset, room)
            else:
                reader.pread(offset, 4096)

    return Prepared(work)


def _sequential(place: Workplace, source: str, *, into: bool) -> Prepared:
    import ags1

    path = place.directory / "to-read"
    if source == "file":
        ags1.encrypt_file(place.source(), path, KEY)
    reader: Any = ags1.open(path if source == "file" else ags1.encrypt(place.plain(), KEY), key=KEY)
    room = bytearray(8 << 20)

    def work() -> None:
        reader.seek(0)
        while reader.readinto(room) if into else reader.read(64 << 10):
            pass

    return Prepared(work)


def _lines(place: Workplace) -> Prepared:
    import ags1

    text = b"a line of forty bytes, the last is an end\n" * (min(place.nbytes, 16 << 20) // 42)
    reader: Any = ags1.open(ags1.encrypt(text, KEY), key=KEY)

    def work() -> None:
        reader.seek(0)
        for _ in reader:
            pass

    return Prepared(work)


def _write(place: Workplace) -> Prepared:
    import ags1

    target, view = place.directory / "written", memoryview(place.plain())

    def work() -> None:
        with ags1.open(target, "wb", key=KEY) as writer:
            for start in range(0, len(view), 64 << 10):
                writer.write(view[start : start + (64 << 10)])

    return Prepared(work, after=target.unlink)


def _encrypt_file(place: Workplace) -> Prepared:
    import ags1

    source, target = place.source(), place.directory / "encrypted"
    return Prepared(lambda: ags1.encrypt_file(source, target, KEY), after=target.unlink)


def _decrypt_file(place: Workplace) -> Prepared:
    import ags1

    source, target = place.directory / "to-decrypt", place.directory / "decrypted"
    ags1.encrypt_file(place.source(), source, KEY)
    return Prepared(lambda: ags1.decrypt_file(source, target, KEY), after=target.unlink)


def _verify_file(place: Workplace) -> Prepared:
    import ags1

    source = place.directory / "to-verify"
    ags1.encrypt_file(place.source(), source, KEY)
    return Prepared(lambda: ags1.verify_file(source, KEY))


def _import(place: Workplace) -> Prepared:
    import subprocess

    return Prepared(lambda: subprocess.run([sys.executable, "-c", "import ags1"], check=True))


# -- Parquet ---------------------------------------------------------------------------------------------------


def _parquet_files() -> ModuleType:
    """The module beside this one; this program may run without the package that it lies in."""
    import importlib.util

    location = Path(__file__).with_name("parquet_files.py")
    spec = importlib.util.spec_from_file_location("ags1_bench_parquet_files", location)
    assert spec is not None
    assert spec.loader is not None
    files = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules[spec.name] = files
    spec.loader.exec_module(files)
    return files


def _parquet(place: Workplace, action: str, variant: str) -> Prepared:
    from ags1 import parquet

    plain, source, target = (place.directory / f"{name}.parquet" for name in ("plain", "source", "target"))
    _parquet_files().write(plain, place.nbytes, variant)
    encryption, decryption = parquet.EncryptionConfig(KEY), parquet.DecryptionConfig(KEY)
    if action == "encrypt":
        return Prepared(lambda: parquet.encrypt_file(plain, target, encryption), after=target.unlink)
    parquet.encrypt_file(plain, source, encryption)
    if action == "decrypt":
        return Prepared(lambda: parquet.decrypt_file(source, target, decryption), after=target.unlink)
    if action == "rekey":
        other = parquet.EncryptionConfig(KEY[::-1])
        return Prepared(lambda: parquet.rekey_file(source, target, decryption, other), after=target.unlink)
    if action == "verify":
        return Prepared(lambda: parquet.verify_file(source, decryption))
    room = bytearray(8 << 20)

    def work() -> None:
        with parquet.open(source, decryption) as view:
            while view.readinto(room):
                pass

    return Prepared(work)


# -- datasets and tables ---------------------------------------------------------------------------------------


def _dataset(place: Workplace, action: str) -> Prepared:
    from ags1 import dataset
    from ags1.kms import MemoryKms

    client, source, vault, target = (
        MemoryKms(MASTER),
        *(place.directory / name for name in ("raw", "vault", "target")),
    )
    source.mkdir()
    # Many small files and a large one.
    count = max(10, min(200, place.nbytes >> 16))
    for number in range(count):
        (source / f"part-{number:04}").write_bytes(place.plain()[: 4096 + number])
    (source / "large").write_bytes(place.plain()[: place.nbytes // 4])

    def away(path: Path) -> Callable[[], object]:
        return lambda: shutil.rmtree(path, ignore_errors=True)

    def make() -> None:
        dataset.encrypt(source, vault, client, "lake", durable=False).close()

    if action == "encrypt":
        return Prepared(make, after=away(vault))
    if action == "rewrap":

        def work() -> None:
            with dataset.open(vault, client) as opened:
                opened.rewrap("next")

        return Prepared(work, before=make, after=away(vault))
    make()
    if action == "decrypt":

        def decrypt() -> None:
            with dataset.open(vault, client) as opened:
                opened.decrypt(target)

        return Prepared(decrypt, after=away(target))
    if action == "verify":

        def verify() -> None:
            with dataset.open(vault, client) as opened:
                opened.verify()

        return Prepared(verify)

    def read() -> None:
        with dataset.open(vault, client) as opened:
            for number in range(0, count, 7):
                with opened.open(f"part-{number:04}") as file:
                    file.read()

    return Prepared(read)


class _Tables:
    """Iceberg tables in a catalog of one place: of four files, or of twenty small ones."""

    def __init__(self, place: Workplace, *, small: bool) -> None:
        import pyarrow as pa
        from pyiceberg.catalog.sql import SqlCatalog

        from ags1.kms import MemoryKms

        self.kms, self.number, self.appends = MemoryKms(MASTER), 0, 1 if small else 4
        self.properties = {"format-version": "2"} | ({"write.target-file-size-bytes": "16000"} if small else {})
        warehouse = place.directory / "warehouse"
        warehouse.mkdir()
        self.catalog = SqlCatalog("c", uri=f"sqlite:///{place.directory}/catalog.db", warehouse=warehouse.as_uri())
        self.catalog.create_namespace("db")
        count = 20_000 if small else max(1000, place.nbytes // 64)
        self.rows = pa.table({"id": range(count), "amount": [i % 1000 / 4 for i in range(count)]})

    def plain(self) -> str:
        """Make a plaintext table; return its name."""
        self.number += 1
        name = f"db.t{self.number}"
        made = self.catalog.create_table(name, self.rows.schema, properties=self.properties)
        for _ in range(self.appends):
            made.append(self.rows)
        return name

    def load(self, name: str) -> Any:
        """Load a table."""
        from ags1 import iceberg

        return iceberg.load_table(self.catalog, name, kms=self.kms, allow_plaintext=True)

    def encrypted(self) -> str:
        """Make an encrypted table."""
        from ags1 import iceberg

        name = self.plain()
        iceberg.encrypt_table(self.load(name), key_id="lake")
        return name


def _iceberg(place: Workplace, action: str, *, small: bool = False) -> Prepared:
    from ags1 import iceberg

    tables = _Tables(place, small=small)
    if action in ("scan", "verify", "plan"):
        table = tables.load(tables.encrypted())
        if action == "verify":
            return Prepared(lambda: table.verify(snapshot_id=None))
        if action == "plan":
            return Prepared(lambda: list(tables.load(f"db.t{tables.number}").scan().plan_files()))
        return Prepared(lambda: table.scan().to_arrow())
    if action == "append":
        name = tables.encrypted()
        return Prepared(lambda: tables.load(name).append(tables.rows))
    if action == "encrypt_table":
        return Prepared(
            lambda: iceberg.encrypt_table(tables.load(f"db.t{tables.number}"), key_id="lake"), before=tables.plain
        )
    return Prepared(
        lambda: iceberg.rekey_table(tables.load(f"db.t{tables.number}"), key_id="next", data_keys=True),
        before=tables.encrypted,
    )


_LENGTHS = {"1MiB": 1 << 20, "64KiB": 64 << 10, "4KiB": 4096, "256B": 256}
_FORMS = ("list", "arrow", "offsets", "out")
_ARROW = (
    *(f"{verb}_{what}" for what in ("array", "columns", "buffers", "table") for verb in ("encrypt", "decrypt")),
    *("write_ipc_file", "read_ipc_file"),
)
_PAGES = {"": "large", "-8KiB-pages": "small"}
Make = Callable[[Workplace], Prepared]


def _into() -> Iterable[tuple[str, Make]]:
    for name, make in (("encrypt_into", _encrypt_into), ("decrypt_into", _decrypt_into)):
        for size, length in _LENGTHS.items():
            for threads in (1, 2):
                yield f"{name}-{size}-{threads}", partial(make, block_length=length, threads=threads)


# By the rooms of ags1 that a group asks: count.py asks the groups that a change touches.
GROUPS: dict[str, dict[str, Make]] = {
    "codec": {
        **dict(_into()),
        "encrypt": _encrypt,
        "decrypt": _decrypt,
        "encrypt-256B-each": partial(_small, encrypt=True),
        "decrypt-256B-each": partial(_small, encrypt=False),
        **{f"encrypt_many-1KiB-{form}": partial(_encrypt_many, length=1024, form=form) for form in _FORMS},
        **{f"decrypt_many-1KiB-{form}": partial(_decrypt_many, length=1024, form=form) for form in _FORMS},
        "encrypt_many-64KiB-list": partial(_encrypt_many, length=64 << 10, form="list"),
    },
    "arrow": {f"arrow-{name}": partial(_arrow, name=name) for name in _ARROW},
    "streams": {
        "pread-4KiB": partial(_pread, into=False),
        "pread_into-4KiB": partial(_pread, into=True),
        "read-64KiB": partial(_sequential, source="memory", into=False),
        "read-64KiB-file": partial(_sequential, source="file", into=False),
        "readinto-8MiB-file": partial(_sequential, source="file", into=True),
        "read-lines": _lines,
        "write-64KiB-file": _write,
    },
    "files": {"encrypt_file": _encrypt_file, "decrypt_file": _decrypt_file, "verify_file": _verify_file},
    "parquet": {
        **{
            f"parquet-{action}_file{pages}": partial(_parquet, action=action, variant=variant)
            for action in ("encrypt", "decrypt", "rekey")
            for pages, variant in _PAGES.items()
        },
        **{
            f"parquet-view{pages}": partial(_parquet, action="view", variant=variant)
            for pages, variant in _PAGES.items()
        },
        "parquet-verify_file": partial(_parquet, action="verify", variant="large"),
    },
    "dataset": {
        f"dataset-{action}": partial(_dataset, action=action)
        for action in ("encrypt", "decrypt", "read", "verify", "rewrap")
    },
    "iceberg": {
        f"iceberg-{action}{files}": partial(_iceberg, action=action, small=bool(files))
        for files in ("", "-small-files")
        for action in ("scan", "plan", "append", "verify", "encrypt_table", "rekey_table")
    },
    "start": {"import": _import},
}
QUESTIONS: dict[str, Make] = {name: make for group in GROUPS.values() for name, make in group.items()}


class Counter:
    """The requests to Valgrind, of a library that count.py compiles."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)

    def begin(self) -> None:
        """Count from here on."""
        self._library.counter_begin()

    def end(self, name: bytes) -> None:
        """Stop, and write what was counted to a file, under this name."""
        self._library.counter_end(name)


def serve(root: Path, nbytes: int) -> None:
    """Answer requests until the input ends. `root` is where the ags1 under test must have come from."""
    import ags1

    if not Path(ags1.__file__).resolve().is_relative_to(root):
        raise SystemExit(f"ags1 was imported from {ags1.__file__}, not from {root}")
    counter = Counter(os.environ["AGS1_BENCH_COUNTER"]) if "AGS1_BENCH_COUNTER" in os.environ else None
    # Nothing but answers may reach the other side.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepared: dict[str, Prepared] = {}
    with tempfile.TemporaryDirectory(prefix="ags1-bench-side-", dir=os.environ.get("AGS1_BENCH_DIR")) as name:
        for line in sys.stdin:
            ((request, question),) = json.loads(line).items()
            answer: dict[str, Any] = {"ok": True}
            try:
                if request == "prepare":
                    # One question at a time: what the last one kept is given back.
                    prepared.clear()
                    place = Workplace(nbytes, Path(tempfile.mkdtemp(dir=name)))
                    prepared[question] = QUESTIONS[question](place)
                elif request == "run":
                    answer = {"seconds": prepared[question].seconds()}
                elif request == "memory":
                    answer = {"bytes": prepared[question].memory()}
                else:
                    prepared[question].count(counter, question)
            except Exception as error:
                # A revision without the function cannot answer; that is no failure of the other questions.
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
