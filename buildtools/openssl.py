"""Choose, and if need be build, the OpenSSL that ``ags1.core.gcm`` links.

The speed of AES-GCM depends on the version of OpenSSL more than on anything in this package, so the choice is
made here, in one place, in this order:

1. ``AGS1_OPENSSL``: ``system``, ``bundled``, or the prefix of an installation (``/opt/openssl``).
2. The system's libcrypto, if it is new enough to be fast (`FAST`).
3. A static libcrypto of a pinned release, built once with a minimal configuration and cached outside the tree.
   Its sources are `RELEASE` from ``AGS1_OPENSSL_SOURCE`` (a file, a directory that holds it, or a URL), else from
   the OpenSSL project's release page, else, where cargo is there, `CRATE` from cargo's registry. Both are pinned
   by their SHA-256.
4. The system's libcrypto, if it is new enough to work (`MINIMUM`), with a warning that names the cost.

Run as a program it prints what a build would choose here and now, and looks whether the sources can be had.

Only the standard library is used: this runs inside an isolated build environment. POSIX only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# Also where this is imported as buildtools.openssl.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import hardening
from openssl_source import (
    CRATE,
    HOW_TO_GET,
    INSTALL_TOOLS,
    NEWER,
    PINNED,
    RELEASE,
    UNSET,
    OpenSSLError,
    Source,
    UnavailableError,
    cache_directory,
    obtain,
    obtain_crate,
    say,
)
from sealed import is_sealed, move_sealed, workplace

MINIMUM = (3, 0, 0)
"""Oldest OpenSSL that works."""

FAST = (3, 2, 0)
"""Oldest OpenSSL that is preferred over building the pinned one."""

# Where it is, linkage, arguments of the compiler, arguments of the linker.
_SYSTEM = ("the system's", "system-shared", (), ("-lcrypto",))

CONFIGURE: tuple[str, ...] = (
    # What to leave out of the build altogether.
    *("no-shared", "no-module", "no-dso", "no-legacy", "no-fips", "no-engine", "no-deprecated"),
    *("no-apps", "no-tests", "no-docs", "no-demos", "no-makedepend"),
    # A library inside a Python module must not read the machine's openssl.cnf, and must not tear itself down
    # at exit while a daemon thread still encrypts.
    *("no-autoload-config", "no-atexit", "no-async", "no-ui-console", "no-filenames"),
    *("no-thread-pool", "no-default-thread-pool"),
    *("no-ssl", "no-tls", "no-dtls", "no-quic", "no-ssl-trace", "no-srp", "no-srtp", "no-psk", "no-nextprotoneg"),
    *("no-ktls", "no-sock", "no-dgram", "no-http", "no-ocsp", "no-cmp", "no-cms", "no-ct", "no-ts", "no-rfc3779"),
    *("no-comp", "no-ec", "no-ec2m", "no-dh", "no-dsa", "no-sm2", "no-ml-dsa", "no-ml-kem", "no-slh-dsa"),
    *("no-argon2", "no-scrypt", "no-aria", "no-bf", "no-blake2", "no-camellia", "no-cast", "no-chacha"),
    *("no-poly1305", "no-cmac", "no-des", "no-gost", "no-idea", "no-md4", "no-mdc2", "no-ocb", "no-rc2", "no-rc4"),
    *("no-rmd160", "no-seed", "no-siphash", "no-siv", "no-sm3", "no-sm4", "no-whirlpool", "no-multiblock"),
    # The names that stay in the library: neutral, so that no path of the building machine does.
    *("--prefix=/usr/local", "--libdir=lib", "--openssldir=/etc/ssl"),
    # Hidden symbols here and --exclude-libs at link: Python's own libcrypto may live in the same process.
    *("-fPIC", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"),
)
"""Arguments of OpenSSL's Configure: libcrypto.a with AES, SHA-2 and the DRBGs, with assembly and threads."""


