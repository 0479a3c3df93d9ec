"""No disk, no memory, no threads, no descriptors: a clear error, no output, nothing leaked, never a crash."""

from __future__ import annotations

import errno
import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

import ags1
from tests import checks
from tests.checks import KEY, damage, open_descriptors, os_threads, pattern, run_python

BLOCK = 1000
PLAIN = pattern(10 * BLOCK + 1)
STREAM = ags1.encrypt(PLAIN, KEY, block_length=BLOCK)
SECONDS = 600

SETUP = """
        import errno, io, os, resource, sys
        import ags1
        from tests import checks

        KEY = checks.KEY
        LARGE = checks.pattern(3 << 20)
        SEALED = ags1.encrypt(LARGE, KEY, block_length=64 << 10)
        directory = sys.argv[1]

        def fails(call, *numbers):
            try:
                call()
            except OSError as error:
                assert error.errno in numbers, error
                return str(error)
            raise SystemExit("succeeded")

        def write(target, **options):
            with ags1.Writer(target, KEY, block_length=64 << 10, **options) as writer:
                for start in range(0, len(LARGE), 100_000):
                    writer.write(LARGE[start : start + 100_000])
                    writer.flush()

        def put(path, data):
            with open(path, "wb") as file:
                file.write(data)
            return path
"""


# -- the disk ------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_full_disk(threads: int, tmp_path: Path) -> None:
    said = run_python(
        SETUP
        + """
        small = directory + "/small"
        os.mkdir(small)
        if not checks.mount_small_disk(small, 1 << 20):
            print("not permitted")
            sys.exit()
        threads = int(sys.argv[2])
        plain, sealed = put(directory + "/plain", LARGE), put(directory + "/sealed", SEALED)
        target = small + "/target"
        os.environ["LAKE_KEY"] = KEY.hex()
        from ags1.cli import main
        attempts = [
            lambda: ags1.encrypt_file(plain, target, KEY, threads=threads),
            lambda: ags1.decrypt_file(sealed, target, KEY, threads=threads),
            lambda: ags1.encrypt_file(io.BytesIO(LARGE), target, KEY, threads=threads),
            lambda: ags1.decrypt_file(io.BytesIO(SEALED), target, KEY, threads=threads),
            lambda: write(target, threads=threads),
        ]
        for existed in (False, True):
            if existed:
                put(target, b"what was there")
            for attempt in attempts:
                said = fails(attempt, errno.ENOSPC)
                assert target in said and "No space left" in said, said
                assert os.listdir(small) == ["target"] * existed
                found = os.statvfs(small)
                assert found.f_blocks - found.f_bfree <= 1 * existed, "space is still taken"
            for name in ("encrypt", "decrypt"):
                source, further = (plain, []) if name == "encrypt" else (sealed, ["--any-length"])
                code = main([name, source, target, "--overwrite", "--key-env", "LAKE_KEY", "--quiet", *further])
                assert code == 4
                assert os.listdir(small) == ["target"] * existed
        assert open(target, "rb").read() == b"what was there"
        # A file object on that disk is the caller's: what is in it is no stream.
        with open(small + "/borrowed", "wb") as file:
            fails(lambda: write(file, threads=threads), errno.ENOSPC)
            try:
                file.close()
            except OSError:
                pass
        try:
            ags1.decrypt(open(small + "/borrowed", "rb").read(), KEY)
        except ags1.Ags1Error:
            print("refused")
        """,
        str(tmp_path), str(threads),
    )  # fmt: skip
    if "not permitted" in said:
        pytest.skip("only root can mount a small disk here")
    assert "refused" in said


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_limit_on_the_size_of_files(threads: int, tmp_path: Path) -> None:
    run_python(
        SETUP
        + """
        threads = int(sys.argv[2])
        plain, sealed = put(directory + "/plain", LARGE), put(directory + "/sealed", SEALED)
        out = directory + "/out"
        os.mkdir(out)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        for attempt in (
            lambda: ags1.encrypt_file(plain, out + "/target", KEY, threads=threads),
            lambda: ags1.decrypt_file(sealed, out + "/target", KEY, threads=threads),
            lambda: ags1.encrypt_file(io.BytesIO(LARGE), out + "/target", KEY, threads=threads),
            lambda: ags1.decrypt_file(io.BytesIO(SEALED), out + "/target", KEY, threads=threads),
            lambda: write(out + "/target", threads=threads),
        ):
            assert out + "/target" in fails(attempt, errno.EFBIG)
            assert os.listdir(out) == []
        """,
        str(tmp_path), str(threads),
    )  # fmt: skip


