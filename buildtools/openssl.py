"""Choose, and if need be build, the OpenSSL that ``ags1._gcm`` links.

The speed of AES-GCM depends on the version of OpenSSL more than on anything in this package, so the choice is
made here, in one place, in this order:

1. ``AGS1_OPENSSL``: ``system``, ``bundled``, or the prefix of an installation (``/opt/openssl``).
2. The system's libcrypto, if it is new enough to be fast (`FAST`).
3. A static libcrypto of a pinned release, built once with a minimal configuration and cached outside the tree.
   Its sources are `RELEASE` from ``AGS1_OPENSSL_SOURCE`` (a file, a directory that holds it, or a URL), else from
   the OpenSSL project's release page, else, where cargo is there, `CRATE` from cargo's registry. Both are pinned
   by their SHA-256.
4. The system's libcrypto, if it is new enough to work (`MINIMUM`), with a warning that names the cost.

Run as a program it prints what a build would choose here and now, and looks whether the sources can be had;
``--build`` also builds what needs building.

Only the standard library is used: this runs inside an isolated build environment. POSIX only.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Also where this is imported as buildtools.openssl.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import hardening
from openssl_source import (
    CRATE,
    HOW_TO_GET,
    INSTALL_TOOLS,
    PINNED,
    RELEASE,
    UNSET,
    OpenSSLError,
    Source,
    UnavailableError,
    cache_directory,
    obtain,
    say,
)
from sealed import is_sealed, private_directory, seal

Version = tuple[int, int, int]

MINIMUM: Version = (3, 0, 0)
"""Oldest OpenSSL that works."""

FAST: Version = (3, 2, 0)
"""Oldest OpenSSL that is preferred over building the pinned one."""


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

# Parts of the tarball that a libcrypto without tests or documents never opens; they are most of its files.
_SKIP = re.compile(
    r"^[^/]+/(openssl/)?(fuzz/corpora|test/(recipes|certs|smime-certs|ct|d2i-tests|ocsp-tests)|doc/man\d)/(?!.*build\.info$)"
)


@dataclasses.dataclass(frozen=True)
class OpenSSL:
    """One OpenSSL, as the compiler and the linker want it told.

    Attributes
    ----------
    linkage
        ``bundled-static``, ``system-shared``, ``prefix-static`` or ``prefix-shared``.
    version
        Version of the headers, such as ``3.5.7``.
    warning
        What the user should know about this choice, or an empty string.
    remedy
        The one thing to do on this machine to get a fast one, or an empty string. ``ags1 info`` shows it.
    """

    linkage: str
    version: str
    include_dirs: tuple[str, ...] = ()
    library_dirs: tuple[str, ...] = ()
    runtime_library_dirs: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    extra_objects: tuple[str, ...] = ()
    extra_compile_args: tuple[str, ...] = ()
    extra_link_args: tuple[str, ...] = ()
    warning: str = ""
    remedy: str = ""

    @property
    def define_macros(self) -> list[tuple[str, str]]:
        """Macros that tell the extension module what it was linked with."""
        return [("AGS1_OPENSSL_LINKAGE", _c_text(self.linkage)), ("AGS1_OPENSSL_REMEDY", _c_text(self.remedy))]

    @property
    def static(self) -> bool:
        """Whether libcrypto becomes part of the extension module."""
        return self.linkage.endswith("-static")


def _c_text(text: str) -> str:
    return json.dumps(text)


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

    def run(self, *arguments: str, source: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run the compiler and return what it said."""
        return subprocess.run(
            [*self.command, *arguments],
            input=source,
            capture_output=True,
            text=True,
            env=dict(self.env),
            check=False,
        )

    def macros(self, flags: Sequence[str]) -> dict[str, str]:
        """Macros of the ``openssl/opensslv.h`` that the compiler finds; empty if it finds none."""
        extra = [*shlex.split(self.env.get("CPPFLAGS", "")), *shlex.split(self.env.get("CFLAGS", ""))]
        done = self.run(*extra, *flags, "-E", "-dM", "-x", "c", "-", source="#include <openssl/opensslv.h>\n")
        if done.returncode != 0:
            return {}
        found = re.findall(r"^#\s*define\s+(\w+)[ \t]+(.*)$", done.stdout, re.MULTILINE)
        return {name: value.strip() for name, value in found}

    def links(self, openssl: OpenSSL) -> str:
        """Link a shared object with `openssl`, as the extension will be; return the complaint, if any."""
        source = "#include <openssl/evp.h>\nint probe(void) { return EVP_CIPHER_CTX_new() != 0; }\n"
        with tempfile.TemporaryDirectory(prefix="ags1-probe-") as scratch:
            done = self.run(
                *shlex.split(self.env.get("CFLAGS", "")),
                *openssl.extra_compile_args,
                *(f"-I{path}" for path in openssl.include_dirs),
                *("-fPIC", "-shared", "-x", "c", "-", "-x", "none", "-o", os.path.join(scratch, "probe.so")),
                # Without this a missing symbol would only show at import.
                *(("-Wl,-z,defs",) if sys.platform.startswith("linux") else ()),
                *shlex.split(self.env.get("LDFLAGS", "")),
                *(f"-L{path}" for path in openssl.library_dirs),
                *openssl.extra_objects,
                *(f"-l{name}" for name in openssl.libraries),
                *openssl.extra_link_args,
                source=source,
            )
        return "" if done.returncode == 0 else (done.stderr.strip() or f"compiler exit status {done.returncode}")


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
    if wanted == "system":
        return _with_speed_warning(_system(toolchain), "AGS1_OPENSSL=system asks for it", UNSET)
    if wanted:
        if not os.path.isabs(wanted):
            raise OpenSSLError(
                f"AGS1_OPENSSL={wanted!r} is neither 'system', nor 'bundled', nor the absolute path of a "
                "prefix such as /opt/openssl."
            )
        return _with_speed_warning(_prefix(toolchain, Path(wanted)), f"AGS1_OPENSSL={wanted} asks for it", UNSET)

    system: OpenSSL | None = None
    try:
        system = _system(toolchain)
        no_system = ""
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


