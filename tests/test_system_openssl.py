"""The system's OpenSSL, with the provider that its configuration asks for: what ``AGS1_OPENSSL=system`` links."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import ags1

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path(ags1.__file__).parent
CONFIGURATION = """
openssl_conf = all
[all]
providers = providers
alg_section = properties
[providers]
default = default_sect
[default_sect]
activate = 1
[properties]
default_properties = {properties}
"""
USE = """
import json
import ags1
key = ags1.Key.generate()
stream = ags1.encrypt(bytes(100_000), key, block_length=100, threads=2)
assert ags1.decrypt(stream, key, threads=2) == bytes(100_000)
assert len({stream[at : at + 12] for at in range(8, len(stream), 128)}) == 1000
try:
    ags1.decrypt(stream, bytes(32))
except ags1.AuthenticationError:
    print(json.dumps(ags1.backend()))
"""


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package whose one module with libcrypto is linked with the system's."""
    compiler = shutil.which("gcc")
    if compiler is None or not Path("/usr/include/openssl/evp.h").exists():
        pytest.skip("needs gcc and the development files of the system's OpenSSL")
    root = tmp_path_factory.mktemp("system")
    ignored = shutil.ignore_patterns("gcm.*.so", "__pycache__")
    shutil.copytree(PACKAGE, root / "ags1", ignore=ignored)
    source = root / "gcm.c"
    made = root / "ags1" / "core" / f"gcm{sysconfig.get_config_var('EXT_SUFFIX')}"
    cython = [
        sys.executable,
        "-m",
        "cython",
        "-3",
        "-I",
        ROOT / "include",
        ROOT / "ags1" / "core" / "gcm.pyx",
        "-o",
        source,
    ]
    defines = ['-DAGS1_OPENSSL_LINKAGE="system-shared"', '-DAGS1_OPENSSL_REMEDY=""']
    includes = [f"-I{ROOT / 'include'}", f"-I{sysconfig.get_path('include')}"]
    for step in (
        cython,
        [compiler, "-O1", "-shared", "-fPIC", *includes, *defines, source, "-o", made, "-lcrypto", "-pthread"],
    ):
        done = subprocess.run(list(map(str, step)), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return root


def run(linked: Path, code: str, configuration: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(linked), str(ROOT)])}
    if configuration is not None:
        env["OPENSSL_CONF"] = str(configuration)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=linked, capture_output=True, text=True, check=False, timeout=600
    )


def configured(path: Path, properties: str) -> Path:
    path.write_text(CONFIGURATION.format(properties=properties))
    return path


def test_the_provider_is_the_one_that_the_configuration_asks_for(linked: Path, tmp_path: Path) -> None:
    for configuration in (None, configured(tmp_path / "openssl.cnf", "provider=default")):
        done = run(linked, USE, configuration)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert (said["linkage"], said["provider"]) == ("system-shared", "default")


def test_a_host_that_asks_for_fips_and_has_no_such_provider_gets_an_error_and_no_other_cipher(
    linked: Path, tmp_path: Path
) -> None:
    done = run(linked, USE, configured(tmp_path / "openssl.cnf", "fips=yes"))
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ags1.errors.BackendError: OpenSSL failed while fetching AES-GCM"), done.stderr
    assert "openssl.cnf" in last


@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform != "linux", reason="needs pidfd_open")
def test_children_forked_beside_threads_do_not_hang_with_the_systems_openssl(linked: Path) -> None:
    done = run(linked, "from tests.threats.soak_forks import soak; print(*soak(300, seconds=15))")
    assert done.returncode == 0, done.stderr
    count, bad = map(int, done.stdout.split())
    assert count >= 1
    assert bad == 0, f"{bad} of {count} children hung or failed"
