"""How processes that use object stores end: interrupted, with requests in flight, forked."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import ags1
from ags1.storage import Location, open_output
from tests.checks import HANG_SECONDS, KEY, run_python
from tests.servers.faults import Stall
from tests.servers.proxy import ShapingProxy
from tests.servers.s3 import S3Server
from tests.threats import soak_forks

MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def url(s3_server: S3Server) -> str:
    """An AGS1 object of 20 MiB, which no test changes."""
    name = f"s3://{s3_server.make_bucket('ends-' + secrets.token_hex(6))}/a.ags1"
    with open_output(Location(name, s3_server.storage_options())) as output:
        output.write(ags1.encrypt(random.Random(1).randbytes(20 * MIB), KEY))
        output.commit()
    return name


@pytest.mark.parametrize("taker", ["waiting thread", "another thread"])
@pytest.mark.parametrize("work", ["read", "pread", "write", "encrypt_file", "decrypt_file"])
def test_ctrl_c_ends_a_process_whose_server_does_not_reply(
    s3_server: S3Server, shaping_proxy: ShapingProxy, url: str, work: str, taker: str, tmp_path: Path
) -> None:
    """The threat: only kill helps."""
    options = s3_server.through(shaping_proxy.endpoint).storage_options()
    (tmp_path / "plain").write_bytes(bytes(30 * MIB))
    program = f"""
        import signal, sys, threading, ags1
        if {taker!r} == "another thread":
            threading.Thread(target=threading.Event().wait, daemon=True).start()
            signal.pthread_sigmask(signal.SIG_BLOCK, {{signal.SIGINT}})
        url, options, key, plain = {url!r}, {options!r}, {KEY!r}, {str(tmp_path / "plain")!r}
        try:
            if {work!r} == "read":
                reader = ags1.open(url, key=key, storage_options=options)
                print("ready", flush=True)
                while reader.read(100_000): pass
            elif {work!r} == "pread":
                reader = ags1.open(url, key=key, storage_options=options)
                print("ready", flush=True)
                reader.pread(0, 20 << 20)
            elif {work!r} == "write":
                with ags1.open(url + ".new", "wb", key=key, storage_options=options) as writer:
                    print("ready", flush=True)
                    while True: writer.write(bytes(1 << 20))
            elif {work!r} == "encrypt_file":
                print("ready", flush=True)
                ags1.encrypt_file(plain, url + ".new", key, storage_options=options)
            else:
                print("ready", flush=True)
                ags1.decrypt_file(url, plain + ".new", key, storage_options=options)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            # Python ends itself by the signal, and exits with 130 if another thread is late to take it.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {{signal.SIGINT}})
            raise
    """
    shaping_proxy.fault(Stall(), method="GET", offset=MIB, count=None)
    shaping_proxy.fault(Stall(), method="PUT", count=None)
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        while not any(request.fault == "Stall" for request in shaping_proxy.log().requests):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        # The client by itself would wait for some minutes.
        said, failure = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said == "interrupted\n"
    assert failure.rstrip().endswith("KeyboardInterrupt")
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]


@pytest.mark.parametrize("work", ["requests", "reader", "writer", "output"])
def test_a_process_may_end_with_requests_in_flight(
    s3_server: S3Server, shaping_proxy: ShapingProxy, url: str, work: str
) -> None:
    """The threat: a thread comes back from the client into an interpreter that is gone."""
    options = s3_server.through(shaping_proxy.endpoint).storage_options()
    program = f"""
        import ags1
        from ags1.storage import Location, open_output, open_source, start
        url, options, key = {url!r}, {options!r}, {KEY!r}
        class Slow:
            def __del__(self):
                sum(range(300_000))
        if {work!r} == "requests":
            source = open_source(Location(url, options))
            requests = [start(lambda n=n: source.read(n * 100_000, 100_000)) for n in range(150)]
            requests[40].result()
        elif {work!r} == "reader":
            reader = ags1.open(url, key=key, storage_options=options)
            reader.seek(5)
            for _ in range(30): reader.read(100_000)
        elif {work!r} == "writer":
            writer = ags1.open(url + ".new", "wb", key=key, storage_options=options)
            for _ in range(25): writer.write(bytes(1 << 20))
        else:
            output = open_output(Location(url + ".new", options))
            for _ in range(20): output.write_owned(bytes(1 << 20))
        # They are gone after the interpreter has begun to end.
        import sys
        sys.modules["slow"] = [Slow() for _ in range(5)]
    """
    for latency in (0.0, 0.0, 0.01):
        shaping_proxy.shape(latency=latency)
        run_python(program)


@pytest.mark.parametrize("work", ["reader", "writer"])
def test_a_process_may_end_while_another_thread_decrypts_or_encrypts_a_local_file(work: str, tmp_path: Path) -> None:
    """The threat: the interpreter closes what is open, and waits for a thread that it has ended."""
    path = tmp_path / "a.ags1"
    path.write_bytes(ags1.encrypt(bytes(20 * MIB), KEY))
    program = f"""
        import ags1
        if {work!r} == "reader":
            file = ags1.open({str(path)!r}, key={KEY!r}, threads=2)
            for _ in range(50): file.read(100_000)
        else:
            file = ags1.open({str(path)!r} + ".new", "wb", key={KEY!r}, threads=2)
            for _ in range(25): file.write(bytes(1 << 20))
    """
    for _ in range(3):
        run_python(program)
    assert [each.name for each in tmp_path.iterdir()] == ["a.ags1"]


def test_a_stalled_request_that_nobody_waits_for_does_not_hold_up_the_end(
    s3_server: S3Server, shaping_proxy: ShapingProxy, url: str
) -> None:
    shaping_proxy.fault(Stall(10), method="GET", offset=MIB, count=None)
    run_python(
        f"""
        from ags1.storage import Location, open_source, start
        source = open_source(Location({url!r}, {s3_server.through(shaping_proxy.endpoint).storage_options()!r}))
        requests = [start(lambda: source.read(1 << 20, 1000)) for _ in range(5)]
        """
    )


def test_children_that_are_forked_while_an_object_is_read_get_an_error(s3_server: S3Server, url: str) -> None:
    """A sample of the soak test, in a process of its own."""
    run_python(
        """
        import sys
        from tests.storage.soak_forks_of_stores import main
        sys.exit(main(sys.argv[1:]))
        """,
        url, "--children", "40", "--endpoint", s3_server.endpoint,
        timeout=HANG_SECONDS,
    )  # fmt: skip
    assert soak_forks.DEADLINE <= HANG_SECONDS


def test_no_coroutine_of_obstore_is_used() -> None:
    """The threat: a thread of obstore still runs Python code when the interpreter shuts down, and the process aborts.

    It happened to 4 of 240 processes on a busy machine, which is too rare to be seen here.
    """
    storage = ROOT / "ags1" / "storage"
    found = [
        path.name for path in storage.rglob("*.py") if "asyncio" in path.read_text() or "_async(" in path.read_text()
    ]
    assert not found
