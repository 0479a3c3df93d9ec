"""HDFS on loopback: Hadoop's MiniDFSCluster with one data node, in a JVM."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.jvm import Jvm, PeerFailure, build, compiler_missing
from tests.servers._install import MissingServerError
from tests.servers._process import START_SECONDS, ServerFailure

_MAIN_CLASS = "ags1.servers.Hdfs"


def install() -> Path:
    """Return the directory with the classes, built first if need be. Maven fetches Hadoop."""
    if (reason := compiler_missing()) is not None:
        raise MissingServerError(reason)
    try:
        return build("hdfs")
    except PeerFailure as error:
        raise MissingServerError(str(error)) from error


@dataclass(frozen=True)
class HdfsServer:
    """Where the name node is, and how clients reach it.

    Attributes
    ----------
    port
        For Hadoop's own protocol.
    web_port
        For WebHDFS.
    """

    port: int
    web_port: int

    @classmethod
    @contextlib.contextmanager
    def start(cls) -> Iterator[HdfsServer]:
        """Start a cluster for as long as the context lasts, with its blocks in a temporary directory."""
        built = install()
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-hdfs-", ignore_cleanup_errors=True))
            options = ["-Xmx512m", f"-Dtest.build.data={where}"]
            # It ends when its standard input is closed, and so it does if this process is killed.
            jvm = stack.enter_context(Jvm(built, _MAIN_CLASS, START_SECONDS, options, [where]))
            try:
                port, web_port = map(int, jvm.answer().split())
            except (PeerFailure, ValueError) as error:
                raise ServerFailure(f"MiniDFSCluster did not start: {error}") from error
            yield cls(port, web_port)

    @property
    def endpoint(self) -> str:
        """URL of the name node's WebHDFS, without a slash at its end. It redirects to the data node's."""
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def authority(self) -> str:
        """What comes after ``hdfs://``."""
        return f"127.0.0.1:{self.port}"

    def storage_options(self) -> dict[str, Any]:
        """Return what fsspec takes as ``storage_options`` for ``webhdfs://``."""
        return {"host": "127.0.0.1", "port": self.web_port, "user": "ags1"}

    def filesystem(self) -> Any:
        """Return fsspec's file system over WebHDFS, a new one."""
        from fsspec.implementations.webhdfs import WebHDFS

        return WebHDFS(skip_instance_cache=True, **self.storage_options())
