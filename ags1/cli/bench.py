"""``ags1 bench``: this machine's figures beside what nothing can be faster than, kept, and compared with kept ones."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping

from ags1 import bench as benching
from ags1.bench import Ratio, Run, Subject
from ags1.cli.command import command
from ags1.cli.output import say, say_json
from ags1.codec import decrypt_into, encrypt_into
from ags1.core.backend import backend
from ags1.keys import Key
from ags1.layout import encrypted_length
from ags1.support.exit_codes import EXIT_OK, EXIT_SLOWER, EXIT_UNDECIDED
from ags1.support.typing import Any

_BLOCKS = {1 << 20: "1 MiB", 64 << 10: "64 KiB", 4 << 10: "4 KiB", 1 << 10: "1 KiB"}
_SECONDS, _LIMIT, _ROUNDS = 0.6, 8.0, 5
_CACHED = 256 << 10
"""Bytes that any CPU has in its cache: there OpenSSL is as fast as it gets."""
_WORK = ("encrypt", "decrypt")


@command(size="sample", save="save", baseline="baseline", threshold="threshold", json="json")
def bench(size: int, save: str | None, baseline: str | None, threshold: float, json: bool) -> int:
    """A figure is compared with its baseline as a share of the copies beside it, so that a slower hour does not count.

    examples:
      ags1 bench --bytes 64M
      ags1 bench --save figures.jsonl
      ags1 bench --baseline figures.jsonl
    """
    here, before = benching.machine(), _baseline(baseline)
    if baseline and before:
        benching.require_same(next(iter(before.values())).machine, here, what=baseline)
    load = benching.load_average()
    threads = sorted({1, backend()["threads"]})
    if not json:
        say(f"AES-256-GCM in memory, {size:,} bytes of plaintext, medians, GB/s (10^9)")
        say("")
        say("block length   threads   encrypt   decrypt      copy  in cache")
    kept, verdicts = [], []
    for block_length in _BLOCKS:
        for count in threads:
            run, found = _measure(size, block_length, count, before, threshold / 100)
            row = _row(run, size, block_length, count)
            for what in _WORK:
                name = _name(what, size, block_length, count)
                ratio = run.time_ratio(what, "copy", confidence=0.99)
                pair = {each: run.seconds[each] for each in (what, "copy")}
                kept.append(benching.entry(name, *(ratio.value, ratio.low, ratio.high), pair, machine=here, load=load))
            verdicts += found
            _show(json, row, found)
    if save:
        benching.append(save, kept)
    if not json:
        if load > 0.5:
            say(f"note: the load average is {load:.1f}: something else uses this machine")
        if save:
            say(f"{len(kept)} figures added to {save}")
    said = {verdict for _, verdict, _ in verdicts}
    return EXIT_SLOWER if "slower" in said else EXIT_UNDECIDED if "undecided" in said else EXIT_OK


def _show(json: bool, row: Mapping[str, Any], found: list[tuple[str, str, Ratio]]) -> None:
    if json:
        compared = {
            name.split(",")[0]: {"verdict": verdict, "ratio": at.value, "low": at.low, "high": at.high}
            for name, verdict, at in found
        }
        say_json({**row, "compared": compared} if found else {**row})
        return
    cached = f"{row['cached_gb_s']:>10.2f}" if row["cached_gb_s"] else ""
    say(
        f"{row['block_length']:>12,}{row['threads']:>10}{row['encrypt_gb_s']:>10.2f}{row['decrypt_gb_s']:>10.2f}"
        f"{row['copy_gb_s']:>10.2f}{cached}"
    )
    for name, verdict, at in found:
        say(f"  {name.split(',')[0]}: {at.value:.3f} [{at.low:.3f}, {at.high:.3f}] of the time before: {verdict}")


def _name(what: str, size: int, block_length: int, threads: int) -> str:
    return f"{what}, {_BLOCKS[block_length]} blocks, {threads} thread{'s' * (threads > 1)}, {size} bytes"


def _baseline(path: str | None) -> dict[str, benching.HistoryEntry]:
    """The last entry of each figure in a file."""
    if path is None:
        return {}
    if not (found := {each.figure: each for each in benching.read(path)}):
        raise ValueError(f"{path} has no figures: `ags1 bench --save {shlex.quote(path)}` adds some")
    return found


def _subjects(size: int, block_length: int, threads: int) -> dict[str, Subject]:
    key = Key.generate()
    plain, stream = bytearray(os.urandom(1 << 10) * (size // 1024 + 1))[:size], bytearray(
        b"\x01" * encrypted_length(size, block_length)
    )  # fmt: skip
    source, target = memoryview(plain), memoryview(stream)
    calls = max(1, min(size, 16 << 20) // _CACHED)
    small = bytearray(min(size, _CACHED))
    room = bytearray(encrypted_length(len(small), block_length))

    def copy() -> None:
        target[:size] = source

    def cached() -> None:
        for _ in range(calls):
            encrypt_into(small, room, key, block_length=block_length, threads=1)

    def encrypt() -> None:
        encrypt_into(plain, stream, key, block_length=block_length, threads=threads)

    subjects = {
        "copy": Subject(copy),
        "encrypt": Subject(encrypt),
        # What copy leaves there is no stream.
        "decrypt": Subject(lambda: decrypt_into(stream, plain, key, threads=threads), before=encrypt),
    }
    return subjects if threads > 1 else {**subjects, "cached": Subject(cached)}


def _measure(
    size: int, block_length: int, threads: int, before: Mapping[str, benching.HistoryEntry], threshold: float
) -> tuple[Run, list[tuple[str, str, Ratio]]]:
    """Measure one row, and go on while a comparison with the baseline is undecided."""
    subjects, run, began = _subjects(size, block_length, threads), Run(), time.monotonic()
    wanted = _SECONDS
    while True:
        run.extend(benching.interleave(subjects, seconds=wanted, min_rounds=_ROUNDS, precision=0.005, confidence=0.99))
        found: list[tuple[str, str, Ratio]] = []
        for what in _WORK:
            name = _name(what, size, block_length, threads)
            if name in before:
                # Each beside the copies of its own hour. Both intervals count.
                now, then = run.time_ratio(what, "copy", confidence=0.99), before[name]
                at = Ratio(now.value / then.value, now.low / then.high, now.high / then.low)
                found.append((name, benching.verdict(at, threshold=threshold), at))
        passed = time.monotonic() - began
        if not any(verdict == "undecided" for _, verdict, _ in found) or passed >= _LIMIT:
            return run, found
        wanted *= 2


def _row(run: Run, size: int, block_length: int, threads: int) -> dict[str, Any]:
    row: dict[str, Any] = {"block_length": block_length, "threads": threads, "bytes": size, "rounds": run.rounds}
    for name in ("copy", *_WORK):
        row[f"{name}_gb_s"] = round(size / run.median(name) / 1e9, 3)
    calls, length = max(1, min(size, 16 << 20) // _CACHED), min(size, _CACHED)
    row["cached_gb_s"] = round(calls * length / run.median("cached") / 1e9, 3) if "cached" in run.seconds else None
    return row
