"""Forks, kills, interrupts and exits at the worst moments: no deadlock, no repeated nonce, nothing half-written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import ags1
from tests import checks
from tests.checks import KEY, KEYS, MIB, pattern, run_python
from tests.threats.memory import ROOT

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and Linux's name spaces")
SECONDS = 600


def start(code: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


# -- fork ----------------------------------------------------------------------------------------------------


FORKING = """
        import os, select, signal, sys, threading
        import ags1
        from tests import checks

        KEY = checks.KEY
        DATA = checks.pattern(3 << 20)
        STREAM = ags1.encrypt(DATA, KEY, block_length=64 << 10)
        BAD = checks.damage(STREAM, 64 << 10, 30)
        stop = threading.Event()
        failures = []

        def sealing():
            while not stop.is_set():
                ags1.encrypt(DATA, KEY, block_length=64 << 10, threads=2)

        def opening():
            while not stop.is_set():
                assert ags1.decrypt(STREAM, KEY, threads=2) == DATA

        def failing():
            # A failure must not leave anything in OpenSSL's state of the thread.
            while not stop.is_set():
                try:
                    ags1.decrypt(BAD, KEY, threads=2)
                except ags1.AuthenticationError:
                    continue
                raise AssertionError("accepted")

        def batching():
            while not stop.is_set():
                ags1.encrypt_many([DATA[:1000]] * 2000, KEY, threads=2)

        def guarded(function):
            def run():
                try:
                    function()
                except BaseException as error:
                    failures.append(error)
            return threading.Thread(target=run)

        def in_child(work):
            receive, send = os.pipe()
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    os.close(receive)
                    os.write(send, work())
                    status = 0
                finally:
                    os._exit(status)
            os.close(send)
            # A deadline for each child: one that waits for a lock that nobody holds any more would wait for ever.
            ready, _, _ = select.select([receive], [], [], checks.HANG_SECONDS)
            if not ready:
                os.kill(child, signal.SIGKILL)
            with os.fdopen(receive, "rb") as answer:
                data = answer.read()
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            assert status == 0, f"child {status}"
            return data

        def nonces(stream, block_length):
            return checks.nonces_of(bytes(stream), block_length)
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
def test_children_forked_while_threads_encrypt_neither_hang_nor_repeat_nonces() -> None:
    run_python(
        FORKING
        + """
        threads = [guarded(each) for each in (sealing, opening, failing, batching)]
        for thread in threads:
            thread.start()

        def work():
            made = ags1.encrypt(DATA[: 1 << 20], KEY, block_length=16 << 10, threads=2)
            assert ags1.decrypt(made, KEY, threads=2) == DATA[: 1 << 20]
            try:
                ags1.decrypt(BAD, KEY, threads=2)
            except ags1.AuthenticationError:
                return b"".join(nonces(made, 16 << 10))

        seen, drawn = set(), 0
        for _ in range(60):
            answer = in_child(work)
            mine = b"".join(nonces(ags1.encrypt(bytes(40 * 100), KEY, block_length=100), 100))
            for data in (answer, mine):
                each = [data[at : at + 12] for at in range(0, len(data), 12)]
                seen.update(each)
                drawn += len(each)
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        assert drawn == 60 * (64 + 40)
        assert len(seen) == drawn, f"{drawn - len(seen)} nonces were repeated"
        """,
        timeout=2 * SECONDS,
    )


@pytest.mark.timeout(SECONDS)
def test_generations_of_children_and_their_keys_differ() -> None:
    run_python(
        FORKING
        + """
        def draw():
            return ags1.encrypt(b"", KEY)[8:20] + bytes(ags1.Key.generate()) + ags1.KeyMetadata.generate().aad_prefix

        def generation(depth):
            mine = draw()
            for _ in range(2 if depth else 0):
                mine += in_child(lambda: generation(depth - 1))
            return mine

        draw()
        found = generation(4) + draw() + in_child(lambda: generation(0)) + in_child(lambda: generation(0))
        # A nonce, a prefix and a key are of twelve bytes or more.
        pieces = [found[at : at + 12] for at in range(0, len(found), 12)]
        assert len(found) == (31 + 3) * 60
        assert len(set(pieces)) == len(pieces), "a child drew what its parent or sister drew"
        """
    )


