"""Information about the native core: the OpenSSL, its linkage, the instructions of AES-GCM, the number of threads."""

from __future__ import annotations

from ags1.core import blocks, gcm
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
# Bits of OPENSSL_armcap.
_ARM_FEATURES = (("NEON", 0), ("AES", 2), ("PMULL", 5), ("SHA3", 11), ("UNROLL8_EOR3", 12))
_VAES = frozenset({"AVX512F", "AVX512BW", "AVX512VL", "VAES", "VPCLMULQDQ"})
# The first release whose AES-GCM has the AVX-512 VAES code.
_FIRST_WITH_VAES = 0x30100000


def backend() -> dict[str, Any]:
    """Describe the native core of this process.

    Returns
    -------
    dict
        ``openssl_version`` (text), ``openssl_number`` (int), ``provider`` (text: the OpenSSL provider that AES-GCM
        comes from, "default" or "fips"), ``linkage`` ("bundled-static", "system-shared", "prefix-static",
        "prefix-shared"), ``remedy`` (text: how to get a faster OpenSSL on the machine that built this; empty if there
        is nothing to do), ``cpu_features`` (list of the CPU features for AES-GCM that OpenSSL has found),
        ``aes_gcm`` (the code path that they select), ``threads`` (the default number for a large call).
    """
    library = gcm.library()
    features = _cpu_features(library["cpu_settings"])
    return {
        "openssl_version": library["version"],
        "openssl_number": library["number"],
        "provider": library["provider"],
        "linkage": library["linkage"],
        "remedy": library["remedy"],
        "cpu_features": features,
        "aes_gcm": _code_path(features, library["number"]),
        "threads": blocks.usable_cpus(),
    }


def _cpu_features(settings: str) -> list[str]:
    name, _, value = settings.partition("=")
    if name == "OPENSSL_ia32cap":
        # An environment override is appended behind a space.
        words = [int(word, 16) for word in value.split(" ")[0].split(":") if word]
        return [feature for feature, word, bit in _X86_FEATURES if word < len(words) and words[word] >> bit & 1]
    if name == "OPENSSL_armcap":
        mask = int(value.split(" ")[0], 16)
        return [feature for feature, bit in _ARM_FEATURES if mask >> bit & 1]
    return []


def _code_path(features: list[str], number: int) -> str:
    if "PMULL" in features and "AES" in features:
        # Eight blocks at a time, with an instruction of SHA3, on the cores that OpenSSL knows to gain by it.
        return "armv8-aes-eor3" if "UNROLL8_EOR3" in features else "armv8-aes"
    if _VAES.issubset(features) and number >= _FIRST_WITH_VAES:
        return "vaes-avx512"
    if "AES-NI" in features and "PCLMULQDQ" in features:
        return "aesni-avx" if "AVX" in features else "aesni"
    return "generic"
