"""Parquet files while processes fork, die or are interrupted, and while disk and memory run out; and where keys are."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ags1
from ags1 import parquet
from tests.checks import KEYS, open_descriptors, os_threads, run_python
from tests.parquet.pages import header
from tests.parquet.reference_thrift import BINARY, I32, I64, LIST, STRUCT, Sequence, Struct, encode
from tests.threats import memory

KEY = KEYS[16]
SECONDS = 600
MIB = 1 << 20


def large_file(path: Path, mebibytes: int, body: int = MIB) -> None:
    """A Parquet file of one column whose pages are zeros, and holes on the disk."""
    count = mebibytes * MIB // body
    page = encode(header(body))
    with open(path, "wb") as file:
        file.write(b"PAR1")
        at = 4
        for _ in range(count):
            os.pwrite(file.fileno(), page, at)
            at += len(page) + body
        file.truncate(at)
        file.seek(at)
        metadata = Struct().put(1, I32, 1).put(2, LIST, Sequence(I32, [0])).put(3, LIST, Sequence(BINARY, [b"a"]))
        metadata.put(4, I32, 0).put(5, I64, count).put(6, I64, at - 4).put(7, I64, at - 4).put(9, I64, 4)
        chunk = Struct().put(2, I64, 0).put(3, STRUCT, metadata)
        group = Struct().put(1, LIST, Sequence(STRUCT, [chunk])).put(2, I64, at - 4).put(3, I64, count)
        leaf = Struct().put(1, I32, 1).put(3, I32, 0).put(4, BINARY, b"a")
        schema = [Struct().put(4, BINARY, b"schema").put(5, I32, 1), leaf]
        footer = Struct().put(1, I32, 1).put(2, LIST, Sequence(STRUCT, schema)).put(3, I64, count)
        tail = encode(footer.put(4, LIST, Sequence(STRUCT, [group])))
        file.write(tail + len(tail).to_bytes(4, "little") + b"PAR1")


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 300 MiB."""
    path = tmp_path_factory.mktemp("parquet") / "large.parquet"
    large_file(path, 300)
    return path


@pytest.fixture(scope="module")
def sealed(large: Path) -> Path:
    """The same, encrypted."""
    path = large.with_name("sealed.parquet")
    parquet.encrypt_file(large, path, parquet.EncryptionConfig(KEY))
    return path


def run(call: str, large: Path, sealed: Path, target: Any, **options: Any) -> None:
    """Encrypt the one file, or decrypt the other."""
    if call == "encrypt_file":
        parquet.encrypt_file(large, target, parquet.EncryptionConfig(KEY), **options)
    else:
        parquet.decrypt_file(sealed, target, parquet.DecryptionConfig(KEY), **options)


