"""How fast a file is encrypted and decrypted, and in how much memory, beside `cp`, a C loop and Iceberg Java.

Everything stays in the page cache: sources are read before, outputs are removed and the disk is waited for,
untimed, after every call. A dirty page that one subject leaves behind would be written while the next is timed.
Nothing else comes between calls: a virtual machine hands free pages back to its host within seconds, and page
cache on such pages costs several times as much.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1.bench import Run, Subject
from bench import processes, settings
from bench.conftest import KEY, Record
from bench.floors import Floors
from bench.measure import figure, memory_figure

GIB = settings.GIB
CP_TARGET = 1.0
JAVA_TARGET = 2.0
MEMORY_TARGET = 64.0
# The page cache of the first rounds is memory that a virtual machine's host must find first: ten times as slow.
WARM_UP = 2
THREADS = settings.load().threads


def _away(path: Path) -> Callable[[], None]:
    def remove() -> None:
        path.unlink(missing_ok=True)
        os.sync()

    return remove


@pytest.fixture
def target(directory: Path) -> Path:
    return directory / "target"


@pytest.fixture
def key_file(directory: Path) -> Path:
    command = processes.ags1_command()
    if command is None:
        pytest.skip("ags1 has no command line here (ags1.cli)")
    path = directory / "key"
    if not path.exists():
        processes.run([*command, "keygen", str(path)])
    return path


def _size_name(nbytes: int) -> str:
    return f"{nbytes / GIB:g} GiB" if nbytes >= GIB else f"{nbytes >> 20} MiB"


@pytest.fixture(scope="module")
def large_file(source_file: Path, sizes: settings.Settings) -> Path:
    """A file beside which the start of a program is short."""
    path = source_file.with_name("large")
    with open(path, "wb") as file:
        file.writelines(source_file.read_bytes() for _ in range(sizes.large_file_bytes // sizes.file_bytes))
    os.sync()
    return path


@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_command_line(
    direction: str,
    key_file: Path,
    large_file: Path,
    target: Path,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    program = processes.ags1_command()
    assert program is not None
    source, nbytes = large_file, sizes.large_file_bytes
    if direction == "decrypt":
        source = large_file.with_name("encrypted-by-command")
        processes.run([*program, "encrypt", str(large_file), str(source), "--key-file", str(key_file)])
        os.sync()
    ours = [*program, direction, str(source), str(target), "--key-file", str(key_file)]
    if direction == "decrypt":
        ours += ["--length", str(source.stat().st_size)]
    copy = [*processes.cp_command(), str(source), str(target)]
    run = interleave(
        {
            "ags1": Subject(lambda: processes.run(ours), after=_away(target)),
            "cp": Subject(lambda: processes.run(copy), after=_away(target)),
            "python": Subject(lambda: processes.run([sys.executable, "-c", "pass"])),
        },
        warm_up=WARM_UP,
    )
    question = f"ags1 {direction} of a {_size_name(nbytes)} file, start-up included"
    note = f"a bare interpreter takes {run.median('python') * 1e3:.3g} ms of it"
    record(
        run,
        figure(run, question, "cp", kind="floor", measure="time", target=CP_TARGET, nbytes=nbytes, note=note),
    )


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_in_process(
    direction: str,
    threads: int,
    source_file: Path,
    encrypted_file: Path,
    target: Path,
    sizes: settings.Settings,
    floors: Floors,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    length, block = sizes.file_bytes, 1 << 20
    encrypting = direction == "encrypt"
    source = source_file if encrypting else encrypted_file

    def ours() -> None:
        if encrypting:
            ags1.encrypt_file(source, target, KEY, threads=threads)
        else:
            ags1.decrypt_file(source, target, KEY, threads=threads)

    copy = [*processes.cp_command(), str(source), str(target)]
    run = interleave(
        {
            "ags1": Subject(ours, after=_away(target)),
            "C loop": Subject(
                lambda: floors.file(source, target, length, KEY, block, threads, encrypting), after=_away(target)
            ),
            "cp": Subject(lambda: processes.run(copy), after=_away(target)),
        },
        warm_up=WARM_UP,
    )
    question = f"{direction}_file of {_size_name(length)}, {threads} thread{'s' * (threads > 1)}"
    record(
        run,
        figure(run, question, "C loop", kind="floor", nbytes=length),
        figure(run, question, "cp", kind="reference", nbytes=length),
    )


@pytest.fixture(scope="module")
def java() -> Any:
    """One JVM with Iceberg, for as long as this file takes."""
    try:
        from tests.interop import java_peer, jvm
    except ImportError as error:
        pytest.skip(f"no Java peer: {error}")
    reason = java_peer.available()
    if reason is not None:
        pytest.skip(f"no Java peer: {reason}")
    with java_peer.JavaPeer(jvm_options=jvm.LONG_LIFE) as peer:
        yield peer


@pytest.mark.parametrize("direction", ["encrypt", "decrypt"])
def test_iceberg_java(
    direction: str,
    java: Any,
    source_file: Path,
    encrypted_file: Path,
    target: Path,
    sizes: settings.Settings,
    interleave: Callable[..., Run],
    record: Record,
) -> None:
    encrypting = direction == "encrypt"
    source = source_file if encrypting else encrypted_file
    length = None if encrypting else encrypted_file.stat().st_size

    def theirs(rounds: int = 1) -> float:
        taken = java.bench(direction, KEY, None, length, source, target, rounds, timeout=1200)
        return float(taken[-1]) / 1e9

    def ours() -> None:
        if encrypting:
            ags1.encrypt_file(source, target, KEY)
        else:
            ags1.decrypt_file(source, target, KEY)

    # The JVM compiles AES-GCM after some gigabytes; before that it has a twentieth of its speed.
    theirs(2 if sizes.quick else max(2, 4 * GIB // sizes.file_bytes))
    _away(target)()
    version = java.version()
    name = f"Iceberg Java {version.iceberg}"
    run = interleave(
        {
            "ags1": Subject(ours, after=_away(target)),
            name: Subject(lambda: None, clock=theirs, after=_away(target)),
        },
        warm_up=WARM_UP,
    )
    question = f"{direction} a {_size_name(sizes.file_bytes)} file, in process"
    note = f"Java {version.java}, after warm-up, by its own clock, JVM start-up excluded"
    record(run, figure(run, question, name, kind="peer", target=JAVA_TARGET, nbytes=sizes.file_bytes, note=note))


_PROGRAMS = {
    "encrypt_file": "ags1.encrypt_file(source, target, key)",
    "decrypt_file": "ags1.decrypt_file(source, target, key)",
    "Writer": "copy(open(source, 'rb'), ags1.open(target, 'wb', key=key))",
    "Reader": "copy(ags1.open(source, 'rb', key=key), open(target, 'wb'))",
}
_PRELUDE = f"""
import sys, ags1
source, target, key = sys.argv[1], sys.argv[2], {KEY!r}
def copy(a, b):
    with a, b:
        while piece := a.read(1 << 20):
            b.write(piece)
"""


@pytest.mark.parametrize("way", list(_PROGRAMS))
def test_peak_memory(way: str, directory: Path, sizes: settings.Settings, record: Record) -> None:
    nbytes = 256 << 20 if sizes.quick else GIB
    plain, target = directory / "zeros", directory / "peak"
    source = plain
    try:
        # A hole reads as zeros: as good as any plaintext here, and it fills no disk.
        with open(plain, "wb") as file:
            file.truncate(nbytes)
        if way in ("decrypt_file", "Reader"):
            source = directory / "zeros-encrypted"
            ags1.encrypt_file(plain, source, KEY)
        program = _PRELUDE + _PROGRAMS[way]
        mine = processes.peak_memory([sys.executable, "-c", program, str(source), str(target)])
        bare = processes.peak_memory([sys.executable, "-c", "import ags1"])
    finally:
        for path in (plain, target, directory / "zeros-encrypted"):
            path.unlink(missing_ok=True)
    question = f"peak memory of {way}, {_size_name(nbytes)}"
    record(None, memory_figure(question, "import ags1", mine, bare, target=MEMORY_TARGET))
