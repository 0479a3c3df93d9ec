"""Build the extension modules; everything else about the package is in pyproject.toml."""

from __future__ import annotations

import atexit
import hashlib
import importlib.metadata
import json
import os
import shlex
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel as _bdist_wheel
from setuptools.command.build_ext import build_ext as _build_ext
from setuptools.command.build_py import build_py as _build_py
from setuptools.errors import PlatformError
from setuptools.modified import newer_group

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "buildtools"))

import boringssl  # noqa: E402
import hardening  # noqa: E402
import openssl  # noqa: E402
import sbom  # noqa: E402

INCLUDE = Path("include", "ags1")
GENERATED = Path("build", "cython")
LINKS_OPENSSL = "ags1.core.gcm"
"""The one module that links OpenSSL; the others reach it by cimport, so there is one copy of its state."""
LINKS_BORINGSSL = "ags1.core.boringssl"
"""The module that may be left out; the one above takes AES-GCM from it where that is faster."""

CALLED_SELDOM = frozenset(
    f"ags1.core.{name}" for name in ("ahead", "arena", "descriptors", "gathered", "layout", "offsets")
)
"""Modules that prepare work and have no loop over small things: with -O1 they take half the time to compile."""
LOOPS_OVER_PAGES = "ags1.parquet.native."
"""Modules that take 1.5 % more instructions for small pages without -O3, which compiles a third longer than -O2."""

DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
    # Signatures and docs for tools come from the .pyi beside each module.
    "embedsignature": False,
    "binding": True,
    # Slots of each module: importing one on a free-threaded CPython enables the GIL, and a subinterpreter refuses it.
    # CONTRIBUTING.md lists what is shared, and what a change of these needs.
    "freethreading_compatible": False,
    "subinterpreters_compatible": "no",
    # Nothing native is picklable, and the support for it would import pickle.
    "auto_pickle": False,
}


def digest_of_headers() -> str:
    """Hash of what every extension module is rebuilt for when it changes."""
    found = sorted(
        path for top in ("ags1", "include") for path in Path(top).rglob("*") if path.suffix in {".pxd", ".h"}
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in found)).hexdigest()


def flags() -> tuple[list[str], list[str]]:
    """Return the arguments of compiler and linker that all modules share."""
    compile_args = ["-O2", "-pthread", "-fvisibility=hidden", "-Wno-unused-function"]
    link_args = ["-pthread"]
    sanitize = os.environ.get("AGS1_SANITIZE", "")
    if sanitize:
        extra = [f"-fsanitize={sanitize}", "-g", "-fno-omit-frame-pointer"]
        return [*compile_args, *extra, "-O1", "-fno-sanitize-recover=all"], [*link_args, *extra]
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    compile_args += hardening.compile_args(compiler)
    link_args += hardening.link_args(compiler)
    if os.environ.get("AGS1_DEBUG"):
        return [*compile_args, "-g"], link_args
    strip = ["-Wl,-S,-x"] if sys.platform == "darwin" else ["-Wl,-s"]
    return [*compile_args, "-g0"], [*link_args, *strip]


