"""Build what ``ags1.core.boringssl`` links: the AES-GCM of a pinned BoringSSL, faster than OpenSSL's on some CPUs.

The module is optional. It is left out, and the build says why, where ``AGS1_OPENSSL`` names another OpenSSL than the
bundled one, where ``AGS1_CIPHER=openssl``, on other systems than x86-64 Linux, and where the sources or a C++ compiler
are missing. With ``AGS1_CIPHER=boringssl`` what is missing is an error.

The sources are `SOURCE` from ``AGS1_BORINGSSL_SOURCE`` (a file, a directory that holds it, or a URL), else from cargo's
registry, pinned by their SHA-256. What is built, in seconds, is cached beside OpenSSL.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Mapping
from pathlib import Path

# Also where this is imported as buildtools.boringssl.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import hardening
from openssl_source import BORINGSSL as SOURCE
from openssl_source import UnavailableError, cache_directory, obtain_boringssl, say
from sealed import is_sealed, move_sealed, workplace

CODE = Path(__file__).with_name("boringssl.cc")
ASSEMBLY = ("aes-gcm-avx2", "aes-gcm-avx512", "aesni", "aesni-gcm", "ghash", "ghash-ssse3", "vpaes")
FLAGS = (
    *("-O3", "-std=c++17", "-fPIC", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fno-common", "-DNDEBUG"),
    *("-fvisibility=hidden", "-ffunction-sections", "-fdata-sections", "-Wa,--noexecstack"),
    # Paths are those inside the sources.
    *("-I.", "-Iinclude"),
)


@dataclasses.dataclass(frozen=True)
class BoringSSL:
    """One that was built: where its headers and its object files are."""

    place: Path
    version: str = SOURCE.version

    @property
    def compile_args(self) -> list[str]:
        """What the compiler is told."""
        return [f"-I{self.place / 'include'}"]

    @property
    def objects(self) -> list[str]:
        """What is linked."""
        return sorted(map(str, (self.place / "lib").iterdir()))

    @property
    def link_args(self) -> list[str]:
        """What the linker is told."""
        return [*self.objects, "-Wl,--gc-sections", "-pthread"]


def choose(env: Mapping[str, str] | None = None) -> BoringSSL | None:
    """Return the library, from the cache or built now, or None where it is left out.

    Raises
    ------
    OpenSSLError
        It is asked for, or its sources are, and it cannot be built.
    """
    env = os.environ if env is None else env
    try:
        return _choose(env)
    except UnavailableError as error:
        if env.get("AGS1_CIPHER") == "boringssl":
            raise
        say(f"BoringSSL is left out, whose AES-GCM is up to 1.9 times as fast on some CPUs: {error}")
        return None


def _choose(env: Mapping[str, str]) -> BoringSSL:
    openssl = env.get("AGS1_OPENSSL", "").strip()
    if env.get("AGS1_CIPHER") == "openssl":
        raise UnavailableError("AGS1_CIPHER=openssl")
    if openssl not in ("", "bundled"):
        raise UnavailableError(f"AGS1_OPENSSL={openssl} asks for that library")
    command = shlex.split(env.get("CXX") or sysconfig.get_config_var("CXX") or "c++")
    if shutil.which(command[0], path=env.get("PATH")) is None:
        raise UnavailableError(
            f"no C++ compiler {command[0]!r}: 'apt-get install g++', 'dnf install gcc-c++', or set CXX"
        )
    # The C compiler's: that of a cross build is set, while CXX may not be.
    c_compiler = shlex.split(env.get("CC") or sysconfig.get_config_var("CC") or "cc")
    target = _run([*c_compiler, "-dumpmachine"], env).strip()
    if not target.startswith("x86_64-") or "linux" not in target:
        raise UnavailableError(f"it was measured on x86-64 Linux only, and this is built for {target}")
    command += [*FLAGS, *hardening.compile_args(command, env)]
    facts = [SOURCE.sha256, CODE.read_text(), ASSEMBLY, command, _run([command[0], "--version"], env), target]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    cache = cache_directory(env)
    place = cache / f"boringssl-{SOURCE.version}-{digest}"
    with workplace(cache) as scratch:
        if not is_sealed(place):
            out = _build(command, obtain_boringssl(env, scratch), scratch, env)
            # The module is linked as C. What is missing would else show at import, or not at all where another
            # libcrypto of the process has the name.
            probe = ["-shared", "-pthread", "-Wl,-z,defs", "-Wl,--gc-sections", "-Wl,-u,EVP_aes_256_gcm"]
            _run([*c_compiler, *probe, *map(str, out.glob("lib/*.o")), "-o", str(scratch / "probe.so")], env)
            move_sealed(out, place)
    return BoringSSL(place)


def _run(command: list[str], env: Mapping[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=dict(env), cwd=cwd, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _build(command: list[str], archive: Path, scratch: Path, env: Mapping[str, str]) -> Path:
    """Compile in a scratch directory; return the directory in it with headers and object files."""
    say(f"building AES-GCM of BoringSSL from {archive.name}")
    with tarfile.open(archive) as tar:
        # The checksum has vouched for the members; newer Pythons want a filter all the same.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(scratch)
    tree, out = scratch / SOURCE.top, scratch / "out"
    (out / "lib").mkdir(parents=True)
    shutil.copytree(tree / "include", out / "include")
    shutil.copy(CODE, tree)
    # The builder's flags belong to the extension.
    unwanted = {"CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH"}
    env = {key: value for key, value in env.items() if key not in unwanted} | {"LC_ALL": "C"}
    names = [CODE.name, *(f"gen/bcm/{name}-x86_64-linux.S" for name in ASSEMBLY)]
    _run([*command, "-c", *names], env, tree)
    for built in tree.glob("*.o"):
        shutil.move(built, out / "lib")
    return out
