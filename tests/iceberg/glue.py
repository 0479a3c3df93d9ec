"""AWS Glue, as moto has it. moto does not compare versions of tables, as AWS does; here it does."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

KEYS = {"glue.access-key-id": "testing", "glue.secret-access-key": "testing", "glue.region": "us-east-1"}


@contextlib.contextmanager
def glue_server() -> Iterator[str]:
    """Start it in this process; the value is its URL."""
    from moto.core.exceptions import JsonRESTError
    from moto.glue.responses import GlueResponse
    from moto.server import ThreadedMotoServer

    real, lock = GlueResponse.update_table, threading.Lock()

    def update_table(self: Any) -> Any:
        with lock:
            name = self.parameters["TableInput"]["Name"]
            table = self.glue_backend.get_table(self.parameters["DatabaseName"], name)
            if self.parameters.get("VersionId") not in (None, table.as_dict()["VersionId"]):
                raise JsonRESTError(
                    "ConcurrentModificationException", "Update table failed due to concurrent modifications"
                )
            return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GlueResponse, "update_table", update_table)
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()
