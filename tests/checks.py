"""What the tests share: keys, data, lengths around block edges, kinds of buffers, flaky file objects."""

from __future__ import annotations

import array
import base64
import contextlib
import ctypes
import errno
import functools
import gc
import inspect
import io
import itertools
import mmap
import os
import random
import select
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pytest

import ags1
from ags1.core import gcm

KEY_LENGTHS = (16, 24, 32)
KEYS = {length: bytes(range(1, length + 1)) for length in KEY_LENGTHS}
KEY = KEYS[32]
OTHER_KEY = bytes(range(101, 133))
PREFIX = b"1234567890123456"
HEADER = 8
OVERHEAD = 28
MIB = 1 << 20
HANG_SECONDS = 600
"""How long a test waits for a process or a thread before it says that it hangs; no limit of a test is shorter."""
CHILD_SECONDS = 120
"""How long for a forked child before another one is forked."""

_Test = TypeVar("_Test", bound=Callable[..., None])


def pattern(length: int, seed: int = 0) -> bytes:
    """Bytes in which no two blocks are alike; the same for the same arguments."""
    return random.Random(seed * 1_000_003 + length).randbytes(length)


def edge_lengths(block_length: int) -> tuple[int, ...]:
    """Plaintext lengths at which an off-by-one shows."""
    return (0, 1, block_length - 1, block_length, block_length + 1, 2 * block_length, 3 * block_length + 7)


# -- many cases in one test ----------------------------------------------------------------------------------


def every(argument: str, cases: Iterable[Any], ids: Callable[[Any], str] = str) -> Callable[[_Test], _Test]:
    """Run a test for each case, as ``pytest.mark.parametrize`` does, but in one item, which takes no time of its own.

    All cases run, and none may skip. Those that failed are named; the traceback is that of the first.
    Fixtures are made once for all cases, so ``tmp_path`` is one directory.
    """
    cases = list(cases)
    assert cases, "no cases"

    def decorate(test: _Test) -> _Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: dict[str, BaseException] = {}
            for case in cases:
                try:
                    test(**{argument: case}, **fixtures)
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
                    failed[ids(case)] = error
            if failed:
                first = next(iter(failed.values()))
                raise AssertionError(f"{len(failed)} of {len(cases)} cases failed: {', '.join(failed)}") from first

        others = [each for each in signature.parameters.values() if each.name != argument]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run  # type: ignore[return-value]

    return decorate