def _version(text: str) -> Version:
    major, minor, patch = (int(part) for part in text.split(".")[:3])
    return major, minor, patch


def _parse_version(macros: Mapping[str, str], where: str) -> str:
    """Version that the macros of opensslv.h state; refuses what is too old or is another library."""
    for name, macro in (
        ("LibreSSL", "LIBRESSL_VERSION_NUMBER"),
        ("BoringSSL or AWS-LC", "OPENSSL_IS_BORINGSSL"),
        ("AWS-LC", "OPENSSL_IS_AWSLC"),
    ):
        if macro in macros:
            raise OpenSSLError(f"{where} is {name}; ags1 needs OpenSSL 3.0 or newer.\n{HOW_TO_GET}")
    try:
        found = tuple(int(macros[f"OPENSSL_VERSION_{part}"]) for part in ("MAJOR", "MINOR", "PATCH"))
    except (KeyError, ValueError):
        # Before 3.0 there was only 0xMNNFFPPSL.
        number = re.match(r"0x([0-9a-fA-F]+)L?$", macros.get("OPENSSL_VERSION_NUMBER", ""))
        if number is None:
            raise OpenSSLError(f"{where}: opensslv.h states no version that ags1 understands.\n{HOW_TO_GET}") from None
        value = int(number[1], 16)
        found = (value >> 28, value >> 20 & 0xFF, value >> 12 & 0xFF)
    text = ".".join(map(str, found))
    if found < MINIMUM:
        raise OpenSSLError(f"{where} is OpenSSL {text}: too old. ags1 needs 3.0, and 3.2 to be fast.\n{HOW_TO_GET}")
    return text


def _pkg_config(env: Mapping[str, str], *arguments: str) -> list[str] | None:
    """What pkg-config says of libcrypto, or None where it has nothing to say."""
    program = shutil.which(env.get("PKG_CONFIG", "pkg-config"), path=env.get("PATH"))
    if program is None:
        return None
    done = subprocess.run(
        [program, *arguments, "libcrypto"], capture_output=True, text=True, env=dict(env), check=False
    )
    return shlex.split(done.stdout) if done.returncode == 0 else None


