"""Which OpenSSL a build takes on which machine, and what it says where there is none."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import sys
import tarfile
import threading
from pathlib import Path

import pytest

from buildtools import openssl
from tests.test_packaging import ROOT, need, run

openssl_source = sys.modules[openssl.Source.__module__]

HEADER_3 = """
# define OPENSSL_VERSION_MAJOR  {0}
# define OPENSSL_VERSION_MINOR  {1}
# define OPENSSL_VERSION_PATCH  {2}
"""
HEADER_111 = "# define OPENSSL_VERSION_NUMBER  0x1010117fL\n"


class Fake:
    """A machine with a compiler and the OpenSSL that a test puts there; nothing of the real one's is seen."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(root / "home"),
            "AGS1_CACHE": str(root / "cache"),
            "CARGO": str(root / "no-cargo"),
        }

    def install(self, header: str, *, static: bool = False, shared: bool = True) -> Path:
        """Make a prefix with headers, and a libcrypto with the one function that the probe asks for."""
        prefix = self.root / "prefix"
        include, lib = prefix / "include" / "openssl", prefix / "lib"
        include.mkdir(parents=True)
        lib.mkdir()
        (include / "opensslv.h").write_text(header)
        (include / "evp.h").write_text("void *EVP_CIPHER_CTX_new(void);\n")
        code = lib / "crypto.c"
        code.write_text("void *EVP_CIPHER_CTX_new(void) { return 0; }\n")
        if shared:
            run([need("gcc"), "-shared", "-fPIC", code, "-o", lib / "libcrypto.so"], lib)
        if static:
            run([need("gcc"), "-c", "-fPIC", code, "-o", lib / "crypto.o"], lib)
            run([need("ar"), "rcs", lib / "libcrypto.a", lib / "crypto.o"], lib)
        return prefix

    def make_system(self, header: str, *, shared: bool = True) -> None:
        """Put such an OpenSSL where the compiler looks first without being told."""
        prefix = self.install(header, shared=shared)
        self.env |= {"CPATH": str(prefix / "include"), "LIBRARY_PATH": str(prefix / "lib")}

    def hide_system(self) -> None:
        """Make the compiler find no header at all."""
        self.env["CC"] = f"{need('gcc')} -nostdinc"

    def choose(self, wanted: str = "", source: Path | str = "") -> openssl.OpenSSL:
        return openssl.choose({**self.env, "AGS1_OPENSSL": str(wanted), "AGS1_OPENSSL_SOURCE": str(source)})

    @property
    def cached(self) -> list[Path]:
        return list((self.root / "cache").glob("openssl-*/lib/libcrypto.a"))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    # A release page that nobody reaches.
    monkeypatch.setattr(
        openssl_source,
        "RELEASE",
        dataclasses.replace(openssl_source.RELEASE, url=(tmp_path / "nowhere.tar.gz").as_uri()),
    )
    need("gcc")
    return Fake(tmp_path)


