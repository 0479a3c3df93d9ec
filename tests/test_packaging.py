"""What a stranger gets: the sdist, the wheel, the OpenSSL inside it, the contract for their own Cython."""

from __future__ import annotations

import dataclasses
import email.parser
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import threading
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from buildtools import openssl

openssl_source = sys.modules[openssl.Source.__module__]

ROOT = Path(__file__).resolve().parent.parent
HERE = Path(__file__).resolve().parent / "packaging"


def run(command: Sequence[str | Path], cwd: Path, **environment: str) -> str:
    """Run a command away from the checkout; its output, or a failure that shows it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | environment
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def need(program: str) -> str:
    """Path of a program; without it the test skips, or fails where nothing may skip."""
    found = shutil.which(program)
    if found is None:
        (pytest.fail if os.environ.get("AGS1_NO_SKIP") else pytest.skip)(f"needs {program}, which is not installed")
    return found


# What is built and installed


class Built(NamedTuple):
    """One way through sdist, wheel and install, outside the checkout."""

    sdist: Path
    wheel: Path
    python: Path
    site: Path
    empty: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    out, empty = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("empty")
    # From a copy: setuptools writes its egg-info into the source tree, where others may be building.
    source = tmp_path_factory.mktemp("source") / "ags1"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "*.so", "__pycache__", "target")
    shutil.copytree(ROOT, source, ignore=ignored)
    run([sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, source], empty)
    (sdist,) = out.glob("*.tar.gz")
    shutil.rmtree(source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    # As fast as it is built, not as it runs.
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, sdist], empty, CFLAGS="-O1")
    (wheel,) = out.glob("*.whl")
    home = tmp_path_factory.mktemp("stranger") / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run([*pip, "--python", python, "install", "--no-deps", "--no-index", wheel], empty)
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))"], empty).strip())
    return Built(sdist, wheel, python, site, empty)


@pytest.fixture(scope="module")
def linked() -> openssl.OpenSSL:
    """The OpenSSL that this build of the wheel was linked with."""
    return openssl.choose(build=False)


pytestmark = pytest.mark.timeout(900)


@pytest.mark.slow
class TestWheel:
    def test_round_trip_in_a_fresh_environment(self, built: Built) -> None:
        script = (
            "import ags1\n"
            "key = ags1.Key.generate()\n"
            "data = bytes(range(256)) * 9000\n"
            "stream = ags1.encrypt(data, key, aad_prefix=b'p', threads=2)\n"
            "assert ags1.decrypt(stream, key, aad_prefix=b'p', length=len(stream), threads=2) == data\n"
            "print(ags1.__file__)\n"
        )
        where = run([built.python, "-c", script], built.empty).strip()
        assert Path(where).is_relative_to(built.site)

    def test_console_script(self, built: Built) -> None:
        assert (built.python.parent / "ags1").is_file()

    def test_backend_says_how_it_was_linked(self, built: Built, linked: openssl.OpenSSL) -> None:
        said = json.loads(
            run([built.python, "-c", "import ags1, json; print(json.dumps(ags1.backend()))"], built.empty)
        )
        assert said["linkage"] == linked.linkage
        if linked.static:
            # A shared one may be newer than its headers.
            assert linked.version in said["openssl_version"]

    def test_metadata(self, built: Built) -> None:
        with zipfile.ZipFile(built.wheel) as wheel:
            (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            metadata = email.parser.Parser().parsestr(wheel.read(name).decode())
        assert metadata["Name"] == "ags1"
        assert metadata["License-Expression"] == "Apache-2.0"
        requirements = metadata.get_all("Requires-Dist") or []
        assert [line for line in requirements if "extra ==" not in line] == []
        assert (
            metadata["Version"]
            == run([built.python, "-c", "import ags1; print(ags1.__version__)"], built.empty).strip()
        )

    def test_contents(self, built: Built) -> None:
        with zipfile.ZipFile(built.wheel) as wheel:
            names = set(wheel.namelist())
            size = sum(entry.compress_size for entry in wheel.infolist())
        contract = ROOT / "include" / "ags1"
        for path in sorted(each for each in contract.rglob("*") if each.is_file()):
            assert f"ags1/include/ags1/{path.relative_to(contract).as_posix()}" in names
        for path in (ROOT / "ags1").rglob("*"):
            if path.name == "py.typed" or path.suffix in {".py", ".pyi"}:
                assert path.relative_to(ROOT).as_posix() in names
        for path in (ROOT / "ags1").rglob("_*.pyx"):
            stem = path.relative_to(ROOT).with_suffix("").as_posix()
            assert any(name.startswith(f"{stem}.") and name.endswith(".so") for name in names), stem
        strays = [name for name in names if not name.startswith(("ags1/", "ags1-")) or name.endswith((".c", ".pyx"))]
        assert strays == []
        assert size < 4 << 20, "debug symbols, or more of OpenSSL than AES-GCM needs, got into the wheel"

    def test_get_include(self, built: Built) -> None:
        include = Path(run([built.python, "-c", "import ags1; print(ags1.get_include())"], built.empty).strip())
        assert include == built.site / "ags1" / "include"
        assert (include / "ags1" / "layout.h").is_file()

    def test_no_path_of_the_building_machine(self, built: Built) -> None:
        """Nothing of OpenSSL's build directory, nor of the checkout, is left in a binary."""
        for module in sorted((built.site / "ags1").rglob("*.so")):
            content = module.read_bytes()
            assert b"/build-" not in content
            assert str(ROOT).encode() not in content
            assert str(openssl.cache_directory()).encode() not in content

    def test_no_openssl_symbol_is_exported(self, built: Built) -> None:
        nm = need("nm")
        for module in sorted((built.site / "ags1").rglob("*.so")):
            lines = run([nm, "-D", "--defined-only", module], built.empty).splitlines()
            exported = [line.split()[-1] for line in lines]
            assert exported == [f"PyInit_{module.name.partition('.')[0]}"], module.name

    def test_which_modules_need_a_libcrypto(self, built: Built, linked: openssl.OpenSSL) -> None:
        """Only _gcm may, unless libcrypto is inside it; no other module has an OpenSSL function at all."""
        nm, readelf = need("nm"), need("readelf")
        foreign = re.compile(r"^(EVP|RAND|ERR|CRYPTO|OPENSSL|OpenSSL|OSSL)_")
        for module in sorted((built.site / "ags1").rglob("*.so")):
            needed = re.findall(r"NEEDED.*\[(.*)\]", run([readelf, "-d", module], built.empty))
            crypto = [name for name in needed if name.startswith(("libcrypto", "libssl"))]
            undefined = run([nm, "-D", "--undefined-only", module], built.empty).split()
            functions = [name for name in undefined if foreign.match(name)]
            if module.name.startswith("_gcm.") and not linked.static:
                assert len(crypto) == 1
                assert crypto[0].startswith("libcrypto")
                assert functions
            else:
                assert crypto == [], module.name
                assert functions == [], module.name

    def test_sdist_is_complete(self, built: Built) -> None:
        with tarfile.open(built.sdist) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        for name in (
            "setup.py",
            "pyproject.toml",
            "LICENSE",
            "CHANGELOG.md",
            "README.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "mkdocs.yml",
            "bench/results/throughput.svg",
            "docs/results/results.md",
            "buildtools/openssl.py",
        ):
            assert name in names
        for tree in ("ags1", "bench", "docs", "examples", "include", "tests"):
            for path in (ROOT / tree).rglob("*"):
                wanted = path.suffix in {".py", ".pyi", ".pyx", ".pxd", ".h", ".md"} and "target" not in path.parts
                if wanted:
                    assert path.relative_to(ROOT).as_posix() in names
        assert [name for name in names if name.endswith((".so", ".pyc"))] == []


