"""Questions that any revision of ags1 can answer, by the public API alone: what compare.py asks both sides.

Run as a program this is one side: it reads JSON requests, one a line, and answers each with one line::

    {"prepare": "encrypt_into-1MiB-1"}   ->  {"ok": true} or {"error": "..."}
    {"run": "encrypt_into-1MiB-1"}       ->  {"seconds": 0.214}
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

KEY = bytes(range(32))
Prepared = Callable[[], float]
"""Does the work once and returns the seconds; what must be made or removed around it is not counted."""


def _timed(work: Callable[[], object], after: Callable[[], object] | None = None) -> Prepared:
    def run() -> float:
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        if after is not None:
            after()
        return seconds

    return run


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


def _encrypt_into(place: Workplace, block_length: int, threads: int) -> Prepared:
    import ags1

    data, room = place.plain(), place.room()
    return _timed(lambda: ags1.encrypt_into(data, room, KEY, block_length=block_length, threads=threads))


def _decrypt_into(place: Workplace, block_length: int, threads: int) -> Prepared:
    import ags1

    data, back = place.plain(), place.back()
    length = ags1.encrypt_into(data, place.room(), KEY, block_length=block_length)
    stream = bytes(memoryview(place.room())[:length])
    return _timed(lambda: ags1.decrypt_into(stream, back, KEY, threads=threads))


def _encrypt(place: Workplace) -> Prepared:
    import ags1

    data = place.plain()
    return _timed(lambda: ags1.encrypt(data, KEY))


def _encrypt_many(place: Workplace, length: int) -> Prepared:
    import ags1

    view = memoryview(place.plain())
    count = min(200_000, len(view) // length)
    buffers = [bytes(view[length * i : length * (i + 1)]) for i in range(count)]
    return _timed(lambda: ags1.encrypt_many(buffers, KEY))


def _decrypt_many(place: Workplace, length: int) -> Prepared:
    import ags1

    view = memoryview(place.plain())
    count = min(200_000, len(view) // length)
    streams = [bytes(each) for each in ags1.encrypt_many([view[length * i :][:length] for i in range(count)], KEY)]
    return _timed(lambda: ags1.decrypt_many(streams, KEY))


def _small(place: Workplace) -> Prepared:
    import ags1

    data = bytes(place.plain()[:256])

    def work() -> None:
        for _ in range(20_000):
            ags1.encrypt(data, KEY)

    return _timed(work)


def _pread(place: Workplace) -> Prepared:
    import ags1

    reader = ags1.open(ags1.encrypt(place.plain(), KEY), key=KEY)
    blocks = max(1, place.nbytes >> 20)
    offsets = [(7 * i % blocks) << 20 for i in range(200)]

    def work() -> None:
        for offset in offsets:
            reader.pread(offset, 4096)

    return _timed(work)


def _sequential(place: Workplace) -> Prepared:
    import ags1

    reader: Any = ags1.open(ags1.encrypt(place.plain(), KEY), key=KEY)

    def work() -> None:
        reader.seek(0)
        while reader.read(64 << 10):
            pass

    return _timed(work)


def _encrypt_file(place: Workplace) -> Prepared:
    import ags1

    source, target = place.source(), place.directory / "encrypted"
    return _timed(lambda: ags1.encrypt_file(source, target, KEY), target.unlink)


def _decrypt_file(place: Workplace) -> Prepared:
    import ags1

    source, target = place.directory / "to-decrypt", place.directory / "decrypted"
    ags1.encrypt_file(place.source(), source, KEY)
    return _timed(lambda: ags1.decrypt_file(source, target, KEY), target.unlink)


def _import(place: Workplace) -> Prepared:
    import subprocess

    return _timed(lambda: subprocess.run([sys.executable, "-c", "import ags1"], check=True))


def _parquet_sample(place: Workplace, variant: str) -> Path:
    """A plaintext Parquet file. This program may run without the package that it lies in."""
    import importlib.util

    location = Path(__file__).with_name("parquet_files.py")
    spec = importlib.util.spec_from_file_location("ags1_bench_parquet_files", location)
    assert spec is not None
    assert spec.loader is not None
    files = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules[spec.name] = files
    spec.loader.exec_module(files)
    path = place.directory / "plain.parquet"
    files.write(path, place.nbytes, variant)
    return path


def _parquet_encrypt(place: Workplace, variant: str) -> Prepared:
    from ags1 import parquet

    source, target = _parquet_sample(place, variant), place.directory / "target.parquet"
    encryption = parquet.EncryptionConfig(KEY)
    return _timed(lambda: parquet.encrypt_file(source, target, encryption), target.unlink)


def _parquet_decrypt(place: Workplace, variant: str) -> Prepared:
    from ags1 import parquet

    source, target = place.directory / "source.parquet", place.directory / "target.parquet"
    parquet.encrypt_file(_parquet_sample(place, variant), source, parquet.EncryptionConfig(KEY))
    decryption = parquet.DecryptionConfig(KEY)
    return _timed(lambda: parquet.decrypt_file(source, target, decryption), target.unlink)


def _parquet_rekey(place: Workplace) -> Prepared:
    from ags1 import parquet

    source, target = place.directory / "source.parquet", place.directory / "target.parquet"
    parquet.encrypt_file(_parquet_sample(place, "large"), source, parquet.EncryptionConfig(KEY))
    decryption, encryption = parquet.DecryptionConfig(KEY), parquet.EncryptionConfig(KEY[::-1])
    return _timed(lambda: parquet.rekey_file(source, target, decryption, encryption), target.unlink)


def _parquet_view(place: Workplace, variant: str) -> Prepared:
    from ags1 import parquet

    source = place.directory / "source.parquet"
    parquet.encrypt_file(_parquet_sample(place, variant), source, parquet.EncryptionConfig(KEY))
    decryption = parquet.DecryptionConfig(KEY)
    room = bytearray(8 << 20)

    def work() -> None:
        with parquet.open(source, decryption) as view:
            while view.readinto(room):
                pass

    return _timed(work)


def _iceberg_scan(place: Workplace) -> Prepared:
    """A small table with partitions, several files and deletes: what a scan takes before and beside its data.

    Data itself goes through the view, which has a question of its own. The table is the tests', made by Spark.
    """
    import ags1.iceberg
    from ags1.kms import MemoryKms
    from tests.iceberg_tables import warehouse
    from tests.iceberg_tables.keys import MASTER_KEYS

    if (reason := warehouse.available()) is not None:
        raise RuntimeError(f"Spark with Iceberg cannot run here: {reason}")
    metadata, kms = warehouse.make_tables()["events"].metadata, MemoryKms(MASTER_KEYS)
    return _timed(lambda: ags1.iceberg.open_table(metadata, kms).scan().to_arrow())


_LENGTHS = {"1MiB": 1 << 20, "64KiB": 64 << 10, "4KiB": 4096, "256B": 256}

QUESTIONS: dict[str, Callable[[Workplace], Prepared]] = {
    **{
        f"{name}-{size}-{threads}": lambda place, make=make, length=length, threads=threads: make(
            place, length, threads
        )
        for name, make in (("encrypt_into", _encrypt_into), ("decrypt_into", _decrypt_into))
        for size, length in _LENGTHS.items()
        for threads in (1, 2)
    },
    "encrypt": _encrypt,
    "encrypt-256B-each": _small,
    "encrypt_many-1KiB": lambda place: _encrypt_many(place, 1024),
    "encrypt_many-64KiB": lambda place: _encrypt_many(place, 64 << 10),
    "decrypt_many-1KiB": lambda place: _decrypt_many(place, 1024),
    "pread-4KiB": _pread,
    "read-64KiB": _sequential,
    "encrypt_file": _encrypt_file,
    "decrypt_file": _decrypt_file,
    "parquet-encrypt_file": lambda place: _parquet_encrypt(place, "large"),
    "parquet-encrypt_file-8KiB-pages": lambda place: _parquet_encrypt(place, "small"),
    "parquet-decrypt_file": lambda place: _parquet_decrypt(place, "large"),
    "parquet-decrypt_file-8KiB-pages": lambda place: _parquet_decrypt(place, "small"),
    "parquet-rekey_file": _parquet_rekey,
    "parquet-view": lambda place: _parquet_view(place, "large"),
    "parquet-view-8KiB-pages": lambda place: _parquet_view(place, "small"),
    "iceberg-scan": _iceberg_scan,
    "import": _import,
}


def serve(root: Path, nbytes: int) -> None:
    """Answer requests until the input ends. `root` is where the ags1 under test must have come from."""
    import ags1

    if not Path(ags1.__file__).resolve().is_relative_to(root):
        raise SystemExit(f"ags1 was imported from {ags1.__file__}, not from {root}")
    # Nothing but answers may reach the other side.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    prepared: dict[str, Prepared] = {}
    with tempfile.TemporaryDirectory(prefix="ags1-bench-side-", dir=os.environ.get("AGS1_BENCH_DIR")) as name:
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, Any]
            try:
                if "prepare" in request:
                    # One question at a time: what the last one kept is given back.
                    prepared.clear()
                    place = Workplace(nbytes, Path(tempfile.mkdtemp(dir=name)))
                    prepared[request["prepare"]] = QUESTIONS[request["prepare"]](place)
                    answer = {"ok": True}
                else:
                    answer = {"seconds": prepared[request["run"]]()}
            except Exception as error:
                # A revision without the function cannot answer; that is no failure of the other questions.
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    serve(Path(sys.argv[1]).resolve(), int(sys.argv[2]))