@LINUX
@pytest.mark.timeout(SECONDS)
def test_a_child_with_the_process_id_of_its_parent_draws_other_nonces() -> None:
    # OpenSSL notices a fork by the process id. In a name space of its own a child has the number that its parent
    # has outside; once the numbers wrap around, a grandchild can have it too.
    said = run_python(
        FORKING
        + """
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)

        def unshare():
            if libc.unshare(0x20000000) != 0:
                print("not permitted")
                sys.stdout.flush()
                os._exit(0)

        unshare()
        first = os.fork()
        if first:
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]))
        ags1.encrypt(b"", KEY), ags1.Key.generate()
        unshare()
        draw = lambda: ags1.encrypt(b"", KEY)[8:20] + bytes(ags1.Key.generate()) + os.getpid().to_bytes(4, "big")
        theirs, mine = in_child(draw), draw()
        assert theirs[-4:] == mine[-4:], "the process ids differ: nothing was tested"
        assert theirs[:12] != mine[:12], "a nonce was repeated"
        assert theirs[12:-4] != mine[12:-4], "a key was repeated"
        print("tested")
        """
    )
    if "not permitted" in said:
        pytest.skip("only root can make a process name space here")
    assert "tested" in said


# Clones that no hook of Python's or of the C library's sees, as a snapshot of a machine or of a process that is resumed
# more than once. Every clone here has the process id of its parent, too.
CLONED = """
        import ctypes, os, sys, traceback
        import ags1

        KEY = bytes(32)
        libc = ctypes.CDLL(None, use_errno=True)
        CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]

        def clone():
            # Into a process name space of its own, whose only process has the number 1.
            child = libc.syscall(CLONE, 0x20000000 | 17, 0, 0, 0, 0)
            if child < 0:
                print("not permitted")
                sys.exit()
            return child

        def cloned(work):
            receive, send = os.pipe()
            child = clone()
            if child == 0:
                with os.fdopen(send, "wb") as answer:
                    answer.write(work())
                os._exit(0)
            os.close(send)
            with os.fdopen(receive, "rb") as answer:
                data = answer.read()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            return data

        def in_a_name_space(run):
            child = clone()
            if child == 0:
                status = 1
                try:
                    run()
                    sys.stdout.flush()
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    os._exit(status)
            sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@LINUX
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("blocks", [1, 70, 20_000])
def test_clones_of_a_process_that_no_hook_sees_repeat_no_nonce_and_no_key(blocks: int) -> None:
    said = run_python(
        CLONED
        + """
        blocks = int(sys.argv[1])

        def draw():
            stream = ags1.encrypt(bytes(blocks), KEY, block_length=1, threads=1)
            nonces = [stream[at : at + 12] for at in range(8, len(stream), 29)]
            generated = [bytes(ags1.Key.generate()) for _ in range(3)]
            prefix = ags1.KeyMetadata.generate().aad_prefix
            return os.getpid().to_bytes(4, "big") + b"".join(generated) + prefix + b"".join(nonces)

        def run():
            draw()
            # Resumed from the same moment, then one of the second generation.
            found = [cloned(draw) for _ in range(3)] + [draw()] + [cloned(lambda: cloned(draw))] + [draw()]
            assert len({each[:4] for each in found}) == 1, "the process ids differ: nothing was tested"
            assert all(len(each) == 4 + 3 * 32 + 16 + 12 * blocks for each in found)
            keys = {each[4 + 32 * at : 36 + 32 * at] for each in found for at in range(3)}
            assert len(keys) == 3 * len(found), "a key was repeated"
            assert len({each[100:116] for each in found}) == len(found), "an AAD prefix was repeated"
            nonces = {each[at : at + 12] for each in found for at in range(116, len(each), 12)}
            assert len(nonces) == blocks * len(found), "a nonce was repeated"
            print("tested")

        in_a_name_space(run)
        """,
        str(blocks),
    )
    if "not permitted" in said:
        pytest.skip("only root can make a process name space here")
    assert "tested" in said


@LINUX
@pytest.mark.timeout(2 * SECONDS)
def test_children_forked_while_threads_start_encrypt_and_exit_do_not_hang() -> None:
    # A sample of `python -m tests.threats.soak_forks`.
    said = run_python(
        """
        from tests.threats.soak_forks import soak

        count, bad = soak(100, seconds=20)
        print(count, bad)
        """,
        timeout=2 * SECONDS,
    )
    count, bad = map(int, said.split())
    assert count >= 1
    assert bad == 0, f"{bad} of {count} children hung or failed"


@pytest.mark.timeout(SECONDS)
def test_what_a_parent_opened_works_in_the_child(tmp_path: Path) -> None:
    run_python(
        FORKING
        + """
        path = sys.argv[1] + "/stream"
        open(path, "wb").write(STREAM)
        held = ags1.Reader(path, KEY, threads=2), ags1.Reader(STREAM, KEY, threads=2)
        for reader in held:
            assert reader.read(100_000) == DATA[:100_000]
        position = 100_000

        def reading():
            while not stop.is_set():
                for reader in held:
                    assert reader.pread(1 << 20, 1 << 20) == DATA[1 << 20 : 2 << 20]

        def work():
            for reader in held:
                assert reader.pread(12_345, 200_000) == DATA[12_345:212_345]
                assert reader.read(1000) == DATA[position : position + 1000]
            return b"well"

        threads = [guarded(reading) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert in_child(work) == b"well"
        stop.set()
        for thread in threads:
            thread.join()
        assert not failures, failures
        """,
        str(tmp_path),
        timeout=SECONDS,
    )


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools_of_processes(method: str) -> None:
    run_python(
        """
        import multiprocessing, sys
        import ags1

        if __name__ == "__main__":
            key, data = bytes(range(32)), bytes(3 << 20)
            stream = ags1.encrypt(data, key, threads=2)
            context = multiprocessing.get_context(sys.argv[1])
            with context.Pool(2) as pool:
                made = pool.starmap(ags1.encrypt, [(data, key)] * 6)
                assert len({each[8:20] for each in made}) == 6
                assert pool.starmap(ags1.decrypt, [(each, key) for each in [stream, *made]]) == [data] * 7
                # Errors travel back whole.
                damaged = stream[:-1] + bytes([stream[-1] ^ 1])
                attempts = [(b"PAR1", ags1.FormatError, None), (damaged, ags1.AuthenticationError, 2)]
                for bad, kind, block in attempts:
                    try:
                        pool.apply(ags1.decrypt, (bad, key))
                    except kind as error:
                        assert getattr(error, "block_index", None) == block
                    else:
                        raise SystemExit("accepted")
        """,
        method,
        timeout=SECONDS,
    )


# -- SIGKILL -------------------------------------------------------------------------------------------------


# Runs `work(source, target)`, and kills itself before the n-th call of the functions by which a file is made.
# It imports nothing else, because it is started hundreds of times.
KILLED = """
import os, signal, sys
import ags1
moment, KEY, kind, source, target = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), *sys.argv[3:]
with open(source, "rb") as file:
    plain = file.read()
