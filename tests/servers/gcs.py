"""Google Cloud Storage on loopback: fake-gcs-server, and in front of it what it lacks of the XML API."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.servers._install import go_install, installed
from tests.servers._process import ROOT, start_on_free_port

MODULE = "github.com/fsouza/fake-gcs-server"
VERSION = "v1.56.1"


def install() -> Path:
    """Return the path of the command ``fake-gcs-server``, built first if need be."""
    directory = installed("fake-gcs-server", VERSION, lambda target: go_install(MODULE, VERSION, target))
    return directory / "fake-gcs-server"


@dataclass(frozen=True)
class GcsServer:
    """Where the server is, and how clients reach it. It asks for no credentials.

    Attributes
    ----------
    endpoint
        URL, without a slash at its end.
    """

    endpoint: str

    @classmethod
    @contextlib.contextmanager
    def start(cls, backend: str = "filesystem") -> Iterator[GcsServer]:
        """Start a server for as long as the context lasts, with its objects in a temporary directory.

        With the `backend` "memory" they may have any name.
        """
        program = install()
        with contextlib.ExitStack() as stack:
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="ags1-gcs-", ignore_cleanup_errors=True))

            def command(port: int) -> list[str]:
                options = [
                    "-backend",
                    backend,
                    "-filesystem-root",
                    where,
                    "-log-level",
                    "error",
                    "-public-host",
                    "127.0.0.1",
                ]
                return [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), *options]

            process, behind = start_on_free_port(command)
            stack.enter_context(process)

            def adapter(port: int) -> list[str]:
                return [sys.executable, "-m", "tests.servers._gcs_xml", str(port), str(behind)]

            process, port = start_on_free_port(adapter, env={"PYTHONPATH": str(ROOT)})
            stack.enter_context(process)
            yield cls(f"http://127.0.0.1:{port}")

    def through(self, endpoint: str) -> GcsServer:
        """Return the same server behind another address: a proxy's."""
        return replace(self, endpoint=endpoint)

    def make_bucket(self, name: str) -> str:
        """Make a bucket, unless it is there, and return its name."""
        request = urllib.request.Request(
            f"{self.endpoint}/storage/v1/b?project=ags1",
            data=json.dumps({"name": name}).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=30).close()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:
                    raise
        return name

    def store(self, bucket: str, prefix: str | None = None, **options: Any) -> Any:
        """Return obstore's store of a bucket. `options` are further ones of ``obstore.store.GCSStore``."""
        from obstore.store import GCSStore

        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return GCSStore(
            bucket,
            prefix=prefix,
            service_account_key=json.dumps(account),
            **{"client_options": {"allow_http": True}, **options},
        )

    def environment(self) -> dict[str, str]:
        """Return the environment variables in which Google's clients look."""
        return {"STORAGE_EMULATOR_HOST": self.endpoint}