@pytest.mark.parametrize("call", ["encrypt_file", "decrypt_file", "writer"])
def test_a_device_that_is_always_full(call: str) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")

    def write() -> None:
        with ags1.Writer("/dev/full", KEY) as writer:
            writer.write(PLAIN)

    calls: dict[str, Any] = {
        "encrypt_file": lambda: ags1.encrypt_file(io.BytesIO(PLAIN), "/dev/full", KEY),
        "decrypt_file": lambda: ags1.decrypt_file(io.BytesIO(STREAM), "/dev/full", KEY),
        "writer": write,
    }
    with pytest.raises(OSError, match="No space left on device") as caught:
        calls[call]()
    assert caught.value.errno == errno.ENOSPC


# -- descriptors ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
def test_no_more_descriptors(tmp_path: Path) -> None:
    run_python(
        SETUP
        + """
        plain, sealed = put(directory + "/plain", LARGE), put(directory + "/sealed", SEALED)
        out = directory + "/out"
        os.mkdir(out)
        from ags1.streams import files
        from ags1.streams import verify
        def read():
            with ags1.open(sealed, key=KEY) as reader:
                return reader.read()
        def borrowed():
            with open(sealed, "rb") as file, ags1.Reader(file, KEY) as reader:
                return reader.read()
        calls = [
            lambda: ags1.encrypt_file(plain, out + "/target", KEY, threads=2),
            lambda: ags1.decrypt_file(sealed, out + "/target", KEY, threads=2),
            lambda: ags1.encrypt_file(io.BytesIO(LARGE), out + "/target", KEY),
            lambda: ags1.decrypt_file(io.BytesIO(SEALED), out + "/target", KEY),
            lambda: write(out + "/target"),
            lambda: ags1.verify_file(sealed, KEY),
            read,
            borrowed,
        ]
        for call in calls:
            call()
        held = len(os.listdir("/proc/self/fd")) - 1
        for spare in range(0, 8):
            for call in calls:
                for name in os.listdir(out):
                    os.unlink(out + "/" + name)
                resource.setrlimit(resource.RLIMIT_NOFILE, (held + spare, 4096))
                try:
                    call()
                except OSError as error:
                    assert error.errno == errno.EMFILE, error
                    done = False
                else:
                    done = True
                resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
                assert len(os.listdir("/proc/self/fd")) - 1 == held, "descriptors leak"
                assert os.listdir(out) in ([], ["target"] * done), os.listdir(out)
        assert done
        """,
        str(tmp_path),
    )


