"""What a stranger gets: the sdist, the wheel, the OpenSSL inside it, the contract for their own Cython."""

from __future__ import annotations

import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from buildtools import openssl
from buildtools.requirements import requirements

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


def with_the_modules_of_the_checkout(tree: Path) -> None:
    """Let a build of this tree find the checkout's modules, where they are up to date, and compile nothing.

    `make wheels`, which the nightly run has, compiles all of an sdist.
    """
    if not (ROOT / "build/flags.json").is_file():
        return
    # In the order of their ages: what is newer is made of what is older.
    (tree / "build").mkdir()
    shutil.copyfile(ROOT / "build/flags.json", tree / "build/flags.json")
    shutil.copytree(ROOT / "build/cython", tree / "build/cython", copy_function=shutil.copyfile)
    modules = tree / f"build/lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"
    for path in (ROOT / "ags1").rglob("*.so"):
        target = modules / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


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
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (tree,) = unpacked.iterdir()
    with_the_modules_of_the_checkout(tree)
    run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, tree], empty)
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

    def test_the_list_of_contents_names_the_openssl_inside(self, built: Built, linked: openssl.OpenSSL) -> None:
        """PEP 770: a scanner of an installed ags1 finds the libcrypto that no other file shows."""
        (path,) = built.site.glob("ags1-*.dist-info/sboms/*")
        assert path.name == "ags1.cdx.json"
        found = json.loads(path.read_text())
        assert (found["bomFormat"], found["specVersion"], found["version"]) == ("CycloneDX", "1.6", 1)
        subject, (libcrypto, *others) = found["metadata"]["component"], found["components"]
        # Where its sources were there.
        assert [each["name"] for each in others] in ([], ["boringssl"])
        assert subject["purl"] == f"pkg:pypi/ags1@{subject['version']}"
        assert built.wheel.name.startswith(f"ags1-{subject['version']}-")
        assert (libcrypto["name"], libcrypto["version"]) == ("openssl", linked.version)
        assert libcrypto["licenses"] == [{"license": {"id": "Apache-2.0"}}]
        assert f":openssl:{linked.version}:" in libcrypto["cpe"]
        if linked.source is not None:
            (origin,) = libcrypto["externalReferences"]
            assert origin["url"] == linked.source.url
            assert origin["hashes"] == [{"alg": "SHA-256", "content": linked.source.sha256}]
        assert ("scope" in libcrypto) == (not linked.static)
        references = {each["bom-ref"] for each in (subject, libcrypto, *others)}
        assert {each["ref"] for each in found["dependencies"]} == references
        # Two builds say the same: nothing of when, and no number by chance.
        assert not {"serialNumber"} & set(found)
        assert "timestamp" not in found["metadata"]

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
        assert (include / "ags1" / "core" / "layout.h").is_file()

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


def test_the_version_is_stated_once() -> None:
    from ags1.version import version

    assert version not in (ROOT / "pyproject.toml").read_text()
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_requirements_of_an_extra_are_also_those_of_the_extras_that_it_names() -> None:
    assert {"s3fs", "obstore"} <= {re.split(r"[\[<>=]", each)[0] for each in requirements(["s3"])}
    assert not [each for each in requirements(["all", "test"]) if each.startswith("ags1")]