@dataclasses.dataclass(frozen=True)
class OpenSSL:
    """One OpenSSL, as the compiler and the linker want it told.

    Attributes
    ----------
    linkage
        ``bundled-static``, ``system-shared``, ``prefix-static`` or ``prefix-shared``.
    version
        Version of the headers, such as ``3.5.7``.
    compile_args, link_args
        What compiler and linker are told; the latter after the object files.
    warning
        What the user should know about this choice, or an empty string.
    remedy
        The one thing to do on this machine to get a fast one, or an empty string. ``ags1 info`` shows it.
    source
        What it was built from, if it was built here.
    """

    linkage: str
    version: str
    compile_args: tuple[str, ...]
    link_args: tuple[str, ...]
    warning: str = ""
    remedy: str = ""
    source: Source | None = None

    @property
    def define_macros(self) -> list[tuple[str, str]]:
        """Macros that tell the extension module what it was linked with."""
        return [("AGS1_OPENSSL_LINKAGE", json.dumps(self.linkage)), ("AGS1_OPENSSL_REMEDY", json.dumps(self.remedy))]

    @property
    def static(self) -> bool:
        """Whether libcrypto becomes part of the extension module."""
        return self.linkage.endswith("-static")

    @property
    def archives(self) -> list[str]:
        """Static libraries, which the extension module is linked again for when they change."""
        return [each for each in self.link_args if each.endswith(".a")]


@dataclasses.dataclass(frozen=True)
class _Toolchain:
    """The C compiler that will build the extension, with what the environment adds to it."""

    command: tuple[str, ...]
    env: Mapping[str, str]

    @classmethod
    def detect(cls, env: Mapping[str, str]) -> _Toolchain:
        """Take the compiler that setuptools would take."""
        cc = env.get("CC") or sysconfig.get_config_var("CC") or "cc"
        # What CC says beyond the compiler's name (-pthread, -m64, -arch) decides what is built, so it stays.
        command = tuple(shlex.split(cc))
        if shutil.which(command[0], path=env.get("PATH")) is None:
            raise OpenSSLError(
                f"no C compiler: {command[0]!r} was not found. Install one "
                "('apt-get install build-essential', 'dnf install gcc', 'xcode-select --install') or set CC."
            )
        return cls(command, env)

    def run(self, *arguments: str, source: str = "") -> subprocess.CompletedProcess[str]:
        """Run the compiler and return what it said."""
        return _run([*self.command, *arguments], self.env, source)

    def flags(self, *names: str) -> list[str]:
        """Return what variables of the environment add to the compiler's arguments."""
        return [flag for name in names for flag in shlex.split(self.env.get(name, ""))]

    def usable(self, where: str, linkage: str, compile_args: Sequence[str], link_args: Sequence[str]) -> OpenSSL:
        """Return the OpenSSL of these arguments if it is new enough and links; else raise OpenSSLError."""
        probe = "#include <openssl/opensslv.h>\n"
        done = self.run(*self.flags("CPPFLAGS", "CFLAGS"), *compile_args, "-E", "-dM", "-x", "c", "-", source=probe)
        if done.returncode != 0:
            raise OpenSSLError(f"{where}: no OpenSSL headers: the compiler does not find openssl/opensslv.h")
        version = _parse_version(dict(re.findall(r"^#\s*define\s+(\w+)[ \t]*(.*)$", done.stdout, re.MULTILINE)), where)
        probe = "#include <openssl/evp.h>\nint probe(void) { return EVP_CIPHER_CTX_new() != 0; }\n"
        with tempfile.TemporaryDirectory(prefix="ags1-probe-") as scratch:
            done = self.run(
                *self.flags("CFLAGS"),
                *compile_args,
                *("-fPIC", "-shared", "-x", "c", "-", "-x", "none", "-o", os.path.join(scratch, "probe.so")),
                # Without this a missing symbol would only show at import.
                *(("-Wl,-z,defs",) if sys.platform.startswith("linux") else ()),
                *self.flags("LDFLAGS"),
                *link_args,
                source=probe,
            )
        if done.returncode != 0:
            said = done.stderr.strip() or f"compiler exit status {done.returncode}"
            raise OpenSSLError(f"{where} has headers of OpenSSL {version}, but linking libcrypto fails:\n{said}")
        return OpenSSL(linkage, version, tuple(compile_args), tuple(link_args))


def _run(
    command: Sequence[str], env: Mapping[str, str], source: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, input=source, capture_output=True, text=True, errors="replace", env=dict(env), cwd=cwd, check=False
    )


