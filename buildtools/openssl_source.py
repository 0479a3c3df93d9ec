"""Get the pinned sources of OpenSSL and BoringSSL: releases, or crates of cargo's registry, held to their SHA-256.

Only the standard library is used: this runs inside an isolated build environment.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.client
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Source:
    """The pinned sources of one release: a gzipped tar `file` from `url`, with the sources in its directory `top`.

    `crate` is the line of a Cargo.toml for it, if it comes from there; cargo knows where.
    """

    version: str
    file: str
    sha256: str
    top: str
    url: str
    crate: str = ""


PINNED = "3.5.7"
"""The release that is built when the system's is not fast. A long-term support series."""

RELEASE_URL = f"https://github.com/openssl/openssl/releases/download/openssl-{PINNED}/openssl-{PINNED}.tar.gz"
RELEASE = Source(
    PINNED,
    f"openssl-{PINNED}.tar.gz",
    "a8c0d28a529ca480f9f36cf5792e2cd21984552a3c8e4aa11a24aa31aeac98e8",
    f"openssl-{PINNED}",
    RELEASE_URL,
)


def _crate_source(crate: str, release: str, sha256: str, top: str) -> Source:
    name, number, version = f"{crate}-{release}", *release.partition("+")[::2]
    # A package URL names it.
    url = f"pkg:cargo/{crate}@{release.replace('+', '%2B')}"
    return Source(version or number, f"{name}.crate", sha256, f"{name}/{top}", url, f'{crate} = "={number}"')


CRATE = _crate_source(
    "openssl-src", "300.5.5+3.5.5", "3f1787d533e03597a7934fd0a765f0d28e94ecc5fb7789f8053b1e699a56f709", "openssl"
)
"""The newest of the series that cargo's registry has: for machines that do not reach the release page."""

NEWER = _crate_source(
    "openssl-src", "400.0.2+4.0.3", "d2093956673b8dbda85c87fa4fb78e70698ce6c5978a2837d1613f661d3bef76", "openssl"
)
"""The series after the pinned one: the benchmarks run the same C loop on it."""

BORINGSSL = _crate_source(
    "boring-sys", "5.4.0", "4986392770df40d11d0d6294b0dd8399570f4a6e76d6953c7a34f7dd1defbd76", "deps/boringssl"
)
"""BoringSSL has no releases: this crate carries the commit that it was made from, its assembly generated."""

DOWNLOAD_TIMEOUT = 30
"""Seconds without a byte before a download counts as unreachable."""

_AGAIN = "install ags1 again: pip install --force-reinstall --no-cache-dir --no-deps with what you installed"

INSTALL_TOOLS = f"run 'apt-get install perl make' or 'dnf install perl-core make', and {_AGAIN}"
UNSET = f"unset AGS1_OPENSSL, and {_AGAIN}"
_BRING_SOURCE = f"bring {RELEASE_URL} here, set AGS1_OPENSSL_SOURCE to the file, and {_AGAIN}"

HOW_TO_GET = (
    "Any one of these fixes it:\n"
    f"  * let the build fetch {RELEASE_URL}\n"
    "    (about a minute of compiling, once; needs perl and make:\n"
    "    'apt-get install perl make' or 'dnf install perl-core make')\n"
    "  * download that file and set AGS1_OPENSSL_SOURCE to it, or to the directory that it is in\n"
    "  * install cargo, if its registry or a mirror is reached: the build takes the sources from there\n"
    "  * install the development files of OpenSSL 3.2 or newer\n"
    "    ('apt-get install libssl-dev', 'dnf install openssl-devel')\n"
    "  * set AGS1_OPENSSL to the prefix of an OpenSSL 3.2 or newer of your own ('brew --prefix openssl@3')"
)


class OpenSSLError(Exception):
    """No usable OpenSSL: the message says what to install or to set."""


class UnavailableError(OpenSSLError):
    """The pinned OpenSSL can't be had here; another choice may still do. `remedy` is one thing that changes it."""

    def __init__(self, message: str, remedy: str = _BRING_SOURCE) -> None:
        super().__init__(message)
        self.remedy = remedy


# Fetching