def covering(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """A few points of a product in which every two values of different options meet; the same for the same arguments.

    What a pair of options does wrong shows in one of them; what takes three at once is for the long runs.
    """
    points = list(itertools.product(*map(enumerate, options)))
    pairs = [set(itertools.combinations(enumerate(number for number, _ in point), 2)) for point in points]
    missing, chosen = set().union(*pairs), []
    while missing:
        best = max(range(len(points)), key=lambda index: len(pairs[index] & missing))
        chosen.append(tuple(value for _, value in points[best]))
        missing -= pairs[best]
    return chosen


# -- streams as bytes ----------------------------------------------------------------------------------------


def blocks_of(stream: bytes, block_length: int) -> list[bytes]:
    """The blocks of a stream, nonce and tag included."""
    stride = block_length + OVERHEAD
    return [stream[start : start + stride] for start in range(HEADER, len(stream), stride)]


def nonces_of(stream: bytes, block_length: int) -> list[bytes]:
    """The nonce of each block."""
    return [block[:12] for block in blocks_of(stream, block_length)]


def block_start(index: int, block_length: int) -> int:
    """Offset in the stream of a block's nonce."""
    return HEADER + index * (block_length + OVERHEAD)


def flip(data: bytes, position: int, bit: int = 0) -> bytes:
    """The data with one bit changed."""
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def damage(stream: bytes, block_length: int, index: int) -> bytes:
    """The stream with one bit of one block's ciphertext or tag changed."""
    return flip(stream, block_start(index, block_length) + 12)


# -- kinds of buffers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BufferKind:
    """A way to hold bytes: `make` answers an object that exports exactly the bytes that it is given.

    Their number must be a multiple of `itemsize`, and not 0 unless `may_be_empty`.
    """

    name: str
    make: Callable[[bytes], Any]
    itemsize: int = 1
    writable: bool = False
    may_be_empty: bool = True

    def rounded(self, length: int) -> int:
        """The smallest length that this kind can have and that is not below `length`."""
        length = max(length, 0 if self.may_be_empty else 1)
        return -(-length // self.itemsize) * self.itemsize

    def __str__(self) -> str:
        return self.name


def _mapped(data: bytes) -> mmap.mmap:
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    return mapped


def _read_only_mapped(data: bytes) -> mmap.mmap:
    descriptor = os.memfd_create("ags1-tests")
    try:
        os.write(descriptor, data)
        return mmap.mmap(descriptor, len(data), prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)


def _array(typecode: str) -> Callable[[bytes], Any]:
    return lambda data: array.array(typecode, data)


def _cast(format_: str) -> Callable[[bytes], Any]:
    return lambda data: memoryview(bytearray(data)).cast(format_)


def _numpy(dtype: str) -> Callable[[bytes], Any]:
    return lambda data: np.frombuffer(bytearray(data), dtype)


def _numpy_2d(data: bytes) -> Any:
    return np.frombuffer(bytearray(data), np.int16).reshape(2, -1)


def _numpy_empty_rows(data: bytes) -> Any:
    return np.frombuffer(bytearray(data), np.uint8).reshape(-1, 1)


def _numpy_read_only(data: bytes) -> Any:
    found = np.frombuffer(bytearray(data), np.uint8)
    found.flags.writeable = False
    return found


def _arrow_mutable(data: bytes) -> pa.Buffer:
    buffer = pa.allocate_buffer(len(data))
    memoryview(buffer).cast("B")[:] = data
    return buffer


class _Bytes(bytes):
    """A subclass: exact type checks must not be all that makes bytes work."""


BUFFER_KINDS = (
    BufferKind("bytes", bytes),
    BufferKind("bytes-subclass", _Bytes),
    BufferKind("bytearray", bytearray, writable=True),
    BufferKind("memoryview-read-only", memoryview),
    BufferKind("memoryview-B", _cast("B"), writable=True),
    BufferKind("memoryview-b", _cast("b"), writable=True),
    BufferKind("memoryview-c", _cast("c"), writable=True),
    BufferKind("memoryview-H", _cast("H"), itemsize=2, writable=True),
    BufferKind("memoryview-i", _cast("i"), itemsize=4, writable=True),
    BufferKind("memoryview-d", _cast("d"), itemsize=8, writable=True),
    BufferKind("memoryview-slice", lambda data: memoryview(bytearray(b"##" + data + b"##"))[2:-2], writable=True),
    BufferKind("mmap", _mapped, writable=True, may_be_empty=False),
    BufferKind("mmap-read-only", _read_only_mapped, may_be_empty=False),
    BufferKind("array-B", _array("B"), writable=True),
    BufferKind("array-i", _array("i"), itemsize=4, writable=True),
    BufferKind("array-d", _array("d"), itemsize=8, writable=True),
    BufferKind("numpy-uint8", _numpy("u1"), writable=True),
    BufferKind("numpy-bool", lambda data: np.frombuffer(bytearray(data), np.uint8).view(np.bool_), writable=True),
    BufferKind("numpy-int32", _numpy("<i4"), itemsize=4, writable=True),
    BufferKind("numpy-big-endian", _numpy(">u2"), itemsize=2, writable=True),
    BufferKind("numpy-float64", _numpy("f8"), itemsize=8, writable=True),
    BufferKind("numpy-complex128", _numpy("c16"), itemsize=16, writable=True),
    BufferKind("numpy-2d", _numpy_2d, itemsize=4, writable=True, may_be_empty=False),
    BufferKind("numpy-column", _numpy_empty_rows, writable=True),
    BufferKind("numpy-read-only", _numpy_read_only),
    BufferKind("pyarrow-buffer", pa.py_buffer),
    BufferKind("pyarrow-mutable", _arrow_mutable, writable=True),
)
WRITABLE_KINDS = tuple(kind for kind in BUFFER_KINDS if kind.writable)
READ_ONLY_KINDS = tuple(kind for kind in BUFFER_KINDS if not kind.writable)

# Nothing that has no plain run of bytes may be taken for one.
NON_CONTIGUOUS = {
    "memoryview-step": lambda: memoryview(bytearray(64))[::2],
    "memoryview-reversed": lambda: memoryview(bytearray(64))[::-1],
    "numpy-column-slice": lambda: np.zeros((8, 8), np.uint8)[:, :4],
    "numpy-transposed": lambda: np.zeros((4, 8), np.uint8).T,
    "numpy-fortran": lambda: np.asfortranarray(np.zeros((4, 8), np.uint8)),
}
# What people pass by mistake.
NOT_BUFFERS = (None, 16, 1.5, [1, 2], object(), {"a": 1})


def octets(buffer: Any) -> bytes:
    """Every byte of a C-contiguous buffer, whatever its items are."""
    return memoryview(buffer).tobytes()


# -- file objects --------------------------------------------------------------------------------------------


class CountingFile(io.BytesIO):
    """Remembers what was asked: (offset, size) of each read, the size of each write, seeks and closes."""

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(data)
        self.reads: list[tuple[int, int]] = []
        self.writes: list[int] = []
        self.seeks = 0
        self.closes = 0

    def read(self, size: int | None = -1, /) -> bytes:
        start = self.tell()
        data = super().read(size)
        self.reads.append((start, len(data)))
        return data

    def readinto(self, buffer: Any, /) -> int:
        start = self.tell()
        count = super().readinto(buffer)
        self.reads.append((start, count))
        return count

    def write(self, data: Any, /) -> int:
        count = super().write(data)
        self.writes.append(count)
        return count

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self.seeks += 1
        return super().seek(offset, whence)

    @property
    def bytes_read(self) -> int:
        """Bytes handed out so far."""
        return sum(size for _, size in self.reads)

    def close(self) -> None:
        # Called again by IOBase.__del__, which is nobody's request.
        if not self.closed:
            self.closes += 1
        super().close()


class ShortReads(io.RawIOBase):
    """A seekable file that gives at most `most` bytes a read, as raw files may."""

    def __init__(self, data: bytes, most: int = 5) -> None:
        super().__init__()
        self._file = io.BytesIO(data)
        self._most = most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any, /) -> int | None:
        with memoryview(buffer) as view, view.cast("B") as octets_:
            return self._file.readinto(octets_[: self._most])


class NoneReads(ShortReads):
    """A non-blocking file: after `after` reads it has no data now."""

    def __init__(self, data: bytes, after: int = 0) -> None:
        super().__init__(data, most=1 << 30)
        self._left = after

    def readinto(self, buffer: Any, /) -> int | None:
        if self._left == 0:
            return None
        self._left -= 1
        return super().readinto(buffer)


class FailingReads(ShortReads):
    """A disk that breaks: reading at or beyond `after` bytes raises EIO."""

    def __init__(self, data: bytes, after: int) -> None:
        super().__init__(data, most=1 << 30)
        self._after = after

    def readinto(self, buffer: Any, /) -> int | None:
        if self.tell() + len(memoryview(buffer)) > self._after:
            raise OSError(errno.EIO, "Input/output error")
        return super().readinto(buffer)


class LyingSize(ShortReads):
    """A file that says it is longer than it is: it shrank after its size was asked."""

    def __init__(self, data: bytes, claimed: int) -> None:
        super().__init__(data, most=1 << 30)
        self._claimed = claimed

    def seek(self, offset: int, whence: int = 0, /) -> int:
        if whence == os.SEEK_END:
            return self._claimed + offset
        return super().seek(offset, whence)


class Pipe(io.RawIOBase):
    """A source that can only be read forwards, in pieces of at most `most` bytes."""

    def __init__(self, data: bytes, most: int = 1 << 30) -> None:
        super().__init__()
        self._file = io.BytesIO(data)
        self._most = most

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer) as view, view.cast("B") as octets_:
            return self._file.readinto(octets_[: self._most])


