"""Build the servers: ``python -m tests.servers install [NAME ...]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.interop import rust_peer
from tests.servers import azure, gcs, hdfs, s3
from tests.servers._install import MissingServerError

INSTALLERS = {
    "minio": s3.install_minio,
    "gcs": gcs.install,
    "azure": azure.install,
    "hdfs": hdfs.install,
    "iceberg-reader": rust_peer.install,
    "s3s": s3.install_s3s,
}
# s3s is for measuring many small objects.
USUAL = [name for name in INSTALLERS if name != "s3s"]


def main() -> int:
    """Build what the arguments name, by default what the tests use. The status is 1 if a server cannot be had here."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description="Build the servers of the tests.")
    parser.add_argument("command", choices=["install"])
    parser.add_argument("name", nargs="*", help=f"one of {', '.join(INSTALLERS)}")
    arguments = parser.parse_args()
    if unknown := set(arguments.name) - set(INSTALLERS):
        parser.error(f"no server is called {', '.join(sorted(unknown))}")
    os.environ["AGS1_BUILD_SERVERS"] = "1"
    # Two at once: one downloads while another compiles.
    with ThreadPoolExecutor(2) as pool:
        return 0 if all(list(pool.map(_install, arguments.name or USUAL))) else 1


def _install(name: str) -> bool:
    start = time.monotonic()
    try:
        where = INSTALLERS[name]()
    except MissingServerError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return False
    print(f"{name}: {where} ({time.monotonic() - start:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
