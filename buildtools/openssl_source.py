"""Get the pinned sources of OpenSSL: the release, or the same from cargo's registry; each is held to its SHA-256.

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
    """The pinned sources of one release: a gzipped tar `file` from `url`, with Configure in its directory `top`."""

    version: str
    file: str
    sha256: str
    top: str
    url: str


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


def _crate_source(crate: str, version: str, sha256: str) -> Source:
    name = f"openssl-src-{crate}+{version}"
    # cargo knows where; a package URL names it.
    return Source(version, f"{name}.crate", sha256, f"{name}/openssl", f"pkg:cargo/openssl-src@{crate}%2B{version}")


CRATE = _crate_source("300.5.5", "3.5.5", "3f1787d533e03597a7934fd0a765f0d28e94ecc5fb7789f8053b1e699a56f709")
"""The newest of the series that cargo's registry has: for machines that do not reach the release page."""

NEWER = _crate_source("400.0.2", "4.0.3", "d2093956673b8dbda85c87fa4fb78e70698ce6c5978a2837d1613f661d3bef76")
"""The series after the pinned one: the benchmarks run the same C loop on it."""

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
    named = env.get("AGS1_OPENSSL_SOURCE", "").strip()
    try:
        return RELEASE, _release(env, named, scratch, whole=whole)
    except UnavailableError as no_release:
        try:
            return CRATE, obtain_crate(env, scratch, CRATE)
        except UnavailableError as no_crate:
            raise UnavailableError(f"{no_release}\n{no_crate}") from no_release


def _release(env: Mapping[str, str], named: str, scratch: Path, *, whole: bool) -> Path:
    """Return the verified release tarball, fetched into the cache if it has to be."""
    if named and not re.match(r"(?i)(https?|file)://", named):
        path = Path(named).expanduser()
        if path.is_dir():
            path /= RELEASE.file
        if not path.is_file():
            raise OpenSSLError(
                f"AGS1_OPENSSL_SOURCE={named}: there is no {path}. Set it to {RELEASE.file}, to the directory "
                "that holds it, or to a URL, or unset it."
            )
        _verify(path, str(path), RELEASE)
        return path

    kept = cache_directory(env) / RELEASE.file
    if kept.is_file():
        _verify(kept, str(kept), RELEASE)
        return kept
    url = named or RELEASE_URL
    say(f"fetching {url}" if whole else f"trying {url}")
    fetched = scratch / RELEASE.file
    try:
        with urllib.request.urlopen(url, timeout=DOWNLOAD_TIMEOUT) as response:
            if not whole:
                return kept
            with open(fetched, "wb") as file:
                shutil.copyfileobj(response, file, 1 << 20)
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        if named:
            raise OpenSSLError(f"AGS1_OPENSSL_SOURCE={named} could not be fetched: {error}") from error
        raise UnavailableError(f"the source of OpenSSL {PINNED} could not be fetched from {url}: {error}") from error
    _verify(fetched, url, RELEASE)
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
            raise UnavailableError("There is no cargo, which could fetch the same.")
        say(f"fetching {source.file} with cargo")
        project = scratch / "crate"
        crate = source.file.removeprefix("openssl-src-").partition("+")[0]
        (project / "src").mkdir(parents=True)
        (project / "src" / "lib.rs").touch()
        (project / "Cargo.toml").write_text(
            '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2018"\n'
            f'[dependencies]\nopenssl-src = "={crate}"\n'
        )
        done = subprocess.run(
            [cargo, "fetch", "--quiet"], cwd=project, env=dict(env), capture_output=True, text=True, check=False
        )
        found = next(home.glob(cached), None)
        if done.returncode != 0 or found is None:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
            raise UnavailableError(f"cargo could not fetch the crate {source.file} either: {said}")
    _verify(found, str(found), source)
    return found


def say(text: str) -> None:
    """Print what is being done, for a build takes a while."""
    print(f"ags1: {text}", file=sys.stderr, flush=True)