def test_descriptors_and_threads_do_not_leak(tmp_path: Path) -> None:
    good, bad, plain, out = (tmp_path / name for name in ("good", "bad", "plain", "out"))
    good.write_bytes(STREAM)
    bad.write_bytes(damage(STREAM, BLOCK, 7))
    plain.write_bytes(PLAIN)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    def abandoned() -> None:
        writer = ags1.Writer(out, KEY)
        writer.write(PLAIN)
        with pytest.warns(ResourceWarning, match="was dropped"):
            del writer

    def raising() -> None:
        with ags1.Writer(out, KEY) as writer:
            writer.write(PLAIN)
            raise ZeroDivisionError

    def unread() -> None:
        ags1.open(good, key=KEY).read(1)

    operations: list[Any] = [
        lambda: ags1.encrypt_file(plain, out, KEY, threads=3), lambda: ags1.decrypt_file(good, out, KEY, threads=3),
        lambda: ags1.decrypt_file(bad, out, KEY, threads=3), lambda: ags1.verify_file(bad, KEY, threads=3),
        lambda: ags1.decrypt_file(plain, out, KEY), lambda: ags1.decrypt_file(good, out, KEY, length=5),
        lambda: ags1.encrypt_file(plain, plain, KEY), lambda: ags1.encrypt_file(plain, tmp_path, KEY),
        lambda: ags1.encrypt_file(plain, tmp_path / "no" / "where", KEY), lambda: ags1.open(plain, key=KEY),
        lambda: ags1.open(good, key=KEY, length=5), lambda: ags1.Writer(out, KEY).abort(),
        lambda: ags1.open(bad, key=KEY).read(),
        lambda: ags1.encrypt_file(plain, out, KEY, progress=lambda done, total: 1 // 0), abandoned, raising, unread,
        lambda: ags1.decrypt_many([STREAM] * 50 + [bad.read_bytes()], KEY, threads=3),
        lambda: ags1.decrypt(bad.read_bytes(), KEY, threads=3),
        lambda: ags1.Reader(checks.Pipe(bad.read_bytes()), KEY).read(),
    ]  # fmt: skip

    descriptors, threads = open_descriptors(), os_threads()
    outcomes: set[type] = set()
    for _ in range(12):
        for operation in operations:
            try:
                operation()
            except (ags1.Ags1Error, OSError, ValueError, ZeroDivisionError) as error:
                outcomes.add(type(error))
    assert open_descriptors() == descriptors
    assert not os_threads() - threads
    assert len(outcomes) >= 5, "the failures did not fail"
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".ags1-tmp")]


# -- threads -------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("allowed", [0, 2])
def test_a_system_that_gives_no_threads_gives_the_same_result(allowed: int) -> None:
    # Not pytest's directory, which only its owner may enter.
    directory = tempfile.mkdtemp()
    try:
        said = run_without_threads(directory, allowed)
    finally:
        shutil.rmtree(directory)
    if "limited" not in said:
        pytest.skip("this system does not limit threads by RLIMIT_NPROC")
    assert "done" in said


def run_without_threads(directory: str, allowed: int) -> str:
    return run_python(
        SETUP
        + """
        import threading
        from tests.checks import os_threads
        os.chmod(directory, 0o777)
        plain, sealed, out = put(directory + "/plain", LARGE), put(directory + "/sealed", SEALED), directory + "/out"
        # Loaded now, since soon their files may be out of reach.
        from ags1.streams import files
        from ags1.streams import verify
        if os.getuid() == 0:
            # Limits on processes do not bind root; nobody else has this number.
            os.setresuid(54_321, 54_321, 54_321)
        resource.setrlimit(resource.RLIMIT_NPROC, (1 + int(sys.argv[2]),) * 2)
        held = []
        try:
            for _ in range(50):
                release = threading.Event()
                thread = threading.Thread(target=release.wait)
                thread.start()
                held.append((thread, release))
        except RuntimeError:
            print("limited")
        for thread, release in held:
            release.set()
        for thread, release in held:
            thread.join()
        assert ags1.decrypt(SEALED, KEY, threads=8) == LARGE
        assert ags1.decrypt(ags1.encrypt(LARGE, KEY, threads=8, block_length=5000), KEY, threads=8) == LARGE
        made = ags1.encrypt_many([LARGE[:3000]] * 3000, KEY, threads=8)
        assert set(map(bytes, ags1.decrypt_many(made, KEY, threads=8))) == {LARGE[:3000]}
        assert ags1.encrypt_file(plain, out, KEY, threads=8).file_length
        assert ags1.decrypt_file(sealed, out, KEY, threads=8) == len(LARGE)
        assert open(out, "rb").read() == LARGE
        assert ags1.verify_file(sealed, KEY, threads=8).ok
        with ags1.Reader(SEALED, KEY, threads=8) as reader:
            assert reader.read() == LARGE
        try:
            ags1.decrypt(checks.damage(SEALED, 64 << 10, 40), KEY, threads=8)
        except ags1.AuthenticationError as error:
            assert error.block_index == 40
            print("done")
        """,
        directory, str(allowed),
    )  # fmt: skip