def choose(env: Mapping[str, str] | None = None, *, build: bool = True) -> OpenSSL:
    """Choose the OpenSSL to link, in the order that the module describes.

    Parameters
    ----------
    env
        Environment to read; the process's own by default.
    build
        Whether to build the pinned OpenSSL if it is chosen and not cached. If false, its sources are looked for as
        a build does, and the paths in the result may not exist yet.

    Raises
    ------
    OpenSSLError
        None can be used; the message says what to do.
    """
    env = os.environ if env is None else env
    toolchain = _Toolchain.detect(env)
    wanted = env.get("AGS1_OPENSSL", "").strip()
    if wanted == "bundled":
        return _bundled(toolchain, build=build)
    if wanted:
        try:
            named = toolchain.usable(*_SYSTEM) if wanted == "system" else _prefix(toolchain, Path(wanted))
        except OpenSSLError as error:
            raise OpenSSLError(f"{error}\n{HOW_TO_GET}") from None
        return _with_speed_warning(named, f"AGS1_OPENSSL={wanted} asks for it", UNSET)

    system, no_system = None, ""
    try:
        system = toolchain.usable(*_SYSTEM)
    except OpenSSLError as error:
        no_system = str(error)
    if system is not None and _version(system.version) >= FAST:
        return system
    try:
        return _bundled(toolchain, build=build)
    except UnavailableError as error:
        if system is not None:
            return _with_speed_warning(system, str(error), error.remedy)
        raise OpenSSLError(f"no usable OpenSSL.\n{no_system}\n{error}\n{HOW_TO_GET}") from error


# The system's, and a prefix


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _parse_version(macros: Mapping[str, str], where: str) -> str:
    """Version that the macros of opensslv.h state; refuses what is too old or is another library."""
    others = {"LIBRESSL_VERSION_NUMBER": "LibreSSL", "OPENSSL_IS_BORINGSSL": "BoringSSL", "OPENSSL_IS_AWSLC": "AWS-LC"}
    for macro in others.keys() & macros.keys():
        raise OpenSSLError(f"{where} is {others[macro]}; ags1 needs OpenSSL 3.0 or newer.")
    parts = [macros.get(f"OPENSSL_VERSION_{part}", "").strip() for part in ("MAJOR", "MINOR", "PATCH")]
    # Before 3.0 there was only 0xMNNFFPPSL.
    if number := re.match(r"0x([0-9a-f])([0-9a-f]{2})([0-9a-f]{2})", macros.get("OPENSSL_VERSION_NUMBER", "")):
        parts = [str(int(each, 16)) for each in number.groups()]
    text = ".".join(parts)
    if not re.fullmatch(r"\d+\.\d+\.\d+", text):
        raise OpenSSLError(f"{where}: opensslv.h states no version that ags1 understands.")
    if _version(text) < MINIMUM:
        raise OpenSSLError(f"{where} is OpenSSL {text}: too old. ags1 needs 3.0, and 3.2 to be fast.")
    return text


def _prefix(toolchain: _Toolchain, prefix: Path) -> OpenSSL:
    """Use the installation at `prefix`; its static libcrypto if there is one.

    Static first, because a shared libcrypto.so.3 of a prefix loses to the system's in any process that has
    loaded that one before (by ``import ssl``): the loader goes by the name alone.
    """
    where = f"AGS1_OPENSSL={prefix}"
    if not prefix.is_absolute():
        raise OpenSSLError(
            f"{where} is neither 'system', nor 'bundled', nor the absolute path of a prefix such as /opt/openssl."
        )
    header = prefix / "include" / "openssl" / "opensslv.h"
    if not header.is_file():
        raise OpenSSLError(f"{where}: there is no {header}. Give the prefix that OpenSSL is installed in.")
    include = (f"-I{prefix / 'include'}",)
    # Debian's directory, such as lib/x86_64-linux-gnu; without one it is lib again.
    places = [prefix / "lib64", prefix / "lib", prefix / "lib" / (sysconfig.get_config_var("MULTIARCH") or "")]
    archives = [place / "libcrypto.a" for place in places]
    ways = [("prefix-static", _static_args(archive)) for archive in archives if archive.is_file()]
    ways += [
        ("prefix-shared", (f"-L{place}", f"-Wl,-rpath,{place}", "-lcrypto"))
        for place in places
        if any((place / name).exists() for name in ("libcrypto.so", "libcrypto.dylib"))
    ]
    refusals = []
    for linkage, link_args in ways:
        try:
            return toolchain.usable(where, linkage, include, link_args)
        except OpenSSLError as error:
            refusals.append(str(error))
    tried = ", ".join(map(str, dict.fromkeys(places)))
    raise OpenSSLError("\n".join(refusals) or f"{where}: neither libcrypto.a nor a shared libcrypto in {tried}.")