class ShortWrites(io.RawIOBase):
    """A sink that takes at most `most` bytes a write, as raw files may."""

    def __init__(self, most: int = 5) -> None:
        super().__init__()
        self.written = bytearray()
        self._most = most

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int | None:
        with memoryview(data) as view:
            taken = view.tobytes()[: self._most]
        self.written += taken
        return len(taken)


class NoneWrites(ShortWrites):
    """A non-blocking sink: after `after` writes it takes nothing now."""

    def __init__(self, after: int = 0) -> None:
        super().__init__(most=1 << 30)
        self._left = after

    def write(self, data: Any, /) -> int | None:
        if self._left == 0:
            return None
        self._left -= 1
        return super().write(data)


class FailingWrites(ShortWrites):
    """A full disk: what would go beyond `after` bytes raises ENOSPC."""

    def __init__(self, after: int) -> None:
        super().__init__(most=1 << 30)
        self._after = after

    def write(self, data: Any, /) -> int | None:
        if len(self.written) + memoryview(data).nbytes > self._after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


# -- threads and processes -----------------------------------------------------------------------------------


def os_threads() -> frozenset[str]:
    """Ids of the threads of this process, as the kernel lists them. Idle ones, of earlier tests, may end meanwhile."""
    return frozenset(os.listdir("/proc/self/task"))


def open_descriptors() -> int:
    """How many files are open. Sockets of object stores, which earlier tests used, close when they like."""
    # What tests before this one left in tracebacks and in circles is closed now, not in the middle.
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found += os.readlink(f"/proc/self/fd/{name}").startswith("/")
    return found