# -- memory --------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
def test_refused_memory_is_a_memory_error(tmp_path: Path) -> None:
    run_python(
        SETUP
        + """
        import mmap
        path = put(directory + "/sparse", b"AGS1" + (1 << 20).to_bytes(4, "little"))
        os.truncate(path, 1 << 32)
        with open(path, "rb") as file:
            huge = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        from ags1.streams import files
        from ags1.streams import verify
        with open("/proc/self/status") as status:
            taken = next(int(line.split()[1]) for line in status if line.startswith("VmPeak"))
        resource.setrlimit(resource.RLIMIT_AS, ((taken << 10) + (256 << 20),) * 2)
        for call in (
            lambda: ags1.encrypt(huge, KEY), lambda: ags1.decrypt(huge, KEY), lambda: ags1.encrypt_many([huge], KEY),
            lambda: ags1.decrypt_many([huge, SEALED], KEY), lambda: ags1.Reader(huge, KEY).read(),
            lambda: ags1.Reader(path, KEY).read(), lambda: ags1.Reader(path, KEY).pread(0, 1 << 31),
            lambda: ags1.encrypt(huge, KEY, threads=64),
        ):
            try:
                call()
            except MemoryError:
                continue
            raise SystemExit("succeeded")
        # And nothing is broken afterwards; crews of many threads find no stacks.
        assert ags1.decrypt(SEALED, KEY, threads=200) == LARGE
        """,
        str(tmp_path),
    )