class build_ext(_build_ext):
    """Choose OpenSSL and run Cython when modules are really built, so that metadata alone needs neither."""

    chosen: openssl.OpenSSL | None = None
    second: boringssl.BoringSSL | None = None

    def finalize_options(self) -> None:
        """Build modules in parallel unless told otherwise."""
        super().finalize_options()
        if self.parallel is None:
            self.parallel = os.cpu_count() or 1

    def run(self) -> None:
        """Configure the extensions, then build them."""
        if self.editable_mode:
            # An editable install would build everything again in a temporary directory; this is where
            # build_ext --inplace builds.
            platform = f"{self.plat_name}-{sys.implementation.cache_tag}"
            self.build_temp = os.path.join("build", f"temp.{platform}")
            self.build_lib = os.path.join("build", f"lib.{platform}")
        self._configure()
        super().run()

    def build_extensions(self) -> None:
        """Build them with no directory of the builder in them but that of a shared libcrypto."""
        self.compiler.linker_so, needed = hardening.without_runpath(self.compiler.linker_so)
        for extension in self.extensions:
            if extension.name == LINKS_OPENSSL and self.chosen is not None and not self.chosen.static:
                extension.extra_link_args += needed
        super().build_extensions()

    def build_extension(self, ext: Extension) -> None:
        """Say which module is compiled, for that takes minutes in all."""
        inputs = [*ext.sources, *ext.depends]
        if self.force or newer_group(inputs, self.get_ext_fullpath(ext.name), "newer"):
            openssl.say(f"compiling {ext.name}")
        super().build_extension(ext)

    def _configure(self) -> None:
        from Cython.Build import cythonize

        compile_args, link_args = flags()
        state: dict[str, object] = {"compile": compile_args, "link": link_args, "directives": DIRECTIVES}
        state["headers"] = digest_of_headers()
        try:
            self.chosen = chosen = openssl.choose()
            self.second = second = boringssl.choose()
        except openssl.OpenSSLError as error:
            # The message says what to do; a traceback would bury it.
            raise PlatformError(str(error)) from None
        # At the end of the output, where it is read. pip shows none of it: `ags1 info` says the same.
        atexit.register(openssl.warn, chosen)
        state["libraries"] = repr((chosen, second))
        if second is None:
            self.extensions = [extension for extension in self.extensions if extension.name != LINKS_BORINGSSL]
            # One of a build before would be used.
            Path(self.get_ext_fullpath(LINKS_BORINGSSL)).unlink(missing_ok=True)
        for extension in self.extensions:
            extension.extra_compile_args = list(compile_args)
            if extension.name in CALLED_SELDOM:
                extension.extra_compile_args.append("-O1")
            elif extension.name.startswith(LOOPS_OVER_PAGES):
                extension.extra_compile_args.append("-O3")
            extension.extra_link_args = list(link_args)
            if extension.name == LINKS_OPENSSL:
                extension.extra_compile_args += chosen.compile_args
                extension.extra_link_args += chosen.link_args
                extension.define_macros += chosen.define_macros
                extension.depends += chosen.archives
            elif extension.name == LINKS_BORINGSSL and second is not None:
                extension.extra_compile_args += second.compile_args
                extension.extra_link_args += second.link_args
                extension.depends += second.objects
        # Cython and setuptools look at the age of files, not at flags, and Cython for a module's own .pxd only beside
        # its .pyx: so flags and headers are in a file.
        stamp = Path("build", "flags.json")
        text = json.dumps(state, indent=1, sort_keys=True)
        changed = not stamp.is_file() or stamp.read_text() != text
        if changed:
            stamp.parent.mkdir(exist_ok=True)
            stamp.write_text(text)
        generated = cythonize(
            [Extension(extension.name, list(extension.sources)) for extension in self.extensions],
            include_path=["include"],
            build_dir=str(GENERATED),
            force=changed,
            nthreads=self.parallel,
            compiler_directives=DIRECTIVES,
        )
        for extension, done in zip(self.extensions, generated, strict=True):
            extension.sources = done.sources
            extension.depends.append(str(stamp))
        # The longest first, so that all processors end at about the same time.
        self.extensions.sort(key=lambda extension: -Path(extension.sources[0]).stat().st_size)


class build_py(_build_py):
    """Add the C and Cython contract to the package as ``ags1/include``, where `ags1.get_include` finds it."""

    def _include_files(self) -> dict[str, str]:
        target = Path(self.build_lib, "ags1", "include", "ags1")
        files = sorted(path for path in INCLUDE.rglob("*") if path.suffix in {".pxd", ".h"})
        return {str(target / path.relative_to(INCLUDE)): str(path) for path in files}

    def run(self) -> None:
        """Copy the modules, then the include files; an editable install uses those of the checkout."""
        super().run()
        if not self.editable_mode:
            for target, source in self._include_files().items():
                self.mkpath(os.path.dirname(target))
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Name the include files among the outputs, so that installers know of them."""
        outputs = super().get_outputs(include_bytecode)
        return outputs if self.editable_mode else [*outputs, *self._include_files()]


class bdist_wheel(_bdist_wheel):
    """Add the list of what is inside the wheel: ``.dist-info/sboms``, as PEP 770 has it."""

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        """Write the list, and WHEEL; an editable install, which builds nothing for the wheel, has no list."""
        super().write_wheelfile(wheelfile_base, *arguments)
        built = self.get_finalized_command("build_ext")
        if built.chosen is not None:
            directory = Path(wheelfile_base, "sboms")
            self.mkpath(str(directory))
            tools = {"cython": importlib.metadata.version("cython")}
            text = sbom.document(self.distribution.get_version(), built.chosen, built.second, tools)
            (directory / sbom.NAME).write_text(text)


setup(
    ext_modules=[
        Extension(".".join(path.with_suffix("").parts), [str(path)], include_dirs=["include"])
        for path in sorted(Path("ags1").rglob("*.pyx"))
    ],
    cmdclass={"bdist_wheel": bdist_wheel, "build_ext": build_ext, "build_py": build_py},
)