calls = 0
def counted(function):
    def call(*arguments, **options):
        global calls
        if calls == moment:
            os.kill(os.getpid(), signal.SIGKILL)
        calls += 1
        return function(*arguments, **options)
    return call
for name in ("open", "pwrite", "write", "link", "replace", "fsync", "fchmod", "ftruncate", "fstat", "close"):
    setattr(os, name, counted(getattr(os, name)))
from ags1.core import descriptors
from ags1.core import gathered
from ags1.streams import stream
for name in ("seal_file", "open_file", "seal_into_file", "reserve"):
    setattr(descriptors, name, counted(getattr(descriptors, name)))
class Gathered(gathered.Gathered):
    start = counted(gathered.Gathered.start)
    wait = counted(gathered.Gathered.wait)
stream.Gathered = Gathered
if kind == "encrypt_file":
    ags1.encrypt_file(source, target, KEY, durable=True)
elif kind == "decrypt_file":
    ags1.decrypt_file(source, target, KEY, durable=True)
elif kind == "Writer":
    with ags1.Writer(target, KEY, block_length=1000) as writer:
        for start in range(0, len(plain), 5000):
            writer.write(plain[start : start + 5000])
            writer.flush()
else:
    from ags1.cli import main
    with open(target + ".key", "wb") as file:
        file.write(KEY)
    os.chmod(target + ".key", 0o600)
    code = main(["encrypt", source, target, "--key-file", target + ".key", "--quiet", "--overwrite"])
    os.unlink(target + ".key")
    sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.timeout(2 * SECONDS)
@pytest.mark.parametrize("existed", [False, True], ids=["new", "existing"])
@pytest.mark.parametrize("kind", ["encrypt_file", "decrypt_file", "Writer", "cli"])
def test_sigkill_at_any_moment_leaves_the_whole_target_or_none(kind: str, existed: bool, tmp_path: Path) -> None:
    source, directory = tmp_path / "source", tmp_path / "out"
    plain = pattern(5000) * 5
    source.write_bytes(ags1.encrypt(plain, KEY) if kind == "decrypt_file" else plain)
    directory.mkdir()
    target = directory / "target"
    unnamed = hasattr(os, "O_TMPFILE") and can_be_unnamed(directory)
    kills = 0
    for moment in range(100):
        for left in directory.iterdir():
            left.unlink()
        if existed:
            target.write_bytes(b"what was there before")
        process = start(KILLED, str(moment), KEY.hex(), kind, str(source), str(target))
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode in (0, -signal.SIGKILL), errors
        if target.exists():
            data = target.read_bytes()
            if not (existed and data == b"what was there before"):
                assert (data if kind == "decrypt_file" else ags1.decrypt(data, KEY)) == plain
        elif existed or process.returncode == 0:
            pytest.fail("what was there before is gone")
        for left in directory.iterdir():
            if left == target or left.suffix == ".key":
                continue
            # Replacing a file takes a name first, but of a file that is complete by then.
            assert left.suffix == ".ags1-tmp"
            if unnamed:
                assert existed
                data = left.read_bytes()
                assert (data if kind == "decrypt_file" else ags1.decrypt(data, KEY)) == plain
        kills += process.returncode != 0
        if process.returncode == 0:
            break
    assert process.returncode == 0
    assert kills >= 4, "it was never killed in the middle"