def _static_args(archive: Path) -> tuple[str, ...]:
    """Link a static libcrypto whose symbols stay inside the extension module."""
    if sys.platform == "darwin":
        return f"-Wl,-load_hidden,{archive}", "-Wl,-dead_strip", "-pthread"
    return "-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", str(archive), "-ldl", "-pthread"


def _with_speed_warning(openssl: OpenSSL, reason: str, remedy: str) -> OpenSSL:
    if _version(openssl.version) >= FAST:
        return openssl
    warning = (
        f"ags1 is being linked with OpenSSL {openssl.version} ({openssl.linkage}).\n"
        "It works, but AES-GCM is about 2.6 times slower with it than with OpenSSL 3.2 or newer on machines\n"
        "with VAES (x86 servers since 2021).\n"
        f"Why this one: {reason}\nWhat to do: {remedy}"
    )
    return dataclasses.replace(openssl, warning=warning, remedy=remedy)


# The pinned one


def _target(toolchain: _Toolchain) -> str:
    """Configure's name for the platform where its own guess, which looks at the kernel, could be wrong."""
    if sys.platform == "darwin":
        archs = set(re.findall(r"-arch\s+(\S+)", toolchain.env.get("ARCHFLAGS", ""))) or {platform.machine()}
        if len(archs) > 1:
            raise UnavailableError(
                f"the pinned OpenSSL is built for one architecture at a time, and ARCHFLAGS names {sorted(archs)}."
            )
        return f"darwin64-{archs.pop()}-cc"
    machine, _, rest = toolchain.run("-dumpmachine").stdout.partition("-")
    crossed = "linux" in rest and machine in ("aarch64", "x86_64") and machine != platform.machine()
    return f"linux-{machine}" if crossed else ""