# -- interruptions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["encrypt_file", "decrypt_file"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError, MemoryError])
def test_an_exception_in_progress_ends_everything(
    error: type[BaseException], call: str, large: Path, sealed: Path, tmp_path: Path
) -> None:
    threads, descriptors = os_threads(), open_descriptors()
    target = tmp_path / "target"
    target.write_bytes(b"what was there")
    calls = 0

    def progress(done: int, total: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            assert 0 < done < total
            raise error("on purpose")

    with pytest.raises(error, match="on purpose"):
        run(call, large, sealed, target, threads=3, progress=progress)
    assert os.listdir(tmp_path) == ["target"]
    assert target.read_bytes() == b"what was there"
    assert not os_threads() - threads
    assert open_descriptors() == descriptors


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_signals_in_the_middle_leave_no_name(how: signal.Signals, large: Path, tmp_path: Path) -> None:
    try:
        os.close(os.open(tmp_path, os.O_TMPFILE | os.O_RDWR))
    except (OSError, AttributeError):
        pytest.skip("this file system has no unnamed files")
    program = """
import os, sys
from ags1 import parquet
# Each line is waited for, so that the signal comes before the work is done.
parquet.encrypt_file(
    sys.argv[1], sys.argv[2], parquet.EncryptionConfig(bytes(range(16))), threads=4,
    progress=lambda done, total: (os.write(1, b"."), os.read(0, 1)),
)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(large), str(tmp_path / "target")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(memory.ROOT)},
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for _ in range(3):
            assert process.stdout.read(1) == b"."
            process.stdin.write(b"x")
            process.stdin.flush()
        assert process.stdout.read(1) == b"."
        process.send_signal(how)
        process.stdin.close()
        assert process.wait(SECONDS) in (-how, 130, 1)
    assert os.listdir(tmp_path) == []


# -- fork ----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(2 * SECONDS)
def test_children_forked_while_pages_are_moved_neither_hang_nor_repeat_nonces(tmp_path: Path) -> None:
    run_python(
        """
        import io, os, select, signal, sys, threading
        from pathlib import Path
        from ags1 import parquet
        from tests.parquet import reference
        from tests.threats.test_parquet_processes import KEY, large_file

        directory = Path(sys.argv[1])
        plain, out, encryption = directory / "large", directory / "out", parquet.EncryptionConfig(KEY)
        large_file(plain, 100)
        large_file(directory / "small", 1, 1000)
        small = (directory / "small").read_bytes()
        stop, failures = threading.Event(), []

        def moving():
            try:
                while not stop.is_set():
                    parquet.encrypt_file(plain, out, encryption, threads=2)
            except BaseException as error:
                failures.append(error)

        def nonces():
            made = io.BytesIO()
            parquet.encrypt_file(small, made, parquet.EncryptionConfig(KEY), threads=2)
            data, found, at = made.getvalue(), [], 4
            for _ in range(400):
                found.append(data[at + 4 : at + 16])
                at += 4 + int.from_bytes(data[at : at + 4], "little")
            parquet.decrypt_file(data, io.BytesIO(), parquet.DecryptionConfig(KEY), threads=2)
            return b"".join(found)

        # Everything is imported now: a child inherits the lock of a module that a thread was importing.
        nonces()
        # Not to be waited for if something fails.
        thread = threading.Thread(target=moving, daemon=True)
        thread.start()
        seen, drawn = set(), 0
        for _ in range(25):
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(600)
                    os.write(send, nonces())
                    status = 0
                finally:
                    os._exit(status)
            os.close(send)
            with os.fdopen(receive, "rb") as answer:
                data = answer.read() + nonces()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            seen.update(data[at : at + 12] for at in range(0, len(data), 12))
            drawn += len(data) // 12
        stop.set()
        thread.join()
        assert not failures, failures
        assert len(seen) == drawn == 25 * 800, "a nonce was repeated"
        """,
        str(tmp_path),
        timeout=2 * SECONDS,
    )


# -- disk and memory -----------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_limit_on_the_size_of_files(threads: int, large: Path, sealed: Path, tmp_path: Path) -> None:
    run_python(
        """
        import errno, os, resource, sys
        from ags1 import parquet
        from tests.threats.test_parquet_processes import KEY
        large, sealed, out, threads = *sys.argv[1:4], int(sys.argv[4])
        resource.setrlimit(resource.RLIMIT_FSIZE, (40 << 20, 40 << 20))
        encryption, decryption = parquet.EncryptionConfig(bytes(range(32))), parquet.DecryptionConfig(KEY)
        for call in (
            lambda: parquet.encrypt_file(large, out + "/target", encryption, threads=threads),
            lambda: parquet.encrypt_file(open(large, "rb"), out + "/target", encryption, threads=threads),
            lambda: parquet.decrypt_file(sealed, out + "/target", decryption, threads=threads),
            lambda: parquet.rekey_file(sealed, out + "/target", decryption, encryption, threads=threads),
        ):
            try:
                call()
            except OSError as error:
                assert error.errno == errno.EFBIG, error
                assert out + "/target" in str(error), error
            else:
                raise SystemExit("succeeded")
            assert os.listdir(out) == []
        """,
        str(large), str(sealed), str(tmp_path), str(threads),
    )  # fmt: skip


@pytest.mark.parametrize("call", ["encrypt_file", "decrypt_file"])
def test_a_device_that_is_always_full(call: str, large: Path, sealed: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        run(call, large, sealed, "/dev/full")
    assert caught.value.errno == errno.ENOSPC


def test_a_source_that_shrinks_on_the_way(tmp_path: Path) -> None:
    source, target = tmp_path / "lake.parquet", tmp_path / "target"
    large_file(source, 150)

    def progress(done: int, total: int) -> None:
        if done:
            os.truncate(source, 100 * MIB)

    with pytest.raises((ags1.TruncatedError, OSError), match=r"lake\.parquet: "):
        parquet.encrypt_file(source, target, parquet.EncryptionConfig(KEY), threads=2, progress=progress)
    assert os.listdir(tmp_path) == ["lake.parquet"]


def test_a_source_that_changes_on_the_way(tmp_path: Path) -> None:
    source, target = tmp_path / "lake.parquet", tmp_path / "target"
    large_file(source, 3)

    def progress(done: int, total: int) -> None:
        if done == total:
            os.utime(source, (1, 1))

    with pytest.raises(OSError, match="was changed after it was opened"):
        parquet.encrypt_file(source, target, parquet.EncryptionConfig(KEY), progress=progress)
    assert os.listdir(tmp_path) == ["lake.parquet"]


@pytest.mark.timeout(2 * SECONDS)
def test_memory_is_bounded_whatever_the_size_of_the_file(large: Path, sealed: Path, tmp_path: Path) -> None:
    said = run_python(
        """
        import sys
        from pathlib import Path
        from ags1 import parquet
        from tests.threats.test_parquet_processes import KEY, large_file
        large, sealed, directory = map(Path, sys.argv[1:])
        small = directory / "small"
        large_file(small, 1)
        encryption, decryption = parquet.EncryptionConfig(KEY), parquet.DecryptionConfig(KEY)
        def peak():
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) << 10
        def run(plain, encrypted):
            parquet.encrypt_file(plain, directory / "out", encryption, threads=4)
            parquet.rekey_file(encrypted, directory / "again", decryption, encryption, threads=4)
            parquet.decrypt_file(encrypted, directory / "out", decryption, threads=4)
            with open(plain, "rb", buffering=0) as file:
                # Neither end is a descriptor to the native code: what is read comes in windows.
                class Wrapped:
                    read, seek, tell, seekable = file.read, file.seek, file.tell, file.seekable
                with open(directory / "out", "wb") as target:
                    class Sink:
                        write, flush = target.write, target.flush
                    parquet.encrypt_file(Wrapped(), Sink(), encryption, threads=4)
        parquet.encrypt_file(small, directory / "small.sealed", encryption)
        run(small, directory / "small.sealed")
        before = peak()
        run(large, sealed)
        print(peak() - before)
        """,
        str(large), str(sealed), str(tmp_path),
        timeout=2 * SECONDS,
    )  # fmt: skip
    assert int(said) < 160 * MIB, f"{int(said) >> 20} MiB for a file of 300 MiB"


# -- keys ----------------------------------------------------------------------------------------------------

USES = """
import gc, io, os, sys, tempfile
from pathlib import Path
import ags1
from ags1 import parquet
from tests.threats.test_parquet_processes import large_file
raw, kept = expect(16), expect(16)
key, other = ags1.Key(raw), ags1.Key(kept)
raw[:] = bytes(16)
kept[:] = bytes(16)
directory = tempfile.TemporaryDirectory()
plain, sealed = Path(directory.name, "plain"), Path(directory.name, "sealed")
large_file(plain, 3, 5000)
encryption, decryption = parquet.EncryptionConfig(key), parquet.DecryptionConfig(key)
"""
AFTERWARDS: dict[str, str] = {
    "encrypting": "parquet.encrypt_file(plain, sealed, encryption, threads=3)",
    "decrypting and viewing": """
