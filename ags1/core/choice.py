"""Which library gives AES-GCM to this process: OpenSSL, or BoringSSL where it was measured to be faster."""

from __future__ import annotations

import os

from ags1.errors import BackendError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from ags1.support.typing import Any

# Bits of OPENSSL_ia32cap: words of 64 bits made of CPUID leaf 1 (EDX, ECX) and leaf 7 (EBX, ECX).
_X86_FEATURES = (
    ("AES-NI", 0, 57),
    ("PCLMULQDQ", 0, 33),
    ("AVX", 0, 60),
    ("AVX2", 1, 5),
    ("AVX512F", 1, 16),
    ("AVX512BW", 1, 30),
    ("AVX512VL", 1, 31),
    ("VAES", 1, 41),
    ("VPCLMULQDQ", 1, 42),
)
# What else tells CPUs apart; the third word begins with EDX of leaf 7. OpenSSL sets the last bit for Intel's.
_TRAITS, _INTEL = (("VP2INTERSECT", 2, 8), ("AVX512_FP16", 2, 23)), (0, 30)
# Bits of OPENSSL_armcap.
_ARM_FEATURES = (("NEON", 0), ("AES", 2), ("PMULL", 5), ("SHA3", 11), ("UNROLL8_EOR3", 12))

BOTH = "BoringSSL and OpenSSL"
VAES_AVX2 = frozenset({"AES-NI", "AVX", "AVX2", "VAES", "VPCLMULQDQ"})
VAES_AVX512 = VAES_AVX2 | {"AVX512F", "AVX512BW", "AVX512VL"}
ZEN_4 = VAES_AVX512 | {"not Intel"}
ZEN_5 = ZEN_4 | {"VP2INTERSECT"}
# Later Intel CPUs have the feature too. An AMD CPU that has the feature fits an earlier row.
SAPPHIRE_RAPIDS = VAES_AVX512 | {"AVX512_FP16"}

LONG = 128 << 10
"""From so many bytes on, OpenSSL gets a message on CPUs where BoringSSL is faster for shorter messages only."""

# Features that a CPU has, which library gives AES-GCM there, and the measurement that says so: BoringSSL beside OpenSSL
# 3.5.7, messages of 256 bytes to 1 MiB, encryption and decryption, one core, in cache, and but for Zen 3 and Ice Lake
# over 64 MiB too (python -m bench.ciphers). Zen 5 and Emerald Rapids were measured after OpenSSL got long messages in
# one call (pieces.h), and the others before: OpenSSL may be up to 5 % faster there than their rows say. The first row
# that fits counts. On Ice Lake, BoringSSL was faster for some lengths and slower for others, and which ones differed
# between runs. A CPU that fits no row was not measured.
_MEASURED = (
    (ZEN_5, BOTH, "BoringSSL is up to 1.7 times as fast up to 64 KiB, OpenSSL up to 1.07 times above (AMD Zen 5)"),
    (ZEN_4, "BoringSSL", "BoringSSL is 1.04 to 1.4 times as fast as OpenSSL, most up to 4 KiB (AMD Zen 4)"),
    (SAPPHIRE_RAPIDS, "BoringSSL", "BoringSSL is 1.0 to 1.6 times as fast, most up to 4 KiB (Intel Emerald Rapids)"),
    (VAES_AVX2 | {"AVX512F"}, "OpenSSL", "BoringSSL has no gain that holds for all lengths (Intel Ice Lake)"),
    (VAES_AVX2, "BoringSSL", "BoringSSL is 1.6 to 1.9 times as fast as OpenSSL, without AVX-512 (AMD Zen 3)"),
)


def cpu_features(settings: str) -> list[str]:
    """Name the CPU features for AES-GCM in what OpenSSL says of the CPU."""
    name, _, value = settings.partition("=")
    if name == "OPENSSL_ia32cap":
        # An environment override is appended behind a space.
        words = [int(word, 16) for word in value.split(" ")[0].split(":") if word]
        return [feature for feature, word, bit in _X86_FEATURES if word < len(words) and words[word] >> bit & 1]
    if name == "OPENSSL_armcap":
        mask = int(value.split(" ")[0], 16)
        return [feature for feature, bit in _ARM_FEATURES if mask >> bit & 1]
    return []


def traits(settings: str) -> set[str]:
    """Name what the choice depends on beside the features for AES-GCM."""
    name, _, value = settings.partition("=")
    words = [int(word, 16) for word in value.split(" ")[0].split(":") if word] if name == "OPENSSL_ia32cap" else []

    def has(word: int, bit: int) -> bool:
        return word < len(words) and bool(words[word] >> bit & 1)

    found = {name for name, *place in _TRAITS if has(*place)}
    return found | {"not Intel"} if words and not has(*_INTEL) else found


def measured(features: Iterable[str]) -> tuple[str, str]:
    """Return which library gives AES-GCM on a CPU with these features, or BOTH, and why."""
    for needed, library, reason in _MEASURED:
        if needed.issubset(features):
            return library, reason
    return "OpenSSL", "BoringSSL was not measured on such a CPU"


def choose(provider: str, settings: str) -> tuple[str, str, Any, int | None]:
    """Return the library, why it is the one, the capsule of BoringSSL's functions if it is that, and LONG or None.

    Raises
    ------
    BackendError
        ``AGS1_CIPHER`` asks for a library that there is not.
    """
    wanted = os.environ.get("AGS1_CIPHER", "")
    names = {"openssl": "OpenSSL", "boringssl": "BoringSSL", "both": BOTH}
    if wanted and wanted not in names:
        raise BackendError(f"AGS1_CIPHER={wanted} names no library: set it to openssl, boringssl or both, or unset it")
    if wanted:
        library = names[wanted]
        reason = f"AGS1_CIPHER={wanted} asks for it"
    elif provider != "default":
        library, reason = "OpenSSL", f"AES-GCM comes from OpenSSL's provider {provider}"
    else:
        library, reason = measured({*cpu_features(settings), *traits(settings)})
    if library == "OpenSSL":
        return library, reason, None, None
    try:
        from ags1.core import boringssl
    except ImportError as error:
        if wanted:
            raise BackendError(
                f"AGS1_CIPHER={wanted}: this ags1 was built without BoringSSL. Unset AGS1_CIPHER to use OpenSSL, or "
                "install ags1 from a wheel for x86-64 Linux, or where a C++ compiler is"
            ) from error
        return "OpenSSL", f"this ags1 was built without BoringSSL; {reason}", None, None
    return "BoringSSL", reason, boringssl.library(), LONG if library == BOTH else None