def _cached_place(toolchain: _Toolchain, source: Source) -> Path:
    """Directory of the built library. Everything that changes what is built is part of its name."""
    env = toolchain.env
    facts = {
        "tarball": source.sha256,
        "configure": (*CONFIGURE, *hardening.compile_args(toolchain.command, env)),
        "target": _target(toolchain),
        "command": toolchain.command,
        "compiler": toolchain.run("--version").stdout.partition("\n")[0],
        "machine": toolchain.run("-dumpmachine").stdout.strip(),
        "arch": platform.machine(),
        "macos": env.get("MACOSX_DEPLOYMENT_TARGET", ""),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory(env) / f"openssl-{source.version}-{sys.platform}-{platform.machine()}-{digest}"


def _built(source: Source, place: Path) -> OpenSSL:
    link_args = _static_args(place / "lib" / "libcrypto.a")
    return OpenSSL("bundled-static", source.version, (f"-I{place / 'include'}",), link_args, source=source)


def newer(env: Mapping[str, str] | None = None) -> OpenSSL:
    """Return a static libcrypto of the series after the pinned one, from the cache or built now, for the benchmarks.

    Raises
    ------
    UnavailableError
        There is no cargo, or it does not reach its registry.
    """
    return _bundled(_Toolchain.detect(os.environ if env is None else env), build=True, only=NEWER)


def _bundled(toolchain: _Toolchain, *, build: bool, only: Source | None = None) -> OpenSSL:
    """Return the pinned libcrypto, or that of `only`, from the cache or built now."""
    if (found := _cached(toolchain, only)) is not None:
        return found
    # Asked before anything is fetched: both end in the same advice.
    _require_build_tools(toolchain.env)
    cache = cache_directory(toolchain.env)
    with workplace(cache) as scratch:
        # Another build may have finished while this one waited.
        if (found := _cached(toolchain, only)) is not None:
            return found
        if only is None:
            source, archive = obtain(toolchain.env, scratch, whole=build)
        else:
            source, archive = only, obtain_crate(toolchain.env, scratch, only)
        place = _cached_place(toolchain, source)
        if build:
            _build(toolchain, source, archive, place, scratch)
        return _built(source, place)


def _cached(toolchain: _Toolchain, only: Source | None) -> OpenSSL | None:
    """Return what was built before; where sources are named, only what was built from the release."""
    pinned = (RELEASE,) if toolchain.env.get("AGS1_OPENSSL_SOURCE", "").strip() else (RELEASE, CRATE)
    for source in pinned if only is None else (only,):
        place = _cached_place(toolchain, source)
        if is_sealed(place):
            return _built(source, place)
    return None


def _require_build_tools(env: Mapping[str, str]) -> None:
    missing = [f"no {name}" for name in ("perl", "make") if shutil.which(name, path=env.get("PATH")) is None]
    if not missing:
        # Debian's perl-base and Fedora's perl-interpreter are not enough for Configure.
        modules = ("FindBin", "IPC::Cmd", "File::Copy", "File::Compare", "Data::Dumper", "Time::Piece")
        probe = _run(["perl", *(f"-M{name}" for name in modules), "-e", "1"], env)
        if probe.returncode == 0:
            return
        missing = [f"perl lacks modules of its own distribution ({probe.stderr.partition(chr(10))[0][:120]})"]
    raise UnavailableError(f"the pinned OpenSSL {PINNED} can't be built: {' and '.join(missing)}.", INSTALL_TOOLS)


def _build(toolchain: _Toolchain, source: Source, archive: Path, place: Path, scratch: Path) -> None:
    """Build libcrypto.a in a scratch directory and move it to `place` in one step."""
    say(f"building a static libcrypto from {archive.name}; about a minute on two cores, once")
    with tarfile.open(archive) as tar:
        # The checksum has vouched for the members; newer Pythons want a filter all the same.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(scratch)
    tree, out, log = scratch / source.top, scratch / "out", place.parent / f"{place.name}.log"
    # The builder's flags belong to the extension; the library is what the cache key says it is. The date
    # keeps two builds of the same source equal.
    unwanted = {"CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CPATH"}
    unwanted |= {"CROSS_COMPILE", "OPENSSL_CONF", "OPENSSL_LOCAL_CONFIG_DIR"}
    env = {key: value for key, value in toolchain.env.items() if key not in unwanted}
    env |= {"CC": shlex.join(toolchain.command), "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C"}
    target, hardened = _target(toolchain), hardening.compile_args(toolchain.command, toolchain.env)
    for step in (
        ["perl", "Configure", *([target] if target else []), *CONFIGURE, *hardened],
        ["make", f"-j{_cpus()}", "build_generated", "libcrypto.a"],
    ):
        done = _run(step, env, cwd=tree)
        if done.returncode != 0:
            said = done.stdout + done.stderr
            log.write_text(said)
            tail = "\n".join(said.splitlines()[-15:])
            raise OpenSSLError(
                f"building OpenSSL {source.version} failed: {' '.join(step[:2])}, exit status {done.returncode}.\n"
                f"The whole log is {log}; it ends:\n{tail}\nTo do without it, set AGS1_OPENSSL=system (any 3.x; 3.2 or "
                "newer to be fast) or AGS1_OPENSSL=/prefix."
            )
    shutil.copytree(tree / "include" / "openssl", out / "include" / "openssl", ignore=shutil.ignore_patterns("*.in"))
    (out / "lib").mkdir()
    shutil.copy2(tree / "libcrypto.a", out / "lib")
    move_sealed(out, place)
    log.unlink(missing_ok=True)


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warn(openssl: OpenSSL) -> None:
    """Print the warning of `openssl`, if it has one, so that it is seen in a build's output."""
    if openssl.warning:
        bar = "*" * 100
        print(f"\n{bar}\nWARNING: {openssl.warning}\n{bar}\n", file=sys.stderr, flush=True)


def main() -> int:
    """Print the choice."""
    try:
        chosen = choose(build=False)
    except OpenSSLError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    warn(chosen)
    for name in ("linkage", "version", "compile_args", "link_args"):
        value = getattr(chosen, name)
        print(f"{name:14} {value if isinstance(value, str) else ' '.join(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
