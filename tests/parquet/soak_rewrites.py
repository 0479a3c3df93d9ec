"""Every configuration of an encryption on every small file, and every file of every writer, in an order by chance.

    python -m tests.parquet.soak_rewrites [--seed 0] [--seconds 600]

What fails is printed with what is needed to see it again, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial

from tests.parquet import corpus
from tests.parquet.test_rewrite import ENCRYPTABLE, WRITERS, assert_decrypted_and_rekeyed
from tests.parquet.test_rewrite_product import assert_comes_back, configurations, plaintext


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Each with what it is."""
    for name in corpus.SMALL:
        plain = plaintext(name)
        for each in configurations(plain):
            yield f"{name}: {each}", partial(assert_comes_back, each, plain)
    for name, writer in itertools.product(ENCRYPTABLE, WRITERS):
        yield f"{name} of the writer {writer}", partial(assert_decrypted_and_rekeyed, name, writer)


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the order")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no case is begun after so long")
    options = parser.parse_args(arguments)
    every = list(cases())
    random.Random(options.seed).shuffle(every)
    until, done, failed = time.monotonic() + options.seconds, 0, 0
    for what, check in every:
        if time.monotonic() > until:
            break
        done += 1
        try:
            check()
        except Exception:
            failed += 1
            print(f"{what}\n{traceback.format_exc()}", flush=True)
    print(f"{done:,} of {len(every):,} cases, {failed} of them failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