def cython_module(source: Path, include: Path, target: Path) -> Path:
    """Compile a stranger's Cython module that knows nothing of ags1 but `include`; the directory it is in."""
    target.mkdir()
    shutil.copy(source, target)
    run([sys.executable, "-m", "cython", "-3", f"-I{include}", source.name], target)
    module = target / (source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    flags = ["-shared", "-fPIC", "-O1", f"-I{include}", f"-I{sysconfig.get_path('include')}"]
    run([*compiler, *flags, source.with_suffix(".c").name, "-o", module], target)
    return target


@pytest.mark.slow
class TestStranger:
    def test_layout_from_cython(self, built: Built, tmp_path: Path) -> None:
        include = built.site / "ags1" / "include"
        directory = cython_module(HERE / "stranger.pyx", include, tmp_path / "module")
        script = (
            "import ags1, stranger\n"
            "for block_length in (1, 16, 4096, 1 << 20):\n"
            "    for size in (0, 1, 15, 16, 17, 4096, 10**6, 2**20, 2**20 + 1):\n"
            "        length = stranger.encrypted_length(size, block_length)\n"
            "        assert length == ags1.encrypted_length(size, block_length)\n"
            "        assert stranger.plaintext_length(length, block_length) == size\n"
            "assert stranger.DEFAULT_BLOCK_LENGTH == 1 << 20\n"
            "try:\n"
            "    stranger.encrypted_length(-1)\n"
            "except ValueError:\n"
            "    print('ok')\n"
        )
        assert run([built.python, "-c", script], directory) == "ok\n"


# One process, several OpenSSLs

NEIGHBOURS = ("ags1", "ssl", "cryptography", "pyarrow")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a self-signed certificate for localhost, and its key."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    directory = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    signed = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (directory / "cert.pem").write_bytes(signed.public_bytes(pem))
    (directory / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return directory


# Each is the first of one of these, and before and after each other.
ORDERS = [[NEIGHBOURS[index] for index in order] for order in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1))]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_neighbours_in_one_process(order: list[str], certificate: Path, tmp_path: Path) -> None:
    """Each of these brings or loads an OpenSSL: in whatever order they come, each uses its own and works."""
    script = HERE / "roundtrips.py"
    assert run([sys.executable, "-W", "error", script, certificate, *order], tmp_path) == "ok\n"