def can_be_unnamed(directory: Path) -> bool:
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_RDWR))
    except OSError:
        return False
    return True


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_sigkill_while_threads_write_leaves_no_name(share: float, tmp_path: Path) -> None:
    source, directory = tmp_path / "source", tmp_path / "out"
    directory.mkdir()
    if not can_be_unnamed(directory):
        pytest.skip("this file system has no unnamed files")
    sparse(source, 1 << 30)
    process = start(
        """
import os, sys
import ags1
# The first report of so much waits, while the other threads go on: so the work is never done before the signal.
report = lambda done, total: done < float(sys.argv[3]) * total or (os.write(1, b"."), os.read(0, 1))
ags1.encrypt_file(sys.argv[1], sys.argv[2], threads=4, progress=report)
""",
        str(source), str(directory / "target"), str(share),
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        process.kill()
        assert process.wait(SECONDS) == -signal.SIGKILL
    assert os.listdir(directory) == []


LARGE = 6 << 30


def sparse(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


# -- SIGINT --------------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ags1", *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip


@LINUX
@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(("jobs", "threads"), [(1, "4"), (2, "1")])
def test_control_c_while_encrypting_large_files(jobs: int, threads: str, tmp_path: Path) -> None:
    # On a machine that is busy the first of them may be done before the interrupt comes; never all of them.
    sources = [tmp_path / f"source{number}" for number in range(6)]
    for source in sources:
        sparse(source, LARGE)
    key = tmp_path / "key"
    key.write_bytes(KEY)
    key.chmod(0o600)
    directory = tmp_path / "out"
    directory.mkdir()
    process = command(
        "encrypt", *map(str, sources), f"{directory}/", "--key-file", str(key), "--threads", threads,
        "--jobs", str(jobs), "--progress", "always",
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        # The bar is there, so the work is under way.
        assert process.stderr.read(1)
        others = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
        used = processor_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        code = process.wait(SECONDS)
        seconds = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - others - used
    assert code == 130, errors
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    found = list(directory.iterdir())
    assert len(found) < len(sources) / 2
    assert all(each.stat().st_size == ags1.encrypted_length(LARGE) for each in found), "a part of a file"
    # Of a processor: how long it waits for one, or for a disk, is another's. To finish all would take far longer.
    assert seconds < 10


def processor_seconds(pid: int) -> float:
    """What a running process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.timeout(SECONDS)
def test_control_c_while_waiting_for_a_pipe(tmp_path: Path) -> None:
    key, target = tmp_path / "key", tmp_path / "target"
    key.write_bytes(KEY)
    key.chmod(0o600)
    process = command("encrypt", "-", str(target), "--key-file", str(key), "--progress", "always")
    with process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(bytes(64 * MIB))
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(SECONDS) == 130, errors
        process.stdin.close()
    assert b"Traceback" not in errors
    assert os.listdir(tmp_path) == ["key"]


# -- exit ----------------------------------------------------------------------------------------------------


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("end", "daemon"),
    [
        ("return", "reading"),
        ("return", "batching"),
        ("sys.exit(3)", "batching"),
        ("raise RuntimeError('on purpose')", "reading"),
        ("os._exit(4)", "batching"),
    ],
)
def test_exit_while_threads_are_at_work(end: str, daemon: str, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.write_bytes(ags1.encrypt(checks.large(), KEYS[16]))
    process = start(
        f"""
import os, sys, threading
import ags1
from tests.checks import KEYS, large
reader = ags1.Reader(sys.argv[1], KEYS[16], threads=2)
started = threading.Barrier(9)
def reading():
    started.wait()
    while True:
        reader.pread(1234, 20 << 20)
def batching():
    started.wait()
    while True:
        ags1.decrypt_many(ags1.encrypt_many([b"small"] * 30_000, KEYS[16], threads=3), KEYS[16], threads=3)
for _ in range(8):
    threading.Thread(target={daemon}, daemon=True).start()
def main():
    started.wait()
    reader.pread(0, 20 << 20)
    {end}
main()
""",
        str(path),
    )
    _, errors = process.communicate(timeout=SECONDS)
    expected = {"return": 0, "sys.exit(3)": 3, "os._exit(4)": 4}
    assert process.returncode == expected.get(end, 1), errors
    assert (b"on purpose" in errors) == ("purpose" in end)
    assert b"Fatal" not in errors