parquet.encrypt_file(plain, sealed, encryption, threads=3)
parquet.decrypt_file(sealed, plain, decryption, threads=3)
with parquet.open(sealed, decryption, threads=2) as view:
    assert len(view.read()) > 1 << 20
del view
""",
    "failures": """
parquet.encrypt_file(plain, sealed, encryption)
with open(sealed, "r+b") as file:
    file.seek(1 << 20)
    file.write(b"damage")
for threads in (1, 3):
    try:
        parquet.decrypt_file(sealed, plain, decryption, threads=threads)
    except ags1.Ags1Error:
        continue
    raise SystemExit("accepted")
del file
""",
}


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("use", AFTERWARDS)
def test_a_key_is_gone_from_memory_once_its_objects_are(use: str) -> None:
    gone, kept = os.urandom(16), os.urandom(16)
    ending = "directory.cleanup()\ndel key, encryption, decryption\ngc.collect()"
    code = "\n".join([USES, AFTERWARDS[use], ending])
    hits = memory.count_after(code, gone + kept, [gone, kept, gone[:12], gone[-12:]])
    assert hits[1] == 1, "the search finds nothing, or a second copy of the key that is still in use"
    assert hits[0] == hits[2] == hits[3] == 0


def test_a_launched_conversion_keeps_its_keys_and_no_longer(tmp_path: Path) -> None:
    gone, kept = os.urandom(16), os.urandom(16)
    code = """
import gc, os, sys
import ags1
from ags1.parquet.native.conversion import Conversion
from ags1.parquet.native.pages import AES_GCM, Chunk, PageList, PageSource
from tests.parquet.pages import page
raw, kept = expect(16), expect(16)
key, other = ags1.Key(raw), ags1.Key(kept)
raw[:] = bytes(16)
kept[:] = bytes(16)
data = page(bytes(50_000)) * 300
conversion, pages, source = Conversion(b"", b"aad", threads=2), PageList(b""), PageSource(data)
pages.add(Chunk(0, len(data), 0, "a", target_protection=AES_GCM, target_key=key), source, 1 << 40)
with open(sys.argv[1], "wb") as target:
    conversion.start(pages, source, target.fileno(), 0)
    del key
    gc.collect()
    assert conversion.wait() == os.fstat(target.fileno()).st_size
del pages
gc.collect()
"""
    hits = memory.count_after(code, gone + kept, [gone, kept], str(tmp_path / "out"))
    assert hits == [0, 1]


def test_no_message_shows_a_key(large: Path, tmp_path: Path) -> None:
    secret = bytes.fromhex("d1e5a7c3f90b64823b7dce1f2a98e456")
    config: Any = parquet.EncryptionConfig(secret, column_keys={"a": secret[::-1]})
    shown = f"{config!r} {parquet.DecryptionConfig(secret, column_keys={'a': secret})!r}"
    sealed = tmp_path / "sealed"
    small = tmp_path / "small"
    large_file(small, 1)
    parquet.encrypt_file(small, sealed, config)
    for decryption in (
        parquet.DecryptionConfig(secret),
        parquet.DecryptionConfig(secret[::-1], column_keys={"a": secret}),
        parquet.DecryptionConfig(secret, column_keys={"a": secret}),
    ):
        with pytest.raises(ags1.Ags1Error) as caught:
            parquet.decrypt_file(sealed, tmp_path / "out", decryption)
        shown += f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    for form in (secret.hex(), repr(secret)[2:-1], secret[:6].hex(), secret[::-1].hex()):
        assert form not in shown