def write_source(path: Path, top: str, builds: Path) -> Path:
    """An archive that passes for OpenSSL's sources; its builds are counted in the file `builds`."""
    configure = f"""
        open(my $log, '>>', '{builds}'); print $log "@ARGV\\n"; close($log);
        mkdir 'include'; mkdir 'include/openssl';
        open(my $header, '>', 'include/openssl/configuration.h'); close($header);
        open(my $make, '>', 'Makefile');
        print $make "build_generated:\\n\\nlibcrypto.a:\\n\\tar rcs libcrypto.a\\n";
    """
    files = {
        "Configure": configure,
        "include/openssl/evp.h": "",
        "LICENSE.txt": "",
        "fuzz/corpora/seed": "skipped",
    }
    path.parent.mkdir(parents=True)
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            member = tarfile.TarInfo(f"{top}/{file}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path


def pretend(monkeypatch: pytest.MonkeyPatch, name: str, path: Path) -> None:
    """Pin the checksum of this archive for that source."""
    made = dataclasses.replace(getattr(openssl_source, name), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(openssl, name, made)
    monkeypatch.setattr(openssl_source, name, made)
    need("perl")
    need("make")


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tarball that passes for the pinned release."""
    path = write_source(tmp_path / "release" / openssl.RELEASE.file, openssl.RELEASE.top, tmp_path / "builds")
    pretend(monkeypatch, "RELEASE", path)
    return path


CARGO = """\
#!/bin/sh
# Fetches what its manifest names from a registry that is a directory.
test "$1" = fetch || exit 2
grep -q 'openssl-src = "=300.5.5"' Cargo.toml || exit 3
mkdir -p "$HOME/.cargo/registry/cache/a-registry"
cp "{crate}" "$HOME/.cargo/registry/cache/a-registry/" || {{ echo "error: no such crate" >&2; exit 101; }}
echo fetch >> "{fetched}"
"""


@pytest.fixture
def crate(machine: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crate that passes for the pinned one, in the registry of the machine's cargo."""
    path = write_source(tmp_path / "registry" / openssl.CRATE.file, openssl.CRATE.top, tmp_path / "builds")
    pretend(monkeypatch, "CRATE", path)
    cargo = tmp_path / "cargo"
    cargo.write_text(CARGO.format(crate=path, fetched=tmp_path / "fetched"))
    cargo.chmod(0o755)
    machine.env["CARGO"] = str(cargo)
    return path


def include_of(chosen: openssl.OpenSSL) -> str:
    (flag,) = chosen.compile_args
    return flag.removeprefix("-I")


class TestSystem:
    def test_fast_enough_is_taken_without_a_word(self, machine: Fake) -> None:
        machine.make_system(HEADER_3.format(3, 2, 0))
        chosen = machine.choose()
        assert (chosen.linkage, chosen.version, chosen.warning) == ("system-shared", "3.2.0", "")
        assert chosen.link_args == ("-lcrypto",)
        assert dict(chosen.define_macros) == {"AGS1_OPENSSL_LINKAGE": '"system-shared"', "AGS1_OPENSSL_REMEDY": '""'}

    def test_slow_is_taken_with_a_warning_when_no_release_is_reachable(self, machine: Fake) -> None:
        machine.make_system(HEADER_3.format(3, 0, 19))
        chosen = machine.choose()
        assert (chosen.linkage, chosen.version) == ("system-shared", "3.0.19")
        for part in (
            "OpenSSL 3.0.19",
            "2.6 times slower",
            "could not be fetched",
            "AGS1_OPENSSL_SOURCE",
            "3.2",
        ):
            assert part in chosen.warning

    def test_slow_by_request(self, machine: Fake, capsys: pytest.CaptureFixture[str]) -> None:
        machine.make_system(HEADER_3.format(3, 0, 2))
        chosen = machine.choose("system")
        assert "2.6 times slower" in chosen.warning
        assert "AGS1_OPENSSL=system asks for it" in chosen.warning
        openssl.warn(chosen)
        assert "WARNING: ags1 is being linked with OpenSSL 3.0.2" in capsys.readouterr().err

    def test_too_old(self, machine: Fake) -> None:
        machine.make_system(HEADER_111)
        with pytest.raises(openssl.OpenSSLError, match=r"OpenSSL 1\.1\.1: too old\. ags1 needs 3\.0"):
            machine.choose("system")

    def test_too_old_and_nothing_else(self, machine: Fake) -> None:
        machine.make_system(HEADER_111)
        with pytest.raises(openssl.OpenSSLError, match=r"(?s)no usable OpenSSL.*too old.*could not be fetched"):
            machine.choose()

    @pytest.mark.parametrize(
        ("macro", "name"),
        [("LIBRESSL_VERSION_NUMBER 0x3090000fL", "LibreSSL"), ("OPENSSL_IS_BORINGSSL", "BoringSSL")],
    )
    def test_another_library(self, machine: Fake, macro: str, name: str) -> None:
        machine.make_system(f"#define {macro}\n" + HEADER_3.format(3, 5, 0))
        with pytest.raises(openssl.OpenSSLError, match=name):
            machine.choose("system")

    def test_headers_without_a_library(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 5, 0), shared=False)
        (prefix / "include" / "openssl" / "evp.h").write_text("#define EVP_CIPHER_CTX_new nobody_has_this\n")
        machine.env["CPATH"] = str(prefix / "include")
        with pytest.raises(openssl.OpenSSLError, match=r"headers of OpenSSL 3\.5\.0, but linking libcrypto fails"):
            machine.choose("system")

    @pytest.mark.parametrize("wanted", ["", "system"])
    def test_missing(self, machine: Fake, wanted: str) -> None:
        machine.hide_system()
        with pytest.raises(openssl.OpenSSLError) as caught:
            machine.choose(wanted)
        for part in (
            "no OpenSSL headers",
            "apt-get install libssl-dev",
            "AGS1_OPENSSL_SOURCE",
            openssl.RELEASE.file,
        ):
            assert part in str(caught.value)

    def test_no_compiler(self, machine: Fake) -> None:
        machine.env["CC"] = "no-such-compiler"
        with pytest.raises(openssl.OpenSSLError, match=r"no C compiler: 'no-such-compiler'.*build-essential"):
            machine.choose()


class TestPrefix:
    def test_static_is_preferred(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 5, 1), static=True)
        chosen = machine.choose(str(prefix))
        assert (chosen.linkage, chosen.version, chosen.warning) == ("prefix-static", "3.5.1", "")
        assert str(prefix / "lib" / "libcrypto.a") in " ".join(chosen.link_args)

    def test_shared_is_found_at_run_time(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 5, 1))
        chosen = machine.choose(str(prefix))
        assert chosen.linkage == "prefix-shared"
        assert f"-Wl,-rpath,{prefix / 'lib'}" in chosen.link_args

    def test_slow(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 0, 0), static=True)
        assert "2.6 times slower" in machine.choose(str(prefix)).warning

    def test_too_old(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_111)
        with pytest.raises(openssl.OpenSSLError, match=rf"AGS1_OPENSSL={prefix} is OpenSSL 1\.1\.1: too old"):
            machine.choose(str(prefix))

    def test_no_library(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 5, 0), shared=False)
        with pytest.raises(openssl.OpenSSLError, match=r"neither libcrypto\.a nor a shared libcrypto"):
            machine.choose(str(prefix))

    def test_no_headers(self, machine: Fake, tmp_path: Path) -> None:
        with pytest.raises(openssl.OpenSSLError, match=r"there is no .*opensslv\.h"):
            machine.choose(str(tmp_path))

    def test_a_word_that_is_no_path(self, machine: Fake) -> None:
        with pytest.raises(openssl.OpenSSLError, match="neither 'system', nor 'bundled', nor the absolute path"):
            machine.choose("Bundled")


