"""What the native modules are protected by, read from the modules themselves; and the libcrypto that they may use."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ags1
from buildtools import hardening, sealed

MODULES = sorted(Path(ags1.__file__).parent.rglob("*.so"))
ELF = pytest.mark.skipif(sys.platform != "linux" or not MODULES, reason="needs ELF modules")
EXECUTABLE = 1
LOAD, DYNAMIC, STACK, RELRO = 1, 2, 0x6474E551, 0x6474E552
NEEDED, STRTAB, SYMTAB, RPATH, BIND_NOW, RUNPATH, FLAGS, FLAGS_1 = 1, 5, 6, 15, 24, 29, 30, 0x6FFFFFFB
IS_X86 = platform.machine() == "x86_64"
ENDBR64 = b"\xf3\x0f\x1e\xfa"


class Elf:
    """As much of a 64-bit little-endian ELF file as is asked about here."""

    def __init__(self, path: Path) -> None:
        self.data = path.read_bytes()
        assert self.data[:6] == b"\x7fELF\x02\x01", f"{path} is no 64-bit little-endian ELF file"
        (table,), (size, count) = struct.unpack_from("<Q", self.data, 32), struct.unpack_from("<HH", self.data, 54)
        # Type, flags, offset, address, (physical address), size in the file.
        self.segments = [struct.unpack_from("<IIQQQQ", self.data, table + size * at) for at in range(count)]
        ((at, length),) = [(each[2], each[5]) for each in self.segments if each[0] == DYNAMIC]
        self.dynamic = [struct.unpack_from("<QQ", self.data, at + step) for step in range(0, length, 16)]

    def offset(self, address: int) -> int:
        return next(
            address - each[3] + each[2]
            for each in self.segments
            if each[0] == LOAD and 0 <= address - each[3] < each[5]
        )

    def value(self, tag: int) -> int:
        return dict(self.dynamic).get(tag, 0)

    def text(self, name: int) -> str:
        """A name of the dynamic section."""
        at = self.offset(self.value(STRTAB)) + name
        return self.data[at : self.data.index(b"\0", at)].decode()

    def symbols(self) -> Iterator[tuple[str, int]]:
        """Names and addresses of the dynamic symbols, whose table ends where their names begin."""
        names, at = self.offset(self.value(STRTAB)), self.offset(self.value(SYMTAB))
        for entry in range(at, names, 24):
            name, _, address = struct.unpack_from("<IIQ", self.data, entry)
            end = self.data.index(b"\0", names + name)
            yield self.data[names + name : end].decode(), address


@ELF
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name.partition(".")[0])
def test_every_module_is_linked_against_being_overwritten(path: Path) -> None:
    elf = Elf(path)
    kinds = {each[0]: each[1] for each in elf.segments}
    assert RELRO in kinds, "the linker was not told -z relro"
    assert elf.value(BIND_NOW) or elf.value(FLAGS) & 8 or elf.value(FLAGS_1) & 1, "the linker was not told -z now"
    assert STACK in kinds
    assert not kinds[STACK] & EXECUTABLE, "the stack is executable"


@ELF
@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name.partition(".")[0])
def test_no_module_looks_for_libraries_where_the_builder_had_some(path: Path) -> None:
    elf = Elf(path)
    if path.name.startswith("gcm.") and "shared" in ags1.backend()["linkage"]:
        pytest.skip("a shared libcrypto of a prefix is found by the path of that")
    assert not elf.value(RPATH)
    assert not elf.value(RUNPATH)


@ELF
def test_boringssl_needs_no_c_plus_plus_shows_no_symbol_and_keeps_nothing_of_a_thread() -> None:
    paths = [each for each in MODULES if each.name.startswith("boringssl.")]
    if not paths:
        pytest.skip("this ags1 was built without BoringSSL")
    elf = Elf(paths[0])
    needed = [elf.text(value) for tag, value in elf.dynamic if tag == NEEDED]
    assert not [name for name in needed if "c++" in name or "gcc" in name]
    symbols = dict(elf.symbols())
    assert [name for name, address in symbols.items() if address] == ["PyInit_boringssl"]
    # Of others it takes nothing but Python's and the C library's.
    assert not [name for name in symbols if name.startswith(("EVP_", "OPENSSL_", "CRYPTO_", "AES_", "aes_"))]
    # A thread-local with a destructor would take a mutex when its thread ends.
    assert not symbols.keys() & {"pthread_key_create", "pthread_setspecific", "__tls_get_addr"}
    assert str(Path.home()).encode() not in elf.data


@ELF
def test_the_module_with_libcrypto_is_compiled_with_guards() -> None:
    (path,) = [each for each in MODULES if each.name.startswith("gcm.")]
    elf = Elf(path)
    symbols = dict(elf.symbols())
    assert "__stack_chk_fail" in symbols, "no stack protector"
    # Where a wheel was installed there may be no compiler; those of wheels know this flag.
    flags = hardening.compile_args(["gcc"]) if shutil.which("gcc") else ["-fcf-protection=full"] * IS_X86
    assert "-D_FORTIFY_SOURCE=3" in flags or not shutil.which("gcc")
    # Other C libraries, musl, have no functions that check.
    if "static" in ags1.backend()["linkage"] and platform.libc_ver()[0] == "glibc":
        assert any(name.startswith("__mem") and name.endswith("_chk") for name in symbols), "nothing is fortified"
    if "-fcf-protection=full" in flags:
        start = elf.offset(symbols["PyInit_gcm"])
        assert elf.data[start : start + 4] == ENDBR64, "no indirect branch tracking"


# -- what the build adds -------------------------------------------------------------------------------------


def test_a_compiler_that_knows_nothing_gets_nothing(tmp_path: Path) -> None:
    old = tmp_path / "old-cc"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    assert hardening.compile_args([str(old)]) == ["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]
    assert hardening.link_args([str(old)]) == []


def test_directories_of_the_builder_are_dropped_unless_libcrypto_is_there(tmp_path: Path) -> None:
    (tmp_path / "libcrypto.so").touch()
    command = ["gcc", "-shared", "-L/python/lib", "-Wl,-rpath,/python/lib", "-Wl,-rpath=/x", "-Wl,-rpath-link,/y"]
    kept = ["gcc", "-shared", "-L/python/lib", "-Wl,-rpath-link,/y"]
    assert hardening.without_runpath(command) == (kept, [])
    needed = f"-Wl,-rpath,{tmp_path}"
    assert hardening.without_runpath([*command, needed, needed]) == (kept, [needed])


# -- the cache -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["content", "more", "fewer", "renamed", "digest", "nothing"])
def test_a_cached_library_is_used_only_as_it_was_built(change: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    (place / "lib").mkdir(parents=True)
    archive = place / "lib" / "libcrypto.a"
    archive.write_bytes(b"archive")
    (place / "LICENSE.txt").write_text("license")
    assert not sealed.is_sealed(place)
    sealed.seal(place)
    assert sealed.is_sealed(place)
    if change == "content":
        archive.write_bytes(b"archivE")
    elif change == "more":
        (place / "lib" / "more").touch()
    elif change == "fewer":
        (place / "LICENSE.txt").unlink()
    elif change == "renamed":
        archive.rename(place / "lib" / "libcrypto.b")
    elif change == "digest":
        (place / sealed.DIGEST).unlink()
    assert sealed.is_sealed(place) is (change == "nothing")


def test_the_cache_is_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        wide = tmp_path / "wide"
        wide.mkdir(mode=0o777)
        for path in (wide, tmp_path / "parent" / "new"):
            assert sealed.private_directory(path) == path
            assert path.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give a directory away")
def test_a_cache_of_somebody_else_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, 12345)
    assert sealed.private_directory(theirs) == theirs
    theirs.chmod(0o777)
    with pytest.raises(PermissionError, match=r"belongs to another user.*AGS1_CACHE"):
        sealed.private_directory(theirs)
