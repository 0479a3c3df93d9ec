"""``ags1 info`` and ``ags1 bench``."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable

from ags1._backend import backend
from ags1._version import version
from ags1.cli import say, say_json
from ags1.codec import decrypt_into, encrypt_into
from ags1.keys import Key
from ags1.layout import encrypted_length

_LINKAGE = {
    "bundled-static": "its own copy, linked statically",
    "system-shared": "the system's shared library",
    "prefix-static": "a static library chosen at build time",
    "prefix-shared": "a shared library chosen at build time",
}
_PATHS = {
    "vaes-avx512": "AVX-512 with VAES and VPCLMULQDQ: the fastest there is",
    "aesni-avx": "AES-NI and PCLMULQDQ with AVX",
    "aesni": "AES-NI and PCLMULQDQ",
    "armv8-aes": "ARMv8 AES and PMULL",
    "generic": "portable code without AES instructions: slow",
}
_ROUNDS = 5


def info(options: argparse.Namespace) -> int:
    found = backend()
    if options.json:
        say_json({"ags1_version": version, "python": platform.python_version(), **found})
        return 0
    say(f"ags1       {version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    say(f"OpenSSL    {found['openssl_version']}: {_LINKAGE.get(found['linkage'], found['linkage'])}")
    say(f"AES-GCM    {_PATHS.get(found['aes_gcm'], found['aes_gcm'])}")
    say(f"CPU        {' '.join(found['cpu_features']) or 'no AES instructions seen'}")
    say(f"threads    {found['threads']} for large calls by default")
    # Without AVX-512, no OpenSSL of the series 3 uses VAES for AES-GCM.
    if {"VAES", "AVX512F"}.issubset(found["cpu_features"]) and found["aes_gcm"] != "vaes-avx512":
        say("note       this CPU has VAES, but this OpenSSL does not use it: AES-GCM takes 2 to 3 times as long")
    if found["remedy"]:
        say(f"to do      {found['remedy']}")
    return 0


def bench(options: argparse.Namespace) -> int:
    """Run ``ags1 bench``: medians of interleaved rounds, in memory."""
    threads = sorted({1, backend()["threads"]})
    if not options.json:
        say(f"AES-256-GCM in memory, {options.bytes:,} bytes of plaintext, median of {_ROUNDS} rounds, GB/s (10^9)")
        say("")
        say("block length   threads   encrypt   decrypt      copy")
    for block_length in (1 << 20, 64 << 10, 4 << 10, 1 << 10):
        for count in threads:
            row = _measure(options.bytes, block_length, count)
            if options.json:
                say_json(row)
            else:
                say(
                    f"{block_length:>12,}{count:>10}{row['encrypt_gb_s']:>10.2f}{row['decrypt_gb_s']:>10.2f}"
                    f"{row['copy_gb_s']:>10.2f}"
                )
    return 0


def _measure(size: int, block_length: int, threads: int) -> dict[str, float]:
    key = Key.generate()
    plain, stream = bytearray(size), bytearray(encrypted_length(size, block_length))
    source, target = memoryview(plain), memoryview(stream)

    def copy() -> None:
        target[:size] = source

    steps: dict[str, Callable[[], object]] = {
        "copy": copy,
        "encrypt": lambda: encrypt_into(plain, stream, key, block_length=block_length, threads=threads),
        "decrypt": lambda: decrypt_into(stream, plain, key, threads=threads),
    }
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_ROUNDS + 1):
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - started)
    row: dict[str, float] = {"block_length": block_length, "threads": threads, "bytes": size}
    for name, values in seconds.items():
        # The first round paid for the memory.
        row[f"{name}_gb_s"] = round(size / sorted(values[1:])[_ROUNDS // 2] / 1e9, 3)
    return row