def _system(toolchain: _Toolchain) -> OpenSSL:
    """Find the libcrypto that the compiler or pkg-config finds without being told; the newer of the two."""
    candidates: list[OpenSSL] = []
    refusals: list[str] = []

    def consider(where: str, flags: Sequence[str], link: Sequence[str]) -> None:
        macros = toolchain.macros(flags)
        if not macros:
            return
        try:
            version = _parse_version(macros, where)
        except OpenSSLError as error:
            refusals.append(str(error))
            return
        found = OpenSSL(
            "system-shared",
            version,
            libraries=tuple(flag[2:] for flag in link if flag.startswith("-l")),
            library_dirs=tuple(flag[2:] for flag in link if flag.startswith("-L")),
            include_dirs=tuple(flag[2:] for flag in flags if flag.startswith("-I")),
            extra_compile_args=tuple(flag for flag in flags if not flag.startswith("-I")),
            extra_link_args=tuple(flag for flag in link if not flag.startswith(("-l", "-L"))),
        )
        complaint = toolchain.links(found)
        if complaint:
            refusals.append(f"{where} has headers of OpenSSL {version}, but linking libcrypto fails:\n{complaint}")
        else:
            candidates.append(found)

    consider("the system's", (), ("-lcrypto",))
    flags, link = _pkg_config(toolchain.env, "--cflags"), _pkg_config(toolchain.env, "--libs")
    if link and (flags or link != ["-lcrypto"]):
        consider("pkg-config's libcrypto", flags or (), link)
    if candidates:
        # max keeps the first of equals: the one that needs no flags.
        return max(candidates, key=lambda found: _version(found.version))
    if refusals:
        raise OpenSSLError("\n".join(refusals))
    raise OpenSSLError(
        "no OpenSSL headers: the compiler does not find openssl/opensslv.h, pkg-config knows no libcrypto.\n"
        + HOW_TO_GET
    )


def _prefix(toolchain: _Toolchain, prefix: Path) -> OpenSSL:
    """Use the installation at `prefix`; its static libcrypto if there is one.

    Static first, because a shared libcrypto.so.3 of a prefix loses to the system's in any process that has
    loaded that one before (by ``import ssl``): the loader goes by the name alone.
    """
    header = prefix / "include" / "openssl" / "opensslv.h"
    if not header.is_file():
        raise OpenSSLError(
            f"AGS1_OPENSSL={prefix}: there is no {header}. Give the prefix that OpenSSL is installed in."
        )
    include = (str(prefix / "include"),)
    version = _parse_version(toolchain.macros([f"-I{include[0]}"]), f"AGS1_OPENSSL={prefix}")
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    places = [prefix / "lib64", prefix / "lib", *([prefix / "lib" / multiarch] if multiarch else [])]
    complaints: list[str] = []
    for place in places:
        if (place / "libcrypto.a").is_file():
            found = _static("prefix-static", version, prefix / "include", place / "libcrypto.a")
            complaint = toolchain.links(found)
            if not complaint:
                return found
            complaints.append(f"{place / 'libcrypto.a'}: {complaint}")
    for place in places:
        if any((place / name).exists() for name in ("libcrypto.so", "libcrypto.dylib")):
            found = OpenSSL(
                "prefix-shared",
                version,
                include_dirs=include,
                library_dirs=(str(place),),
                runtime_library_dirs=(str(place),),
                libraries=("crypto",),
            )
            complaint = toolchain.links(found)
            if not complaint:
                return found
            complaints.append(f"{place}: {complaint}")
    if complaints:
        raise OpenSSLError(f"AGS1_OPENSSL={prefix}: libcrypto {version} does not link.\n" + "\n".join(complaints))
    tried = ", ".join(map(str, places))
    raise OpenSSLError(f"AGS1_OPENSSL={prefix}: neither libcrypto.a nor a shared libcrypto in {tried}.")


def _static(linkage: str, version: str, include: Path, archive: Path) -> OpenSSL:
    """Describe a static libcrypto whose symbols stay inside the extension module."""
    private: tuple[str, ...] = ("-pthread",)
    with contextlib.suppress(OSError):
        text = (archive.parent / "pkgconfig" / "libcrypto.pc").read_text()
        found = re.search(r"^Libs\.private:(.*)$", text, re.MULTILINE)
        if found:
            private = tuple(dict.fromkeys((*shlex.split(found[1]), *private)))
    if sys.platform == "darwin":
        return OpenSSL(
            linkage,
            version,
            include_dirs=(str(include),),
            extra_link_args=(f"-Wl,-load_hidden,{archive}", "-Wl,-dead_strip", *private),
        )
    return OpenSSL(
        linkage,
        version,
        include_dirs=(str(include),),
        extra_objects=(str(archive),),
        extra_link_args=("-Wl,--exclude-libs,ALL", "-Wl,--gc-sections", *private),
    )


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


