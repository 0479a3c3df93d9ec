"""S3 on loopback: MinIO, s3s-fs, or moto, with the same interface.

MinIO checks ``If-None-Match: *`` under the lock of the object, so of several writers one wins, and reads the fastest
(1 GB/s on two cores). s3s-fs writes three times as many small objects a second; its conditional writes are not atomic.
moto needs no compiler, and is slow.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers._install import MissingServerError, go_install, installed, run, tool
from tests.servers._process import ServerProcess, listening, start_on_free_port

MINIO_MODULE = "github.com/minio/minio"
# RELEASE.2026-02-12, the last one: MinIO's module has no other numbers.
MINIO_VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
S3S_VERSION = "0.14.1"
ACCESS_KEY = "ags1-tests"
SECRET_KEY = "not-a-secret-of-anybody"
REGION = "us-east-1"


class Kind(NamedTuple):
    """What a server is good for."""

    find: Callable[[], Path]
    # Whether of several writers with If-None-Match: * exactly one wins.
    atomic_create: bool


def install_minio() -> Path:
    """Return the path of the command ``minio``, built first if need be."""
    directory = installed("minio", MINIO_VERSION, lambda target: go_install(MINIO_MODULE, MINIO_VERSION, target))
    return directory / "minio"


def install_s3s() -> Path:
    """Return the path of the command ``s3s-fs``, built first if need be."""

    def build(target: Path) -> None:
        command = [tool("cargo"), "install", "--quiet", "s3s-fs", "--version", S3S_VERSION, "--locked", "--jobs", "2"]
        with tempfile.TemporaryDirectory(prefix="ags1-cargo-") as scratch:
            run([*command, "--features", "binary", "--root", target], {"CARGO_TARGET_DIR": scratch})

    return installed("s3s-fs", S3S_VERSION, build) / "bin" / "s3s-fs"


def find_moto() -> Path:
    """Return the path of moto's server."""
    import sys
    from importlib.util import find_spec

    if find_spec("moto") is None or find_spec("flask") is None:
        raise MissingServerError("moto[server] is not installed")
    return Path(sys.executable)


KINDS: Mapping[str, Kind] = {
    "minio": Kind(install_minio, True),
    "s3s": Kind(install_s3s, False),
    "moto": Kind(find_moto, False),
}


@dataclass(frozen=True)
class S3Server:
    """Where an S3 server is, and how clients reach it.

    Attributes
    ----------
    kind
        ``"minio"``, ``"s3s"`` or ``"moto"``.
    endpoint
        URL, without a slash at its end.
    access_key, secret_key, region
        Credentials of the tests.
    """

    kind: str
    endpoint: str
    access_key: str = ACCESS_KEY
    secret_key: str = field(default=SECRET_KEY, repr=False)
    region: str = REGION

    @classmethod
    @contextlib.contextmanager
    def start(cls, directory: str | os.PathLike[str] | None = None, kind: str = "minio") -> Iterator[S3Server]:
        """Start a server for as long as the context lasts.

        Parameters
        ----------
        directory
            Where it keeps its objects; by default a temporary directory, removed at the end.
        kind
            ``"minio"``, ``"s3s"`` or ``"moto"``. moto keeps its objects in memory.
        """
        program = KINDS[kind].find()
        with contextlib.ExitStack() as stack:
            if directory is None:
                directory = tempfile.mkdtemp(prefix="ags1-s3-")
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
            process, port = _STARTERS[kind](program, Path(directory))
            stack.enter_context(process)
            yield cls(kind, f"http://127.0.0.1:{port}")

    @property
    def atomic_create(self) -> bool:
        """Whether of several writers with ``If-None-Match: *`` exactly one wins."""
        return KINDS[self.kind].atomic_create

    def through(self, endpoint: str) -> S3Server:
        """Return the same server behind another address: a proxy's."""
        return replace(self, endpoint=endpoint)

    def client(self) -> Any:
        """Return a client of boto3."""
        import boto3
        import botocore.config

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=botocore.config.Config(s3={"addressing_style": "path"}),
        )

    def make_bucket(self, name: str) -> str:
        """Make a bucket, unless it is there, and return its name."""
        client = self.client()
        with contextlib.closing(client):
            try:
                client.create_bucket(Bucket=name)
            except (client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                pass
        return name

    def store(self, bucket: str, prefix: str | None = None, **options: Any) -> Any:
        """Return obstore's store of a bucket. `options` are further ones of ``obstore.store.S3Store``."""
        from obstore.store import S3Store

        return S3Store(
            bucket,
            prefix=prefix,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=self.region,
            virtual_hosted_style_request=False,
            **{"client_options": {"allow_http": True}, **options},
        )

    def filesystem(self) -> Any:
        """Return s3fs's file system, a new one."""
        import s3fs

        return s3fs.S3FileSystem(skip_instance_cache=True, **self.storage_options())

    def storage_options(self) -> dict[str, Any]:
        """Return what fsspec takes as ``storage_options`` for ``s3://``."""
        return {
            "key": self.access_key,
            "secret": self.secret_key,
            "client_kwargs": {"endpoint_url": self.endpoint, "region_name": self.region},
        }

    def environment(self) -> dict[str, str]:
        """Return the environment variables in which AWS's clients look."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ALLOW_HTTP": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
            "S3_ENDPOINT_URL": self.endpoint,
        }


def _start_minio(program: Path, directory: Path) -> tuple[ServerProcess, int]:
    env = {
        "MINIO_ROOT_USER": ACCESS_KEY,
        "MINIO_ROOT_PASSWORD": SECRET_KEY,
        "MINIO_BROWSER": "off",
        # It asks nobody for a newer release.
        "MINIO_UPDATE": "off",
        "MINIO_CALLHOME_ENABLE": "off",
        # The drive holds the tests' objects and nothing else, so nothing is to be scanned.
        "MINIO_SCANNER_SPEED": "slowest",
        # Where it looks for certificates.
        "HOME": str(directory),
        # It would count the machine's memory, and let clients wait.
        "MINIO_API_REQUESTS_MAX": "1000",
    }

    def ready(port: int) -> bool:
        return _status(port, "/minio/health/ready") == 200

    def command(port: int) -> list[str]:
        return [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(directory)]

    return start_on_free_port(command, ready, env=env)


def _start_s3s(program: Path, directory: Path) -> tuple[ServerProcess, int]:
    def command(port: int) -> list[str]:
        keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]
        return [str(program), "--host", "127.0.0.1", "--port", str(port), *keys, str(directory)]

    return start_on_free_port(command, env={"RUST_LOG": "error"})


def _start_moto(program: Path, directory: Path) -> tuple[ServerProcess, int]:
    def command(port: int) -> list[str]:
        return [str(program), "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]

    # Its objects are in memory, or in temporary files.
    return start_on_free_port(command, listening, env={"TMPDIR": str(directory)})


_STARTERS = {"minio": _start_minio, "s3s": _start_s3s, "moto": _start_moto}


def _status(port: int, path: str) -> int:
    """Return the status of a GET, or 0 where nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    with contextlib.closing(connection):
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return 0
