"""The C floor, compiled when it is first needed and called through ctypes.

floors.c is linked with the libcrypto that ``ags1.core.gcm`` is linked with, or not at all: a floor on another OpenSSL
would be another floor. The library is cached outside the tree, where buildtools/openssl.py keeps its own.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import ags1

ROOT = Path(__file__).resolve().parent.parent
SOURCE = Path(__file__).with_name("floors.c")
STREAMS = Path(__file__).with_name("streams.h")
INCLUDE = ROOT / "include"
FLAGS = ("-O3", "-std=gnu11", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-Wall")

_FAILURES = {
    1: "out of memory",
    2: "AES-256-GCM could not be had or keyed",
    3: "RAND_bytes failed",
    4: "a cipher call failed",
    5: "a tag did not verify",
    6: "reading failed or ended early",
    7: "writing failed",
    8: "a file could not be opened",
}


class FloorError(RuntimeError):
    """The C floor could not be built, or failed."""


def _buildtools(which: str = "openssl") -> ModuleType:
    """Load a module of buildtools, which is no package."""
    path = ROOT / "buildtools" / f"{which}.py"
    spec = importlib.util.spec_from_file_location(f"ags1_buildtools_{which}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FloorError(f"{path} is missing: the benchmarks need a checkout of ags1, not only the package")
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up by name.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def openssl_environment() -> dict[str, str]:
    """The environment, with the choice of OpenSSL that the ags1 of this process was built with spelled out."""
    env = dict(os.environ)
    linkage = str(ags1.backend()["linkage"])
    if linkage == "bundled-static":
        env["AGS1_OPENSSL"] = "bundled"
    elif linkage == "system-shared":
        env["AGS1_OPENSSL"] = "system"
    elif not os.path.isabs(env.get("AGS1_OPENSSL", "")):
        raise FloorError(f"ags1 is linked {linkage}: set AGS1_OPENSSL to the prefix that it was built with")
    return env


def build(*, newer: bool = False, one_call: bool = False, boringssl: bool = False) -> Path:
    """Compile floors.c unless this very source, compiler and library were compiled before; return where it is."""
    tools = _buildtools()
    env = openssl_environment()
    try:
        if boringssl:
            chosen = _buildtools("boringssl").choose(env)
        else:
            chosen = tools.newer(env) if newer else tools.choose(env)
    except tools.OpenSSLError as error:
        raise FloorError(f"the C floor has no OpenSSL to link: {error}") from error
    if chosen is None:
        raise FloorError("the C floor has no BoringSSL to link")
    compiler = shlex.split(env.get("CC") or "cc")
    said = subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout
    linked = chosen.objects if boringssl else chosen.archives
    archives = [(path, os.stat(path).st_mtime_ns) for path in linked]
    # Intel's library for small messages, where the system has it.
    found = ctypes.util.find_library("IPSec_MB")
    ipsec_mb = ("-DAGS1_IPSEC_MB", f"-l:{found}") if found else ()
    flags = (*FLAGS, *["-DAGS1_ONE_CALL"] * one_call, *["-DAGS1_BORINGSSL"] * boringssl)
    text = b"".join(path.read_bytes() for path in (SOURCE, STREAMS, *sorted((INCLUDE / "ags1" / "core").glob("*.h"))))
    facts = repr((text, flags, compiler, said, chosen, archives, ipsec_mb))
    directory = cache_directory()
    built = directory / f"floors-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if built.is_file():
        return built
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory, prefix="build-") as scratch:
        target = Path(scratch) / "floors.so"
        command = [
            *compiler,
            *flags,
            *chosen.compile_args,
            f"-I{INCLUDE}",
            str(SOURCE),
            *chosen.link_args,
            *ipsec_mb,
            *("-o", str(target)),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise FloorError(f"floors.c does not compile:\n{shlex.join(command)}\n{done.stderr}")
        os.replace(target, built)
    return built


def cache_directory() -> Path:
    """Where benchmarks keep between runs what takes long to make."""
    return Path(_buildtools().cache_directory(openssl_environment())) / "bench"


def address(buffer: Any) -> int:
    """Where a numpy array of bytes, or another buffer, lies in memory. The caller keeps it alive."""
    array = buffer if isinstance(buffer, np.ndarray) else np.frombuffer(buffer, np.uint8)
    return int(array.ctypes.data)


class Floors:
    """The functions of floors.c. Every call runs without the GIL and raises FloorError if the C code failed.

    They run on the OpenSSL of this process's ags1, on that of the series after it (`newer`), or on BoringSSL. With
    `one_call`, OpenSSL gets each message in one call and not in pieces.
    """

    def __init__(self, *, newer: bool = False, one_call: bool = False, boringssl: bool = False) -> None:
        self._library = ctypes.CDLL(str(build(newer=newer, one_call=one_call, boringssl=boringssl)))
        i, n, p, s = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
        for name, arguments in {
            "floors_init": [],
            "floors_has_ipsec_mb": [],
            "floors_seal": [p, n, p, n, s, i],
            "floors_open": [p, n, p, n, s, i],
            "floors_many": [p, p, n, p, n, s, i, i],
            "floors_file": [s, s, n, n, s, i, i],
            "floors_read_stream": [s, n, n, s, i, n, p],
            "floors_read_pipe": [i, n, n, s, n],
            "floors_write_pipe": [i, p, n, n, s, n],
            "floors_write_stream": [s, p, n, n, s, i, n],
            "floors_read_blocks": [i, p, p, n, n, p, n, n, s],
            "floors_touch": [n, i, i],
        }.items():
            getattr(self._library, name).argtypes = arguments
            getattr(self._library, name).restype = ctypes.c_int
        self._library.floors_copy.argtypes = [p, p, n]
        self._library.floors_copy.restype = None
        self._library.floors_library.argtypes = []
        self._library.floors_library.restype = ctypes.c_char_p
        self._call("floors_init")
        if boringssl:
            # The generator is OpenSSL's, as in ags1.
            self._random = openssl()._library.floors_random_bytes
            self._library.floors_draw_from(self._random)
            return
        theirs, ours = self.library, ags1.backend()["openssl_version"]
        if theirs != ours and not newer:
            raise FloorError(
                f"the floor runs on {theirs}, ags1 on {ours}: set AGS1_OPENSSL as it was when ags1 was built"
            )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise FloorError(f"{name}: {_FAILURES.get(status, status)}")

    @property
    def library(self) -> str:
        """Name, and version if it has one, of the library in the floor."""
        return str(self._library.floors_library().decode())

    @property
    def has_ipsec_mb(self) -> bool:
        """Whether Intel's library was there when the floors were compiled."""
        return bool(self._library.floors_has_ipsec_mb())

    def seal(self, data: Any, out: Any, key: bytes, block_length: int, threads: int) -> None:
        """Encrypt memory into an AGS1 stream in memory."""
        nbytes = memoryview(data).nbytes
        self._call("floors_seal", address(data), nbytes, address(out), block_length, key, threads)

    def open(self, stream: Any, length: int, out: Any, key: bytes, block_length: int, threads: int) -> None:
        """Decrypt an AGS1 stream that holds `length` bytes of plaintext."""
        arguments = (address(stream), length, address(out), block_length, key, threads)
        self._call("floors_open", *arguments)

    def file(
        self, source: Path, target: Path, length: int, key: bytes, block_length: int, threads: int, encrypt: bool
    ) -> None:
        """Encrypt or decrypt a whole file whose plaintext has `length` bytes."""
        paths = os.fsencode(source), os.fsencode(target)
        self._call("floors_file", *paths, length, block_length, key, threads, int(encrypt))

    def read_stream(
        self, source: Path, length: int, key: bytes, block_length: int, threads: int, piece: int, into: Any = None
    ) -> None:
        """Read the plaintext of a file in pieces: into one buffer, or each into memory of its own."""
        arguments = (length, block_length, key, threads, piece, None if into is None else address(into))
        self._call("floors_read_stream", os.fsencode(source), *arguments)

    def read_pipe(self, descriptor: int, length: int, key: bytes, block_length: int, piece: int) -> None:
        """Read the plaintext of a pipe in pieces, each into memory of its own."""
        self._call("floors_read_pipe", descriptor, length, block_length, key, piece)

    def write_pipe(self, descriptor: int, data: Any, key: bytes, block_length: int, piece: int) -> None:
        """Encrypt memory into a pipe, in pieces."""
        length = memoryview(data).nbytes
        self._call("floors_write_pipe", descriptor, address(data), length, block_length, key, piece)

    def write_stream(self, target: Path, data: Any, key: bytes, block_length: int, threads: int, piece: int) -> None:
        """Encrypt memory into a file, in pieces."""
        arguments = (address(data), memoryview(data).nbytes, block_length, key, threads, piece)
        self._call("floors_write_stream", os.fsencode(target), *arguments)

    def read_blocks(
        self,
        source: Any,
        offsets: np.ndarray[Any, np.dtype[np.int64]],
        out: Any,
        length: int,
        key: bytes,
        block_length: int,
    ) -> None:
        """For each offset read and open one block, and copy ``len(out)`` bytes. `source`: descriptor or buffer."""
        descriptor, stream = (source, None) if isinstance(source, int) else (-1, address(source))
        wanted = (address(offsets), len(offsets), memoryview(out).nbytes, address(out))
        self._call("floors_read_blocks", descriptor, stream, *wanted, length, block_length, key)

    def copy(self, out: Any, data: Any) -> None:
        """Memcpy."""
        self._library.floors_copy(address(out), address(data), memoryview(data).nbytes)

    def touch(self, length: int, *, huge: bool, threads: int = 1) -> None:
        """Take fresh memory from the system, touch every page, give it back."""
        self._call("floors_touch", length, int(huge), threads)

    def many(
        self,
        data: Any,
        offsets: np.ndarray[Any, np.dtype[np.int64]],
        key: bytes,
        block_length: int,
        threads: int,
        arena: Any = None,
        *,
        encrypt: bool = True,
        ipsec_mb: bool = False,
    ) -> None:
        """Encrypt or decrypt each item of a batch, into one arena: the given one, or a fresh one that is given back."""
        where, how = None if arena is None else address(arena), 2 if ipsec_mb else int(encrypt)
        arguments = (address(data), address(offsets), len(offsets) - 1, where, block_length, key, threads, how)
        self._call("floors_many", *arguments)


@functools.cache
def openssl() -> Floors:
    """The floors on the OpenSSL of this process's ags1."""
    return Floors()


@functools.cache
def loops() -> dict[str, Floors]:
    """The floors on each library that can be built here, by its name."""
    try:
        return {"OpenSSL": openssl(), "BoringSSL": Floors(boringssl=True)}
    except FloorError:
        return {"OpenSSL": openssl()}


@functools.cache
def load() -> Floors:
    """The floors on the library that gives AES-GCM of a block to the ags1 of this process."""
    return openssl() if ags1.backend()["openssl_from"] is not None else loops()[ags1.backend()["cipher"]]


@functools.cache
def load_newer() -> Floors | None:
    """The same loops on the OpenSSL after ours; None where that cannot be built (there is no cargo, for example)."""
    try:
        return Floors(newer=True)
    except FloorError:
        return None
