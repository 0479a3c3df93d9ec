"""BoringSSL's AES-GCM beside OpenSSL's: who is chosen, equal bytes, and forks."""

from __future__ import annotations

import json
import sys

import pytest

from ags1.core import choice
from ags1.errors import BackendError
from tests.checks import run_python

# VAES without AVX-512; the other has both.
ZEN_3 = "OPENSSL_ia32cap=0x7ed8320b078bffff:0x40069c219c97a9"
ICE_LAKE = "OPENSSL_ia32cap=0x7ffaf3ffffebffff:0x415f46f1bf2fbb"
ZEN_5 = "OPENSSL_ia32cap=0xfffa3203078bffff:0x00405fc6f1bf07ab:0x0000003000000110:0x0:0x0"
ZEN_4 = "OPENSSL_ia32cap=0xfffa3203078bffff:0x00405fc6f1bf07ab:0x0000002000000010:0x0000000000000000:0x0000000000000000"
EMERALD_RAPIDS = "OPENSSL_ia32cap=0xfffa32034f8bffff:0x1b415fdef1bf27eb:0x00001c30bfd14410:0x0000000000000000:0x0"
# As an Intel CPU with all of it would be.
LIKE_TIGER_LAKE = ZEN_5.replace("0xfffa3203078bffff", "0xfffa3203478bffff")
VAES = {"AES-NI", "PCLMULQDQ", "AVX", "AVX2", "VAES", "VPCLMULQDQ"}


def built() -> None:
    pytest.importorskip("ags1.core.boringssl", reason="this ags1 was built without BoringSSL")


@pytest.mark.parametrize(
    ("features", "name", "reason"),
    [
        (VAES, "BoringSSL", "BoringSSL is 1.6 to 1.9 times as fast as OpenSSL, without AVX-512"),
        (VAES | {"AVX512F", "AVX512BW", "AVX512VL"}, "OpenSSL", "BoringSSL has no gain that holds for all lengths"),
        (
            VAES | {"AVX512F", "AVX512BW", "AVX512VL", "VP2INTERSECT", "not Intel"},
            choice.BOTH,
            "BoringSSL is up to 1.7 times as fast up to 64 KiB",
        ),
        (
            VAES | {"AVX512F", "AVX512BW", "AVX512VL", "not Intel"},
            "BoringSSL",
            "BoringSSL is 1.04 to 1.4 times as fast as OpenSSL, most up to 4 KiB (AMD Zen 4)",
        ),
        (
            VAES | {"AVX512F", "AVX512BW", "AVX512VL", "AVX512_FP16"},
            "BoringSSL",
            "BoringSSL is 1.0 to 1.6 times as fast, most up to 4 KiB (Intel Emerald Rapids)",
        ),
        (VAES | {"AVX512F"}, "OpenSSL", "BoringSSL has no gain that holds for all lengths"),
        *(
            (VAES - {lost}, "OpenSSL", "BoringSSL was not measured on such a CPU")
            for lost in sorted(VAES - {"PCLMULQDQ"})
        ),
        ({"NEON", "AES", "PMULL"}, "OpenSSL", "BoringSSL was not measured on such a CPU"),
        (set(), "OpenSSL", "BoringSSL was not measured on such a CPU"),
    ],
)
def test_a_cpu_gets_boringssl_only_where_it_was_measured_to_be_faster(
    features: set[str], name: str, reason: str
) -> None:
    library, why = choice.measured(features)
    assert library == name
    assert why.startswith(reason)