def interrupted(function: Callable[[], object], moment: int, *files: str) -> bool:
    """Run a function and raise KeyboardInterrupt at a moment of it, counted from 0; whether it lasted until then.

    Moments are where the interpreter looks for signals: when a function of these files begins, and when a native one
    that it has called is over.
    """
    left = moment

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename in files:
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise KeyboardInterrupt

    try:
        sys.setprofile(watch)
        function()
    except KeyboardInterrupt:
        assert left < 0
    finally:
        sys.setprofile(None)
    return left < 0


def in_threads(functions: Iterable[Callable[[], Any]]) -> list[Any]:
    """Run all functions at once; return what they returned, or raise what the first of them raised."""
    jobs = list(functions)
    results: list[Any] = [None] * len(jobs)
    errors: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(index: int) -> None:
        try:
            start.wait(HANG_SECONDS)
            results[index] = jobs[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_SECONDS)
        if thread.is_alive():
            raise TimeoutError("a thread did not come back")
    if errors:
        raise errors[0]
    return results


def in_child(function: Callable[[], bytes], attempts: int = 3) -> bytes:
    """What the function answers in a forked child of this process; up to a pipe's worth of bytes.

    A thread of this process may be inside libssl at the fork, such as that of a server: the child waits for its lock
    then, whatever it does. Such a child is killed, and another one is forked. What hangs by itself hangs each time.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(send, function())
            status = 0
        finally:
            os._exit(status)
    os.close(send)
    with os.fdopen(receive, "rb") as answer:
        if not select.select([answer], [], [], CHILD_SECONDS)[0]:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if attempts == 1:
                raise TimeoutError("a child did not come back")
            return in_child(function, attempts - 1)
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise ChildProcessError(f"the child failed with status {os.waitstatus_to_exitcode(status)}")
    return data


def run_python(code: str, *arguments: str, timeout: float = HANG_SECONDS) -> str:
    """Run a program in a fresh interpreter that can import ags1; return what it printed."""
    # The package first: tests/pythons.py has it elsewhere than the tests.
    roots = (str(Path(each).resolve().parent.parent) for each in (ags1.__file__, __file__))
    path = os.pathsep.join([*roots, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    if done.returncode != 0:
        raise AssertionError(f"the program ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def mount_small_disk(directory: str, size: int) -> bool:
    """Mount a file system of so many bytes for this process alone; it goes with it. False if that is not permitted."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private_and_recursive = 0x20000, 0x44000
    return not (
        libc.unshare(new_namespace)
        or libc.mount(b"none", b"/", None, private_and_recursive, None)
        or libc.mount(b"tmpfs", directory.encode(), b"tmpfs", 0, f"size={size}".encode())
    )


def count_of_messages(key: ags1.Key) -> ctypes.c_int64:
    """The count that a key keeps of the messages which it sealed: its own memory, found by what it must be."""
    if sys.implementation.name != "cpython":
        pytest.skip("looks into the memory of an object")
    size = sys.getsizeof(key)
    candidates = set(range(0, size - 7, 8))
    for _ in range(3):
        before = ctypes.string_at(id(key), size)
        for _ in range(5):
            gcm.seal_message(b"", key, bytes(12))
        after = ctypes.string_at(id(key), size)
        candidates = {
            at
            for at in candidates
            if int.from_bytes(after[at : at + 8], sys.byteorder) - int.from_bytes(before[at : at + 8], sys.byteorder)
            == 5
        }
    assert len(candidates) == 1, "the count is not where it can be found"
    return ctypes.c_int64.from_address(id(key) + candidates.pop())


@cache
def large() -> bytes:
    """Enough bytes for several threads to work on: 24 MiB and a bit."""
    return pattern(24 * MIB + 12_345)


def spellings(key: bytes) -> list[bytes]:
    """A key as it is, and as text: hexadecimal, and base64 from each of the three offsets that it may have there."""
    found = [key, key.hex().encode(), key.hex().upper().encode()]
    for skipped in range(3):
        whole = key[skipped:]
        text = base64.b64encode(whole[: len(whole) // 3 * 3])
        found += [text, text.replace(b"+", b"-").replace(b"/", b"_")]
    return found


def leaks(places: dict[str, bytes], secrets: dict[str, bytes]) -> list[str]:
    """What is where. The first eight bytes or so of a spelling are enough."""
    short = {
        each[:16] if len(each) > 32 else each[:8]: name for name, key in secrets.items() for each in spellings(key)
    }
    found = []
    for place, data in places.items():
        found += [f"{name} in {place}" for each, name in short.items() if each in data]
    return found
