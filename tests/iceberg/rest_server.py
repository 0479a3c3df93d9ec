"""A REST catalog over Iceberg Java's own CatalogHandlers: Java parses, checks, applies and writes; this only carries.

The first part of a URL says what the server does wrong:

    /whole/v1/...          nothing
    /drops-key-id/v1/...   it parses snapshots with a model that has no key-id
    /drops-keys/v1/...     it knows no update add-encryption-key, and says nothing
    /silent/v1/...         it commits, and the connection breaks before it replies
    /deaf/v1/...           the connection breaks before it commits
"""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError

_CODES = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "BadRequestException": 400,
    "IllegalArgumentException": 400,
}


class JavaCatalog:
    """An InMemoryCatalog of Java's with its metadata files in `warehouse`, in the JSON of the REST protocol."""

    def __init__(self, jvm: Any, warehouse: str) -> None:
        self._jvm = jvm
        self._rest = jvm.org.apache.iceberg.rest
        properties = jvm.java.util.HashMap()
        properties.put("warehouse", warehouse)
        properties.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO")
        self._catalog = jvm.org.apache.iceberg.inmemory.InMemoryCatalog()
        self._catalog.initialize("rest", properties)
        jackson = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson
        self._mapper = jackson.databind.ObjectMapper()
        accessor, visibility = jackson.annotation.PropertyAccessor, jackson.annotation.JsonAutoDetect
        self._mapper.setVisibility(accessor.FIELD, visibility.Visibility.ANY)
        self._mapper.setPropertyNamingStrategy(jackson.databind.PropertyNamingStrategies.KebabCaseStrategy())
        self._all = self._rest.RESTCatalogProperties.SnapshotMode.ALL
        self._rest.RESTSerializers.registerAll(self._mapper)
        self._lock = threading.Lock()
        self._catalog.createNamespace(jvm.org.apache.iceberg.catalog.Namespace.of(self._strings("db")))

    def ask(self, method: str, path: list[str], body: str) -> dict[str, Any]:
        """Do what a request asks for; return the JSON of the reply."""
        handlers, requests = self._rest.CatalogHandlers, "org.apache.iceberg.rest.requests"
        with self._lock:
            if path == ["config"]:
                return {"defaults": {}, "overrides": {}}
            namespace = self._jvm.org.apache.iceberg.catalog.Namespace.of(self._strings(*path[1].split("\x1f")))
            if len(path) == 2:
                return {"namespace": path[1].split("\x1f"), "properties": {}}
            if len(path) == 3 and method == "GET":
                return self._said(handlers.listTables(self._catalog, namespace))
            if len(path) == 3:
                parsed = self._mapper.readValue(body, self._class(f"{requests}.CreateTableRequest"))
                staged = json.loads(body).get("stage-create")
                call = handlers.stageTableCreate if staged else handlers.createTable
                return self._said(call(self._catalog, namespace, parsed))
            name = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(namespace, path[3])
            if method == "GET":
                return self._said(handlers.loadTable(self._catalog, name, self._all))
            if method == "DELETE":
                handlers.dropTable(self._catalog, name)
                return {}
            parsed = self._mapper.readValue(body, self._class(f"{requests}.UpdateTableRequest"))
            return self._said(handlers.updateTable(self._catalog, name, parsed))

    def _said(self, response: Any) -> dict[str, Any]:
        return json.loads(self._mapper.writeValueAsString(response))

    def _class(self, name: str) -> Any:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)

    def _strings(self, *values: str) -> Any:
        array = self._jvm.java.lang.reflect.Array.newInstance(self._class("java.lang.String"), len(values))
        for number, value in enumerate(values):
            array[number] = value
        return array


def _without(body: str, mode: str) -> str:
    """What a server with other models would make of a request."""
    found = json.loads(body or "{}")
    for update in found.get("updates", ()):
        if mode == "drops-key-id" and update["action"] == "add-snapshot":
            update["snapshot"].pop("key-id", None)
    if mode == "drops-keys":
        found["updates"] = [each for each in found.get("updates", ()) if each["action"] != "add-encryption-key"]
    return json.dumps(found)


class _Handler(http.server.BaseHTTPRequestHandler):
    catalog: JavaCatalog
    protocol_version = "HTTP/1.1"

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        mode, _, *path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        commits = self.command == "POST" and len(path) == 4
        if commits and mode == "deaf":
            self.close_connection = True
            return
        try:
            code, reply = 200, self.catalog.ask(self.command, path, _without(body, mode) if commits else body)
        except Py4JJavaError as error:
            kind = error.java_exception.getClass().getSimpleName()
            message = str(error.java_exception.getMessage())
            code = _CODES.get(kind, 500)
            reply = {"error": {"type": kind, "message": message, "code": code}}
        if commits and mode == "silent":
            self.close_connection = True
            return
        data = json.dumps(reply).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_HEAD = _do

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: standard error is for what goes wrong."""


def start(jvm: Any, warehouse: str) -> str:
    """Start the server in this process; return its URL, to which what it does wrong is added."""
    handler = type("Handler", (_Handler,), {"catalog": JavaCatalog(jvm, warehouse)})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"
