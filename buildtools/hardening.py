"""What compiler and linker can do against memory errors, as far as they know it, and no trace of the builder.

Our own C and the libcrypto that is built into it get the same. Nothing here costs speed that could be measured: the
ciphers are assembly.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_COMPILE = (
    "-fstack-protector-strong",
    "-fstack-clash-protection",
    # x86: indirect branch tracking and shadow stacks. 64-bit Arm: the same by its own name.
    "-fcf-protection=full",
    "-mbranch-protection=standard",
)
_LINK = ("-Wl,-z,relro", "-Wl,-z,now", "-Wl,-z,noexecstack")
_PROGRAM = "int main(void) { return 0; }\n"
_RUNPATH = re.compile(r"-Wl,(?:-R|--?rpath)[,=](.+)")


def _takes(command: Sequence[str], flag: str, env: Mapping[str, str] | None, *, link: bool) -> bool:
    done = subprocess.run(
        [*command, "-Werror", flag, *([] if link else ["-c"]), "-x", "c", "-", "-o", os.devnull],
        input=_PROGRAM,
        capture_output=True,
        text=True,
        env=None if env is None else dict(env),
        check=False,
    )
    return done.returncode == 0


def compile_args(command: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
    """Return the arguments that the compiler `command` takes; they go with optimization only."""
    taken = [flag for flag in _COMPILE if _takes(command, flag, env, link=False)]
    # First undefined: the builder's flags may have another level, which would be a warning for every file.
    return [*taken, "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"]


def link_args(command: Sequence[str], env: Mapping[str, str] | None = None) -> list[str]:
    """Return the arguments that the linker behind the compiler `command` takes."""
    if sys.platform == "darwin":
        return []
    return [flag for flag in _LINK if _takes(command, flag, env, link=True)]


def without_runpath(command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a linker's command into the command without directories of the builder, and those of them with libcrypto.

    A Python that was built on this machine tells every extension module where its own libraries lie. A module needs
    that for nothing but a shared libcrypto; elsewhere whoever can write there could give it other code.
    """
    kept = [word for word in command if not _RUNPATH.fullmatch(word)]
    found = [match for match in map(_RUNPATH.fullmatch, command) if match]
    needed = [match[0] for match in found if any(Path(match[1]).glob("libcrypto.*"))]
    return kept, list(dict.fromkeys(needed))
