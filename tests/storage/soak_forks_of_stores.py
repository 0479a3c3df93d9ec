"""Forks children of a process that reads an object at this moment; each uses what it inherited.

What they inherit: a Reader with pieces under way, a planned source, and a client whose threads did not survive. Each
use is an error or right bytes::

    python -m tests.storage.soak_forks_of_stores --children 1000

The exit status is 0 if every child ended by itself and well.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ags1
from ags1.storage import Location, PlannedSource, open_source
from tests.checks import KEY
from tests.servers._install import MissingServerError
from tests.servers.s3 import ACCESS_KEY, REGION, SECRET_KEY, S3Server
from tests.threats.soak_forks import ends_well

"""Seconds after which a child that has not ended is taken to hang: it needs some milliseconds."""
STEP = 100_000


def _refused(use: Callable[[], Any], wanted: bytes) -> None:
    """Raise AssertionError unless `use` raises an OSError or returns what is right."""
    try:
        found = bytes(memoryview(use()))
    except OSError:
        return
    assert found == wanted


def _in_child(place: Location, reader: ags1.Reader, plan: PlannedSource, plain: bytes, stream: bytes) -> None:
    said = ""
    try:
        open_source(place)
    except OSError as error:
        said = str(error)
    assert "spawn" in said
    # Begun by the parent, wanted by the child.
    _refused(lambda: plan.read(STEP, STEP), stream[STEP : 2 * STEP])
    _refused(lambda: plan.read(15 * STEP, STEP), stream[15 * STEP : 16 * STEP])
    at = reader.tell()
    _refused(lambda: reader.pread(5, 10), plain[5:15])
    _refused(lambda: reader.read(30 * STEP), plain[at : at + 30 * STEP])
    plan.close()
    reader.close()


def soak(place: Location, children: int, parents: int = 2, seconds: float = math.inf) -> tuple[int, int]:
    """Fork children beside `parents` threads that read; return how many there were, and how many hung or failed."""
    end = time.monotonic() + seconds
    whole: Any = open_source(place)
    stream = bytes(memoryview(whole.read(0, whole.size)))
    plain = ags1.decrypt(stream, KEY)
    stop = threading.Event()
    failures: list[BaseException] = []

    def busy() -> None:
        try:
            while not stop.is_set():
                source: Any = open_source(place)
                assert bytes(memoryview(source.read(STEP, STEP))) == stream[STEP : 2 * STEP]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=busy) for _ in range(parents)]
    for thread in threads:
        thread.start()
    bad = count = 0
    try:
        while count < children and time.monotonic() < end:
            count += 1
            planned: Any = open_source(place)
            with ags1.open(place, key=KEY) as reader:
                plan = PlannedSource(planned)
                plan.will_read([(0, len(stream))])
                for _ in range(12):
                    reader.read(STEP)
                child = os.fork()
                if child == 0:
                    status = 1
                    try:
                        _in_child(place, reader, plan, plain, stream)
                        status = 0
                    except BaseException:
                        import traceback

                        traceback.print_exc()
                    finally:
                        os._exit(status)
                bad += not ends_well(child)
                assert reader.read(STEP) == plain[12 * STEP : 13 * STEP]
                plan.close()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    for failure in failures:
        raise failure
    return count, bad


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak test and print what it gave."""
    parser = argparse.ArgumentParser(description="Fork beside threads that read an object, and look for hangs.")
    parser.add_argument(
        "url", nargs="?", help="an AGS1 object of some MiB, under the key of the tests; made, if absent"
    )
    parser.add_argument("--endpoint", help="of an S3 server of the tests; one is started, if absent")
    parser.add_argument("--children", type=int, default=1000)
    parser.add_argument("--parents", type=int, default=2, help="threads that read in the parent")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no child is forked after so long")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        endpoint = options.endpoint
        if endpoint is None:
            try:
                server = stack.enter_context(S3Server.start(kind="minio"))
            except MissingServerError as error:
                print(f"there is no S3 server here: {error}")
                return 1 if os.environ.get("AGS1_NO_SKIP") else 0
            server.make_bucket("soak")
            endpoint = server.endpoint
        known = {"key": ACCESS_KEY, "secret": SECRET_KEY, "endpoint_url": endpoint, "region": REGION}
        place = Location(options.url or "s3://soak/a.ags1", known)
        if options.url is None:
            with ags1.open(place, "wb", key=KEY) as writer:
                writer.write(bytes(range(256)) * (6 << 12))
        count, bad = soak(place, options.children, options.parents, options.seconds)
    print(f"{count:,} children in {time.monotonic() - started:.0f} s: {bad} hung or failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