FAILING_MALLOC = """
import ctypes, gc, io, os, sys
import ags1
from ags1.streams import files
from ags1.streams import verify
from tests import checks

shim = ctypes.CDLL(sys.argv[1])
fail_at, fail_on, failed = (
    kind.in_dll(shim, name)
    for kind, name in ((ctypes.c_long, "ags1_fail_at"), (ctypes.c_int, "ags1_fail_on"), (ctypes.c_long, "ags1_failed"))
)
KEY, PREFIX = checks.KEY, bytes(600)
directory = sys.argv[2]
DATA = checks.pattern(200_000)
SEALED = ags1.encrypt(DATA, KEY, aad_prefix=PREFIX, block_length=1000)
for name, data in (("plain", DATA), ("sealed", SEALED)):
    with open(f"{directory}/{name}", "wb") as file:
        file.write(data)
# Python itself does not survive every failure in its own small objects; they come from its arenas, which are full of
# room here, so what fails is ours and OpenSSL's.
room = [bytearray(400) for _ in range(50_000)]
del room
OUT = bytearray(len(SEALED))
OPTIONS = {"aad_prefix": PREFIX}
def same(data):
    assert bytes(data) == DATA, "wrong plaintext"
def sealed(data):
    assert ags1.decrypt(data, KEY, **OPTIONS) == DATA, "wrong ciphertext"
CALLS = {
    "encrypt": lambda threads: ags1.encrypt_into(DATA, OUT, KEY, block_length=1000, threads=threads, **OPTIONS),
    "decrypt": lambda threads: ags1.decrypt_into(SEALED, OUT, KEY, threads=threads, **OPTIONS),
    "encrypt_many": lambda threads: ags1.encrypt_many([DATA] * 3, KEY, block_length=1000, threads=threads),
    "decrypt_many": lambda threads: ags1.decrypt_many([SEALED] * 3, KEY, aad_prefixes=[PREFIX] * 3, threads=threads),
    "encrypt_file": lambda threads: ags1.encrypt_file(
        directory + "/plain", directory + "/out", KEY, block_length=1000, threads=threads, **OPTIONS
    ),
    "decrypt_file": lambda threads: ags1.decrypt_file(
        directory + "/sealed", directory + "/out", KEY, threads=threads, **OPTIONS
    ),
    "pread": lambda threads: ags1.Reader(directory + "/sealed", KEY, threads=threads, **OPTIONS).pread(10, 150_000),
}
JUDGES = {
    "encrypt": lambda result: sealed(OUT[:result]),
    "decrypt": lambda result: same(OUT[:result]),
    "encrypt_many": lambda result: [same(ags1.decrypt(each, KEY)) for each in result],
    "decrypt_many": lambda result: [same(each) for each in result],
    "encrypt_file": lambda result: sealed(open(directory + "/out", "rb").read()),
    "decrypt_file": lambda result: same(open(directory + "/out", "rb").read()),
    "pread": lambda result: same(DATA[:10] + result + DATA[150_010:]),
}
def ended(call, threads):
    try:
        return call(threads)
    finally:
        # First of all: telling the error from others takes memory too.
        fail_at.value = 0
refusals = 0
for name, call in CALLS.items():
    for threads in (1, 3):
        judge = JUDGES[name]
        judge(call(threads))
        for on in (0, 1):
            for number in range(1, 400):
                fail_on.value, failed.value = on, 0
                fail_at.value = number
                try:
                    result = ended(call, threads)
                except (MemoryError, RuntimeError) as error:
                    # Python says of a lock of its own what it does not say of memory.
                    assert not type(error) is RuntimeError or "allocate" in str(error), error
                    result = None
                if result is not None:
                    judge(result)
                elif name in ("decrypt", "decrypt_many"):
                    assert result is None
                refusals += result is None
                if failed.value == 0:
                    break
            judge(call(threads))
        gc.collect()
print(refusals)
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_every_single_allocation_that_can_fail(tmp_path: Path) -> None:
    # Each of them in turn, and all from each on: in this package, in OpenSSL below it, in threads and without.
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler and glibc")
    shim = tmp_path / "failing_malloc.so"
    source = Path(__file__).with_name("failing_malloc.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, source], check=True, timeout=SECONDS)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", FAILING_MALLOC, str(shim), str(tmp_path)],
        capture_output=True, text=True, timeout=2 * SECONDS, check=False,
        env={**os.environ, "LD_PRELOAD": str(shim), "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert int(done.stdout) > 50


@pytest.mark.slow
@pytest.mark.timeout(SECONDS)
def test_memory_does_not_grow(tmp_path: Path) -> None:
    run_python(
        SETUP
        + """
        import gc
        path, out = put(directory + "/sealed", SEALED), directory + "/out"
        bad = checks.damage(SEALED, 64 << 10, 20)
        broken = put(directory + "/bad", bad)
        small = ags1.encrypt(b"small", KEY)
        def resident():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096
        def fail(call):
            try:
                call()
            except ags1.Ags1Error:
                return
            raise SystemExit("accepted")
        def once():
            ags1.decrypt(SEALED, KEY, threads=2)
            ags1.decrypt_many([small] * 300, KEY, threads=2)
            ags1.encrypt_many([b"small"] * 300, KEY, threads=2)
            fail(lambda: ags1.decrypt(bad, KEY, threads=2))
            fail(lambda: ags1.decrypt_many([small] * 300 + [bad], KEY, threads=2))
            fail(lambda: ags1.decrypt_file(broken, out, KEY, threads=2))
            fail(lambda: ags1.Reader(broken, KEY).read())
            fail(lambda: ags1.Reader(bad[:-40], KEY).pread(0, 1 << 30))
            with ags1.Reader(path, KEY) as reader:
                reader.read(100_000)
            with ags1.Writer(io.BytesIO(), KEY) as writer:
                writer.write(LARGE)
            for _ in range(100):
                ags1.KeyMetadata.decode(ags1.KeyMetadata(KEY, b"1234", 100).encode())
                key = ags1.Key(KEY)
                assert key == KEY and memoryview(key)[0] == KEY[0]
                fail(lambda: ags1.KeyMetadata.decode(b"\\x01\\x20"))
        for _ in range(30):
            once()
        sizes = [resident()]
        for _ in range(6):
            for _ in range(40):
                once()
            sizes.append(resident())
        # A leak grows all the time; allocators and huge pages do in jumps, and shrink again.
        grown = [after - before for before, after in zip(sizes, sizes[1:], strict=False)]
        assert min(grown) < 200_000, f"{grown} bytes more after 40 rounds each"
        """,
        str(tmp_path),
    )