def cache_directory(env: Mapping[str, str] | None = None) -> Path:
    """Directory that built libraries and downloaded tarballs are kept in, outside any source tree."""
    env = os.environ if env is None else env
    if env.get("AGS1_CACHE"):
        return Path(env["AGS1_CACHE"]).expanduser().absolute()
    base = env.get("XDG_CACHE_HOME")
    # XDG: a relative path there is to be ignored.
    root = Path(base) if base and os.path.isabs(base) else Path(env.get("HOME") or Path.home()) / ".cache"
    return root / "ags1"


def _verify(path: Path, origin: str, source: Source) -> None:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != source.sha256:
        raise OpenSSLError(
            f"checksum mismatch: {origin} is not the expected {source.file}; nothing was built from it.\n"
            f"  expected SHA-256 {source.sha256}\n"
            f"  found            {digest.hexdigest()}\n"
            "A download that was cut short looks like this too: delete the file, or fetch it again."
        )


def obtain(env: Mapping[str, str], scratch: Path, *, whole: bool) -> tuple[Source, Path]:
    """Return what to build, and its verified archive; without `whole`, the release page is reached and not read."""
    try:
        return RELEASE, _fetch(env, RELEASE, "AGS1_OPENSSL_SOURCE", scratch, whole=whole)
    except UnavailableError as no_release:
        try:
            return CRATE, obtain_crate(env, scratch, CRATE)
        except UnavailableError as no_crate:
            raise UnavailableError(f"{no_release}\n{no_crate}") from no_release


def obtain_boringssl(env: Mapping[str, str], scratch: Path) -> Path:
    """Return BoringSSL's verified archive."""
    if env.get("AGS1_BORINGSSL_SOURCE", "").strip():
        return _fetch(env, BORINGSSL, "AGS1_BORINGSSL_SOURCE", scratch, whole=True)
    return obtain_crate(env, scratch, BORINGSSL)


def _fetch(env: Mapping[str, str], source: Source, variable: str, scratch: Path, *, whole: bool) -> Path:
    """Return the verified archive from where the variable says or its own URL, fetched into the cache if need be."""
    named = env.get(variable, "").strip()
    if named and not re.match(r"(?i)(https?|file)://", named):
        path = Path(named).expanduser()
        if path.is_dir():
            path /= source.file
        if not path.is_file():
            raise OpenSSLError(
                f"{variable}={named}: there is no {path}. Set it to {source.file}, to the directory "
                "that holds it, or to a URL, or unset it."
            )
        _verify(path, str(path), source)
        return path

    kept = cache_directory(env) / source.file
    if kept.is_file():
        _verify(kept, str(kept), source)
        return kept
    url = named or source.url
    say(f"fetching {url}" if whole else f"trying {url}")
    fetched = scratch / source.file
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as response:
            if not whole:
                return kept
            with open(fetched, "wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        if named:
            raise OpenSSLError(f"{variable}={named} could not be fetched: {error}") from error
        raise UnavailableError(f"{source.file} could not be fetched from {url}: {error}") from error
    _verify(fetched, url, source)
    os.replace(fetched, kept)
    return kept


def obtain_crate(env: Mapping[str, str], scratch: Path, source: Source) -> Path:
    """Return the verified archive of a crate, which cargo fetches into its own cache if it is not there."""
    home = Path(env.get("CARGO_HOME") or Path(env.get("HOME") or Path.home()) / ".cargo")
    cached = f"registry/cache/*/{source.file}"
    found = next(home.glob(cached), None)
    if found is None:
        cargo = shutil.which(env.get("CARGO", "cargo"), path=env.get("PATH"))
        if cargo is None:
            raise UnavailableError(f"There is no cargo, which could fetch {source.file}.")
        say(f"fetching {source.file} with cargo")
        project = scratch / "crate"
        (project / "src").mkdir(parents=True)
        (project / "src" / "lib.rs").touch()
        (project / "Cargo.toml").write_text(
            f'[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2018"\n[dependencies]\n{source.crate}\n'
        )
        done = subprocess.run(
            [cargo, "fetch", "--quiet"], cwd=project, env=dict(env), capture_output=True, text=True, check=False
        )
        found = next(home.glob(cached), None)
        if done.returncode != 0 or found is None:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
            raise UnavailableError(f"cargo could not fetch {source.file}: {said}")
    _verify(found, str(found), source)
    return found


def say(text: str) -> None:
    """Print what is being done, for a build takes a while."""
    print(f"ags1: {text}", file=sys.stderr, flush=True)
