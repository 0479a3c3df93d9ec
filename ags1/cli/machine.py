"""``ags1 info``."""

from __future__ import annotations

import platform

from ags1.cli.command import command
from ags1.cli.output import say, say_json
from ags1.core.backend import backend
from ags1.version import version

_LINKAGE = {
    "bundled-static": "its own copy, linked statically",
    "system-shared": "the system's shared library",
    "prefix-static": "a static library chosen at build time",
    "prefix-shared": "a shared library chosen at build time",
}
_PATHS = {
    "vaes-avx512": "AVX-512 with VAES and VPCLMULQDQ: the fastest there is",
    "vaes-avx2": "AVX2 with VAES and VPCLMULQDQ",
    "aesni-avx": "AES-NI and PCLMULQDQ with AVX",
    "aesni": "AES-NI and PCLMULQDQ",
    "armv8-aes": "ARMv8 AES and PMULL",
    "armv8-aes-eor3": "ARMv8 AES and PMULL, eight blocks at a time",
    "generic": "portable code without AES instructions: slow",
}


@command(json="json")
def info(json: bool) -> int:
    """The last line says how to get a faster OpenSSL, if there is one for this machine.

    examples:
      ags1 info
    """
    found = backend()
    if json:
        say_json({"ags1_version": version, "python": platform.python_version(), **found})
        return 0
    say(f"ags1       {version}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    say(f"OpenSSL    {found['openssl_version']}: {_LINKAGE.get(found['linkage'], found['linkage'])}")
    say(f"AES-GCM    {_PATHS.get(found['aes_gcm'], found['aes_gcm'])}")
    say(f"           by {found['cipher']}: {found['cipher_reason']}")
    say(f"CPU        {' '.join(found['cpu_features']) or 'no AES instructions seen'}")
    say(f"threads    {found['threads']} for large calls by default")
    # Without AVX-512, no OpenSSL of the series 3 uses VAES for AES-GCM; BoringSSL does.
    if {"VAES", "AVX512F"}.issubset(found["cpu_features"]) and not found["aes_gcm"].startswith("vaes"):
        say("note       this CPU has VAES, but this OpenSSL does not use it: AES-GCM takes 2 to 3 times as long")
    if found["remedy"]:
        say(f"to do      {found['remedy']}")
    return 0
