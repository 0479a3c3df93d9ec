"""Information about the native core: its libraries, the instructions of AES-GCM, the number of threads."""

from __future__ import annotations

from ags1.core import blocks, choice, gcm
from ags1.support.typing import Any

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
        ``aes_gcm`` (the code path that they select), ``cipher`` ("OpenSSL" or "BoringSSL": the library of AES-GCM),
        ``cipher_reason`` (text: why that one), ``openssl_from`` (None, or the length in bytes from which OpenSSL
        gets a message, because OpenSSL is faster there), ``threads`` (the default number for a large call).
    """
    library = gcm.library()
    features = choice.cpu_features(library["cpu_settings"])
    return {
        "openssl_version": library["version"],
        "openssl_number": library["number"],
        "provider": library["provider"],
        "linkage": library["linkage"],
        "remedy": library["remedy"],
        "cpu_features": features,
        "aes_gcm": _code_path(features, library["number"]),
        "cipher": gcm.CIPHER,
        "cipher_reason": gcm.REASON,
        "openssl_from": gcm.LONG_FROM,
        "threads": blocks.usable_cpus(),
    }


def _code_path(features: list[str], number: int) -> str:
    if "PMULL" in features and "AES" in features:
        # Eight blocks at a time, with an instruction of SHA3, on the cores that OpenSSL knows to gain by it.
        return "armv8-aes-eor3" if "UNROLL8_EOR3" in features else "armv8-aes"
    has_zmm = number >= _FIRST_WITH_VAES
    if gcm.CIPHER == "BoringSSL":
        from ags1.core import boringssl

        has_zmm = boringssl.uses_zmm()
    if choice.VAES_AVX512.issubset(features) and has_zmm:
        return "vaes-avx512"
    if choice.VAES_AVX2.issubset(features) and gcm.CIPHER == "BoringSSL":
        return "vaes-avx2"
    if "AES-NI" in features and "PCLMULQDQ" in features:
        return "aesni-avx" if "AVX" in features else "aesni"
    return "generic"