# How the build chooses

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
            "PKG_CONFIG": str(root / "no-pkg-config"),
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
    monkeypatch.setattr(openssl_source, "RELEASE_URL", (tmp_path / "nowhere.tar.gz").as_uri())
    need("gcc")
    return Fake(tmp_path)


def write_source(path: Path, top: str, builds: Path) -> Path:
    """An archive that passes for OpenSSL's sources; its build takes a moment and is counted in the file `builds`."""
    configure = f"""
        open(my $log, '>>', '{builds}'); print $log "@ARGV\\n"; close($log);
        sleep 1;
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
    made = dataclasses.replace(getattr(openssl, name), sha256=hashlib.sha256(path.read_bytes()).hexdigest())
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


class TestSystem:
    def test_fast_enough_is_taken_without_a_word(self, machine: Fake) -> None:
        machine.make_system(HEADER_3.format(3, 2, 0))
        chosen = machine.choose()
        assert (chosen.linkage, chosen.version, chosen.warning) == ("system-shared", "3.2.0", "")
        assert chosen.libraries == ("crypto",)
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
        assert str(prefix / "lib" / "libcrypto.a") in " ".join((*chosen.extra_objects, *chosen.extra_link_args))

    def test_shared_is_found_at_run_time(self, machine: Fake) -> None:
        prefix = machine.install(HEADER_3.format(3, 5, 1))
        chosen = machine.choose(str(prefix))
        assert chosen.linkage == "prefix-shared"
        assert chosen.runtime_library_dirs == (str(prefix / "lib"),)

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
        assert Path(first.include_dirs[0], "openssl", "evp.h").is_file()
        assert Path(first.include_dirs[0], "openssl", "configuration.h").is_file()
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
            monkeypatch.setattr(openssl_source, "RELEASE_URL", release.as_uri())
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
        assert Path(chosen.include_dirs[0], "openssl", "evp.h").is_file()
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
        for part in ("could not be fetched from", "cargo could not fetch the crate", "error: no such crate"):
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


def test_the_version_is_stated_once() -> None:
    from ags1._version import version

    assert version not in (ROOT / "pyproject.toml").read_text()
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()
