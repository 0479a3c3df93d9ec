"""Other programs as subjects: run to their end, start-up included; and their peak memory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The peak that the system reports for a child includes the memory of the process that it was started from, up to the
# exec. So a small interpreter stands in between.
_SMALL_PARENT = """
import os, sys
null = os.open(os.devnull, os.O_RDWR)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
status, usage = os.wait4(pid, 0)[1:]
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def environment() -> dict[str, str]:
    """The environment for a Python that must import this very checkout."""
    env = dict(os.environ)
    path = [str(ROOT), *filter(None, [env.get("PYTHONPATH")])]
    return {**env, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": ""}


def end(process: subprocess.Popen[str]) -> None:
    """Close the pipes of a process that waits for requests, and wait for its end."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()


def run(command: Sequence[str]) -> None:
    """Run a program to its end; what it prints is dropped unless it fails."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_ENVIRONMENT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}): {done.stderr.decode(errors='replace')}")


_ENVIRONMENT = environment()


def ags1_command() -> list[str] | None:
    """The command line of ags1 as a user would start it, or None where there is none."""
    if importlib.util.find_spec("ags1.cli") is None:
        return None
    script = Path(sysconfig.get_path("scripts")) / "ags1"
    if script.is_file():
        return [str(script)]
    return [sys.executable, "-c", "import sys; from ags1.cli import main; sys.exit(main())"]


def cp_command() -> list[str]:
    """``cp`` that really copies: a file system that shares blocks would answer at once."""
    said = subprocess.run(["cp", "--version"], capture_output=True, text=True, check=False).stdout
    return ["cp", "--reflink=never"] if "GNU" in said else ["cp"]


def peak_memory(command: Sequence[str]) -> int:
    """Peak resident memory of a program, in bytes."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _SMALL_PARENT, *command],
        capture_output=True,
        text=True,
        env=_ENVIRONMENT,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}): {done.stderr}")
    return int(done.stdout.split()[-1]) * (1 if sys.platform == "darwin" else 1024)