@pytest.mark.parametrize(
    ("wanted", "provider", "settings", "name"),
    [
        ("", "default", ZEN_3, "BoringSSL"),
        ("", "default", ICE_LAKE, "OpenSSL"),
        ("", "default", ZEN_5, choice.BOTH),
        ("", "default", ZEN_4, "BoringSSL"),
        ("", "default", EMERALD_RAPIDS, "BoringSSL"),
        ("", "default", LIKE_TIGER_LAKE, "OpenSSL"),
        ("", "fips", ZEN_3, "OpenSSL"),
        ("", "default", "OPENSSL_ia32cap=0x0:0x0", "OpenSSL"),
        ("", "default", "OPENSSL_armcap=0xbd", "OpenSSL"),
        ("openssl", "default", ZEN_3, "OpenSSL"),
        ("openssl", "default", ZEN_5, "OpenSSL"),
        ("boringssl", "default", ZEN_5, "BoringSSL"),
        ("boringssl", "default", "", "BoringSSL"),
        ("both", "default", "", choice.BOTH),
    ],
)
def test_the_library_is_chosen_by_provider_cpu_and_environment(
    wanted: str, provider: str, settings: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built()
    monkeypatch.setenv("AGS1_CIPHER", wanted)
    library, _, capsule, long_from = choice.choose(provider, settings)
    is_both = name == choice.BOTH
    assert (library, long_from) == ("BoringSSL" if is_both else name, choice.LONG if is_both else None)
    assert (capsule is None) == (library == "OpenSSL")


def test_a_library_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGS1_CIPHER", "libressl")
    with pytest.raises(
        BackendError, match="AGS1_CIPHER=libressl names no library: set it to openssl, boringssl or both"
    ):
        choice.choose("default", "")


@pytest.mark.parametrize(("wanted", "name"), [("", "OpenSSL"), ("boringssl", None)])
def test_where_boringssl_was_not_built_openssl_is_used_unless_the_other_is_asked_for(
    wanted: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGS1_CIPHER", wanted)
    monkeypatch.setitem(sys.modules, "ags1.core.boringssl", None)
    monkeypatch.delattr("ags1.core.boringssl", raising=False)
    if name is None:
        with pytest.raises(BackendError, match=r"built without BoringSSL\. Unset AGS1_CIPHER to use OpenSSL"):
            choice.choose("default", ZEN_3)
    else:
        library, reason, capsule, long_from = choice.choose("default", ZEN_3)
        assert (library, capsule, long_from) == (name, None, None)
        assert reason.startswith("this ags1 was built without BoringSSL; BoringSSL is 1.6 to 1.9 times as fast")


MANY_MESSAGES = """
    import hashlib, json, random, sys
    from ags1.core import gcm

    # Lengths around those at which OpenSSL's calls, and the loops of either library, end.
    edges = [16, 128, 256, 512, 768, 2560, 4096, 32 << 10, 64 << 10, 96 << 10, 128 << 10]
    chance, seen = random.Random(36), hashlib.sha256()
    source = chance.randbytes(256 << 10)
    whole = memoryview(source)
    for number in range(100_000):
        length = chance.randrange(1200)
        if number % 8 == 0:
            length = max(0, chance.choice(edges[: 11 if number % 64 == 0 else 7]) + chance.randint(-20, 20))
        # Of 0 to 40 bytes, and sometimes more than OpenSSL gets in one call.
        more = chance.randrange(41) if number % 1000 else chance.randrange(130 << 10)
        at = chance.randrange(120 << 10)
        data, aad = whole[at : at + length], whole[at + 7 : at + 7 + more]
        key = source[at : at + chance.choice((16, 24, 32))]
        nonce = source[at + 40 : at + 52]
        sealed = gcm.seal_message(data, key, nonce, aad)
        seen.update(sealed)
        if number % 4 == 0:
            assert gcm.open_message(sealed, key, nonce, aad) == data
            bad = bytearray(sealed)
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            assert gcm.open_message(bad, key, nonce, aad) is None
    print(json.dumps([gcm.CIPHER, gcm.LONG_FROM, seen.hexdigest()]))
"""


def test_both_libraries_write_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    said = {}
    for wanted in ("openssl", "boringssl", "both"):
        monkeypatch.setenv("AGS1_CIPHER", wanted)
        *name, digest = json.loads(run_python(MANY_MESSAGES))
        said[tuple(name)] = digest
    assert set(said) == {("OpenSSL", None), ("BoringSSL", None), ("BoringSSL", choice.LONG)}
    assert len(set(said.values())) == 1


BOTH_IN_ONE_STREAM = """
    import random
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    import ags1
    from ags1.core import gcm

    chance = random.Random(7)
    source = chance.randbytes(900 << 10)
    for number in range(200):
        key, threads = chance.randbytes(chance.choice((16, 24, 32))), chance.randint(1, 3)
        block = chance.choice((100, 128, 200)) * 1024 + chance.randint(-40, 40)
        data, prefix = source[: chance.randint(1, len(source))], chance.randbytes(chance.randrange(9))
        stream = ags1.encrypt(data, key, aad_prefix=prefix, block_length=block, threads=threads)
        plain = b""
        for index, at in enumerate(range(8, len(stream), block + 28)):
            sealed = stream[at : at + block + 28]
            plain += AESGCM(key).decrypt(sealed[:12], sealed[12:], prefix + index.to_bytes(4, "little"))
        assert plain == data
        assert ags1.decrypt(stream, key, aad_prefix=prefix, threads=threads) == data
        bad = bytearray(stream)
        bad[chance.randrange(8, len(bad))] ^= 1
        try:
            ags1.decrypt(bad, key, aad_prefix=prefix, threads=threads)
        except ags1.AuthenticationError:
            continue
        raise AssertionError("a changed byte was not noticed")
    print(gcm.LONG_FROM)
"""


def test_a_stream_whose_blocks_both_libraries_seal_is_read_by_another_implementation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built()
    pytest.importorskip("cryptography")
    monkeypatch.setenv("AGS1_CIPHER", "both")
    assert run_python(BOTH_IN_ONE_STREAM).strip() == str(choice.LONG)


def test_a_child_forked_beside_threads_that_met_bad_tags_ends() -> None:
    built()
    said = run_python(
        """
        import os, threading
        os.environ["AGS1_CIPHER"] = "boringssl"
        from ags1.core import gcm

        key, nonce = bytes(32), bytes(12)
        def bad():
            for _ in range(200):
                assert gcm.open_message(bytes(40), key, nonce) is None
        for _ in range(100):
            threads = [threading.Thread(target=bad) for _ in range(3)]
            for each in threads:
                each.start()
            child = os.fork()
            if child == 0:
                bad()
                again = threading.Thread(target=bad)
                again.start()
                again.join()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            for each in threads:
                each.join()
        print(gcm.CIPHER)
        """
    )
    assert said.strip() == "BoringSSL"