def _target(env: Mapping[str, str]) -> str:
    """Configure's name for the platform where its own guess, which looks at the kernel, could be wrong."""
    machine = platform.machine()
    if sys.platform == "darwin":
        archs = re.findall(r"-arch\s+(\S+)", env.get("ARCHFLAGS", "")) or [machine]
        if len(set(archs)) != 1:
            raise UnavailableError(
                f"the pinned OpenSSL is built for one architecture at a time, and ARCHFLAGS names {archs}."
            )
        return f"darwin64-{archs[0]}-cc"
    if sys.platform.startswith("linux") and sys.maxsize < 2**32 and machine == "x86_64":
        return "linux-x86"
    return ""


def _cached_place(toolchain: _Toolchain, source: Source) -> Path:
    """Directory of the built library. Everything that changes what is built is part of its name."""
    env = toolchain.env
    compiler = toolchain.run("--version").stdout.partition("\n")[0]
    facts = {
        "tarball": source.sha256,
        "configure": (*CONFIGURE, *hardening.compile_args(toolchain.command, env)),
        "target": _target(env),
        "command": toolchain.command,
        "compiler": compiler,
        "machine": toolchain.run("-dumpmachine").stdout.strip(),
        "arch": platform.machine(),
        "macos": env.get("MACOSX_DEPLOYMENT_TARGET", ""),
    }
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory(env) / f"openssl-{source.version}-{sys.platform}-{platform.machine()}-{digest}"


def _bundled(toolchain: _Toolchain, *, build: bool) -> OpenSSL:
    """Return the pinned libcrypto, from the cache or built now."""
    if os.name != "posix":
        raise UnavailableError("the pinned OpenSSL can only be built on a POSIX system.")
    if (found := _cached(toolchain)) is not None:
        return found
    # Asked before anything is fetched: both end in the same advice.
    _require_build_tools(toolchain.env)
    cache = cache_directory(toolchain.env)
    with _locked(cache / "openssl.lock"), tempfile.TemporaryDirectory(prefix="build-", dir=cache) as name:
        # Another build may have finished while this one waited.
        if (found := _cached(toolchain)) is not None:
            return found
        scratch = Path(name)
        source, archive = obtain(toolchain.env, scratch, whole=build)
        place = _cached_place(toolchain, source)
        if build:
            _build(toolchain, source, archive, place, scratch)
        return _static("bundled-static", source.version, place / "include", place / "lib" / "libcrypto.a")


def _cached(toolchain: _Toolchain) -> OpenSSL | None:
    """Return what was built before; where sources are named, only what was built from the release."""
    for source in (RELEASE,) if toolchain.env.get("AGS1_OPENSSL_SOURCE", "").strip() else (RELEASE, CRATE):
        place = _cached_place(toolchain, source)
        if is_sealed(place):
            return _static("bundled-static", source.version, place / "include", place / "lib" / "libcrypto.a")
    return None


