"""What ags1.backend() says of the native core is so."""

from __future__ import annotations

import json
import os
import platform
import re
from pathlib import Path

import pytest

import ags1
from ags1.core import gcm
from tests.checks import KEY, pattern, run_python

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")
IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
CODE_PATHS = {"vaes-avx512", "vaes-avx2", "aesni-avx", "aesni", "armv8-aes", "armv8-aes-eor3", "generic"}
SAY = "import ags1, json; print(json.dumps(ags1.backend()))"


def test_it_says_these_things() -> None:
    backend = ags1.backend()
    assert set(backend) == {
        "openssl_version",
        "openssl_number",
        "provider",
        "linkage",
        "remedy",
        "cpu_features",
        "aes_gcm",
        "cipher",
        "cipher_reason",
        "openssl_from",
        "threads",
    }
    assert re.match(r"OpenSSL \d+\.\d+\.\d+", backend["openssl_version"])
    assert backend["linkage"] in {"bundled-static", "system-shared", "prefix-static", "prefix-shared"}
    assert backend["aes_gcm"] in CODE_PATHS
    assert json.loads(json.dumps(backend)) == backend


def test_version_and_number_agree_and_are_the_librarys() -> None:
    backend, library = ags1.backend(), gcm.library()
    number = backend["openssl_number"]
    version = f"OpenSSL {number >> 28}.{number >> 20 & 0xFF}.{number >> 4 & 0xFF}"
    assert backend["openssl_version"].startswith(version)
    assert (backend["openssl_version"], number) == (library["version"], library["number"])


def test_each_call_answers_a_dictionary_of_its_own() -> None:
    ags1.backend()["cpu_features"].clear()
    ags1.backend().clear()
    assert ags1.backend()["aes_gcm"] in CODE_PATHS
    assert ags1.backend()["cpu_features"] == ags1.backend()["cpu_features"]


def test_threads_are_the_cpus_that_this_process_may_use() -> None:
    assert ags1.backend()["threads"] == len(os.sched_getaffinity(0))
    one = min(os.sched_getaffinity(0))
    assert json.loads(run_python(f"import os; os.sched_setaffinity(0, {{{one}}}); {SAY}"))["threads"] == 1


@pytest.mark.skipif(not IS_X86, reason="the names of CPU features differ elsewhere")
def test_the_features_are_those_of_the_cpu() -> None:
    flags = set(re.findall(r"^flags\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    names = {"AES-NI": "aes", "PCLMULQDQ": "pclmulqdq"}
    for feature in ags1.backend()["cpu_features"]:
        assert names.get(feature, feature.lower()) in flags


@pytest.mark.skipif(not IS_ARM, reason="the names of CPU features differ elsewhere")
def test_the_features_of_an_arm_cpu_are_those_that_its_kernel_names() -> None:
    lines = re.findall(r"^Features\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    if not lines:
        pytest.skip("this CPU is emulated: its kernel knows nothing of it")
    flags = set(lines[0].split())
    names = {"NEON": "asimd", "AES": "aes", "PMULL": "pmull", "SHA3": "sha3"}
    found = set(ags1.backend()["cpu_features"])
    assert {name for name in names if name in found} == {name for name, flag in names.items() if flag in flags}


@pytest.mark.parametrize(
    ("settings", "features", "path"),
    [
        ("OPENSSL_armcap=0x0", [], "generic"),
        ("OPENSSL_armcap=0x1", ["NEON"], "generic"),
        ("OPENSSL_armcap=0x5", ["NEON", "AES"], "generic"),
        ("OPENSSL_armcap=0xbd", ["NEON", "AES", "PMULL"], "armv8-aes"),
        ("OPENSSL_armcap=0x1dfd env:0x1dfd", ["NEON", "AES", "PMULL", "SHA3", "UNROLL8_EOR3"], "armv8-aes-eor3"),
    ],
)
def test_what_openssl_found_of_an_arm_cpu_selects_the_code(
    settings: str, features: list[str], path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = {**gcm.library(), "cpu_settings": settings}
    monkeypatch.setattr(gcm, "library", lambda: library)
    assert (ags1.backend()["cpu_features"], ags1.backend()["aes_gcm"]) == (features, path)


# Each takes away AES and carry-less multiplication; then what the fastest code needs besides.
SWITCHES = [
    ("OPENSSL_ia32cap", "~0x200000200000000", {"AES-NI", "PCLMULQDQ"}, "generic"),
    ("OPENSSL_ia32cap", ":~0x60000010000", {"AVX512F", "VAES", "VPCLMULQDQ"}, "aesni-avx"),
    ("OPENSSL_armcap", "0x1", {"AES", "PMULL", "SHA3", "UNROLL8_EOR3"}, "generic"),
    ("OPENSSL_armcap", "0x25", {"SHA3", "UNROLL8_EOR3"}, "armv8-aes"),
]


@pytest.mark.skipif(not IS_X86 and not IS_ARM, reason="this CPU has no such switches")
@pytest.mark.parametrize(
    ("variable", "switch", "lost", "path"),
    [each for each in SWITCHES if (each[0] == "OPENSSL_armcap") == IS_ARM],
)
def test_every_code_path_says_its_name_and_writes_what_the_others_read(
    variable: str, switch: str, lost: set[str], path: str
) -> None:
    before = ags1.backend()
    if before["aes_gcm"] == "generic":
        pytest.skip("this CPU has one code path only")
    data = pattern(10_000)
    ours = ags1.encrypt(data, KEY, block_length=3000)
    code = f"""
        import os, sys
        os.environ[{variable!r}] = {switch!r}
        import ags1, json
        ours, key = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
        data = ags1.decrypt(ours, key)
        print(json.dumps([ags1.backend(), ags1.encrypt(data, key, block_length=3000).hex()]))
    """
    backend, theirs = json.loads(run_python(code, ours.hex(), KEY.hex()))
    assert not lost & set(backend["cpu_features"])
    assert backend["aes_gcm"] == path
    assert ags1.decrypt(bytes.fromhex(theirs), KEY) == data