class TestBundled:
    @pytest.mark.parametrize("form", ["file", "directory", "url"])
    def test_bad_checksum(self, machine: Fake, tmp_path: Path, form: str) -> None:
        need("perl")
        machine.make_system(HEADER_3.format(3, 0, 19))
        tarball = tmp_path / "bad" / openssl.RELEASE.file
        tarball.parent.mkdir()
        tarball.write_bytes(b"not what was released")
        source = {"file": tarball, "directory": tarball.parent, "url": tarball.as_uri()}[form]
        for wanted in ("", "bundled"):
            with pytest.raises(openssl.OpenSSLError, match="checksum mismatch") as caught:
                machine.choose(wanted, source)
            # What was asked for by name and is wrong must not end in something else with a warning.
            assert not isinstance(caught.value, openssl.UnavailableError)
        assert openssl.RELEASE.sha256 in str(caught.value)
        assert machine.cached == []
        assert list((tmp_path / "cache").glob("*.tar.gz")) == []

    @pytest.mark.parametrize("source", ["missing.tar.gz", "."])
    def test_source_that_is_not_there(self, machine: Fake, tmp_path: Path, source: str) -> None:
        with pytest.raises(openssl.OpenSSLError, match=r"AGS1_OPENSSL_SOURCE=.*there is no"):
            machine.choose("bundled", tmp_path / source)

    def test_url_that_is_not_there(self, machine: Fake, tmp_path: Path) -> None:
        with pytest.raises(openssl.OpenSSLError, match="could not be fetched"):
            machine.choose("bundled", (tmp_path / "missing.tar.gz").as_uri())

    def test_no_build_tools(self, machine: Fake, tmp_path: Path) -> None:
        machine.make_system(HEADER_3.format(3, 0, 19))
        tools = tmp_path / "tools"
        tools.mkdir()
        for name in ("gcc", "as", "ld"):
            (tools / name).symlink_to(need(name))
        machine.env |= {"PATH": str(tools), "CC": "gcc"}
        with pytest.raises(openssl.UnavailableError, match="no perl and no make"):
            machine.choose("bundled")
        chosen = machine.choose()
        assert "no perl and no make" in chosen.warning
        assert "apt-get install perl make" in chosen.remedy

    @pytest.mark.parametrize("form", ["file", "directory", "url"])
    def test_built_once_then_cached(self, machine: Fake, release: Path, tmp_path: Path, form: str) -> None:
        source = {"file": release, "directory": release.parent, "url": release.as_uri()}[form]
        machine.make_system(HEADER_3.format(3, 0, 19))
        first = machine.choose("", source)
        assert (first.linkage, first.version, first.warning) == ("bundled-static", openssl.PINNED, "")
        assert {"evp.h", "configuration.h"} <= set(os.listdir(Path(include_of(first), "openssl")))
        (archive,) = machine.cached
        assert first.archives == [str(archive)] or sys.platform == "darwin"
        release.unlink()
        assert machine.choose() == first
        assert len((tmp_path / "builds").read_text().splitlines()) == 1
        assert len(machine.cached) == 1
        assert list((tmp_path / "cache").glob("build-*")) == []

    def test_two_builds_at_once(self, machine: Fake, release: Path, tmp_path: Path) -> None:
        results: list[openssl.OpenSSL] = []
        threads = [
            threading.Thread(target=lambda: results.append(machine.choose("bundled", release))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 3
        assert len(set(results)) == 1
        assert len((tmp_path / "builds").read_text().splitlines()) == 1

    def test_another_compiler_is_another_build(self, machine: Fake, release: Path, tmp_path: Path) -> None:
        first = machine.choose("bundled", release)
        machine.env["CC"] = "gcc -O1"
        assert machine.choose("bundled", release) != first
        assert len((tmp_path / "builds").read_text().splitlines()) == 2

    def test_failing_build_says_why_and_leaves_nothing(
        self, machine: Fake, release: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(openssl, "_cpus", lambda: "not-a-number")
        with pytest.raises(openssl.OpenSSLError, match=r"(?s)failed: make.*log is.*AGS1_OPENSSL=system"):
            machine.choose("bundled", release)
        assert machine.cached == []

    @pytest.mark.parametrize("form", ["named", "page"])
    def test_looking_builds_nothing(
        self, machine: Fake, release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
    ) -> None:
        environment = {**machine.env, "AGS1_OPENSSL": "bundled"}
        if form == "named":
            environment["AGS1_OPENSSL_SOURCE"] = str(release)
        else:
            monkeypatch.setattr(
                openssl_source, "RELEASE", dataclasses.replace(openssl_source.RELEASE, url=release.as_uri())
            )
        assert openssl.choose(environment, build=False).linkage == "bundled-static"
        assert not (tmp_path / "builds").exists()

    def test_looking_says_what_a_build_would_do_where_nothing_is_reached(self, machine: Fake) -> None:
        need("perl")
        machine.make_system(HEADER_3.format(3, 0, 19))
        looked = openssl.choose(machine.env, build=False)
        assert looked == machine.choose()
        assert (looked.linkage, looked.version) == ("system-shared", "3.0.19")

    def test_without_the_release_page_the_sources_come_from_cargo_once(
        self, machine: Fake, crate: Path, tmp_path: Path
    ) -> None:
        machine.make_system(HEADER_3.format(3, 0, 19))
        looked = openssl.choose(machine.env, build=False)
        assert not (tmp_path / "builds").exists()
        chosen = machine.choose()
        assert chosen == looked
        assert (chosen.linkage, chosen.version, chosen.warning) == ("bundled-static", openssl.CRATE.version, "")
        assert Path(include_of(chosen), "openssl", "evp.h").is_file()
        crate.unlink()
        assert machine.choose() == chosen
        assert (tmp_path / "fetched").read_text() == "fetch\n"
        assert len((tmp_path / "builds").read_text().splitlines()) == 1

    def test_a_damaged_crate_is_not_built(self, machine: Fake, crate: Path) -> None:
        machine.make_system(HEADER_3.format(3, 0, 19))
        crate.write_bytes(b"not what was published")
        with pytest.raises(openssl.OpenSSLError, match=r"checksum mismatch: .*\.crate"):
            machine.choose()
        assert machine.cached == []

    def test_where_cargo_reaches_nothing_either_both_are_said_and_what_to_do(self, machine: Fake, crate: Path) -> None:
        machine.make_system(HEADER_3.format(3, 0, 19))
        crate.unlink()
        chosen = machine.choose()
        assert chosen.linkage == "system-shared"
        for part in ("could not be fetched from", "cargo could not fetch", "error: no such crate"):
            assert part in chosen.warning
        assert "AGS1_OPENSSL_SOURCE" in chosen.remedy
        assert chosen.remedy in chosen.warning
        assert dict(chosen.define_macros)["AGS1_OPENSSL_REMEDY"] == json.dumps(chosen.remedy)

    def test_a_source_that_is_named_is_not_replaced_by_the_crate(
        self, machine: Fake, crate: Path, tmp_path: Path
    ) -> None:
        with pytest.raises(openssl.OpenSSLError, match=r"AGS1_OPENSSL_SOURCE=.*there is no"):
            machine.choose("bundled", tmp_path / "missing.tar.gz")

    def test_where_the_cache_is(self) -> None:
        home = {"HOME": "/home/someone"}
        assert openssl.cache_directory(home) == Path("/home/someone/.cache/ags1")
        assert openssl.cache_directory({**home, "XDG_CACHE_HOME": "relative"}) == Path("/home/someone/.cache/ags1")
        assert openssl.cache_directory({**home, "XDG_CACHE_HOME": "/var/c"}) == Path("/var/c/ags1")
        assert openssl.cache_directory({**home, "XDG_CACHE_HOME": "/c", "AGS1_CACHE": "/mine"}) == Path("/mine")


def test_as_a_program(tmp_path: Path) -> None:
    """It prints what would be chosen here."""
    said = run([sys.executable, ROOT / "buildtools" / "openssl.py"], tmp_path)
    assert re.search(r"^linkage +(bundled-static|system-shared|prefix-(static|shared))$", said, re.MULTILINE)