def _require_build_tools(env: Mapping[str, str]) -> None:
    path = env.get("PATH")
    missing = [name for name in ("perl", "make") if shutil.which(name, path=path) is None]
    if missing:
        raise UnavailableError(
            f"the pinned OpenSSL {PINNED} can't be built: no {' and no '.join(missing)}.", INSTALL_TOOLS
        )
    # Debian's perl-base and Fedora's perl-interpreter are not enough for Configure.
    modules = ("FindBin", "IPC::Cmd", "File::Copy", "File::Compare", "Data::Dumper", "Time::Piece")
    probe = subprocess.run(
        ["perl", *(f"-M{name}" for name in modules), "-e", "1"],
        capture_output=True,
        text=True,
        env=dict(env),
        check=False,
    )
    if probe.returncode != 0:
        raise UnavailableError(
            f"the pinned OpenSSL {PINNED} can't be built: perl lacks modules of its own distribution "
            f"({probe.stderr.strip().partition(chr(10))[0][:120]}).",
            INSTALL_TOOLS,
        )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold `path` as a lock, against other processes; released by the kernel if this one dies."""
    import fcntl

    try:
        private_directory(path.parent)
    except OSError as error:
        raise UnavailableError(
            f"nothing can be built in the cache: {error}", "set AGS1_CACHE to a directory of yours and build again"
        ) from error
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(toolchain: _Toolchain, source: Source, archive: Path, place: Path, scratch: Path) -> None:
    """Build libcrypto.a in a scratch directory and move it to `place` in one step."""
    say(f"building a static libcrypto from {archive.name}; about a minute on two cores, once")
    with tarfile.open(archive) as tar:
        members = [member for member in tar if not _SKIP.match(member.name)]
        # The checksum has vouched for the members; newer Pythons want a filter all the same.
        safe = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(scratch, members, **safe)  # type: ignore[arg-type]
    tree, work, out = scratch / source.top, scratch / "work", scratch / "out"
    work.mkdir()
    log = place.parent / f"{place.name}.log"
    # The builder's flags belong to the extension; the library is what the cache key says it is. The date
    # keeps two builds of the same source equal.
    unwanted = ("CFLAGS", "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CPATH")
    env = {key: value for key, value in toolchain.env.items() if key not in unwanted}
    env |= {"CC": shlex.join(toolchain.command), "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C"}
    for variable in ("CROSS_COMPILE", "OPENSSL_CONF", "OPENSSL_LOCAL_CONFIG_DIR"):
        env.pop(variable, None)
    target = _target(toolchain.env)
    relative = os.path.relpath(tree, work)
    hardened = hardening.compile_args(toolchain.command, toolchain.env)
    steps = (
        ["perl", f"{relative}/Configure", *([target] if target else []), *CONFIGURE, *hardened],
        ["make", f"-j{_cpus()}", "build_generated", "libcrypto.a"],
    )
    with open(log, "w") as output:
        for step in steps:
            done = subprocess.run(
                step,
                cwd=work,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
            )
            if done.returncode != 0:
                output.flush()
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise OpenSSLError(
                    f"building OpenSSL {source.version} failed: {' '.join(step[:2])}, "
                    f"exit status {done.returncode}.\nThe whole log is {log}; it ends:\n{tail}\n"
                    "To do without it, set AGS1_OPENSSL=system (any 3.x; 3.2 or newer to be fast) or "
                    "AGS1_OPENSSL=/prefix."
                )
    (out / "include").mkdir(parents=True)
    (out / "lib" / "pkgconfig").mkdir(parents=True)
    for root in (tree, work):
        shutil.copytree(
            root / "include" / "openssl",
            out / "include" / "openssl",
            ignore=shutil.ignore_patterns("*.in"),
            dirs_exist_ok=True,
        )
    shutil.copy2(work / "libcrypto.a", out / "lib")
    for file in (work / "libcrypto.pc", work / "exporters" / "libcrypto.pc"):
        if file.is_file():
            shutil.copy2(file, out / "lib" / "pkgconfig" / "libcrypto.pc")
            break
    shutil.copy2(tree / "LICENSE.txt", out)
    seal(out)
    # A directory that is not as it was built is a leftover, or was changed: this process holds the lock.
    shutil.rmtree(place, ignore_errors=True)
    os.rename(out, place)
    log.unlink()


def _cpus() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def warn(openssl: OpenSSL) -> None:
    """Print the warning of `openssl`, if it has one, so that it is seen in a build's output."""
    if openssl.warning:
        bar = "*" * 100
        print(f"\n{bar}\nWARNING: {openssl.warning}\n{bar}\n", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the choice; build it too if asked."""
    parser = argparse.ArgumentParser(description="Which OpenSSL ags1 would be linked with, here and now.")
    parser.add_argument("--build", action="store_true", help="build the pinned OpenSSL if it is the choice")
    options = parser.parse_args(arguments)
    try:
        chosen = choose(build=options.build)
    except OpenSSLError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    warn(chosen)
    for field in dataclasses.fields(chosen):
        value = getattr(chosen, field.name)
        if value and field.name not in ("warning", "remedy"):
            print(f"{field.name:22} {value if isinstance(value, str) else ' '.join(value)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
