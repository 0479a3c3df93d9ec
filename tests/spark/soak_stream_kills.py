"""Kills of drivers between the commits of an epoch, 20 of each kind of writer: what test_stream_kills.py does twice.

    python -m tests.spark.soak_stream_kills [--queries 2] [--kills 1] [--rounds 10] [--seconds 600]

The directory of a round that fails stays, and is printed; the exit status is 1.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import tempfile
import time
import traceback
from pathlib import Path
from urllib.parse import urlencode

from ags1.kms import LocalKms
from tests.spark.sessions import run_spark_script
from tests.spark.test_stream_kills import kill_writers


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--queries", type=int, default=2, help="of each kind, at once")
    parser.add_argument("--kills", type=int, default=1, help="of the driver of all of them")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=math.inf, help="nothing is begun after so long")
    options = parser.parse_args(arguments)
    until, failures = time.monotonic() + options.seconds, 0
    for _ in range(options.rounds):
        if time.monotonic() > until:
            break
        work = Path(tempfile.mkdtemp(prefix="ags1-soak-"))
        key_file = work / "keystore.key"
        key_file.write_text(os.urandom(32).hex())
        key_file.chmod(0o600)
        with LocalKms.create(work / "keys.json", key_file=key_file) as client:
            client.add_key("lake")
        kms_url = f"local:{work / 'keys.json'}?{urlencode({'key_file': key_file})}"
        try:
            kill_writers(work, kms_url, run_spark_script, options.queries, options.kills)
        except Exception:
            failures += 1
            print(f"{work}\n{traceback.format_exc(limit=3)[-6000:]}")
        else:
            shutil.rmtree(work)
            print(
                f"{options.queries * options.kills} kills of each kind of writer, nothing lost or doubled", flush=True
            )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
