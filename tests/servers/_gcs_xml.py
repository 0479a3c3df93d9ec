"""Writes of Google's XML API in front of fake-gcs-server, which has those of the JSON API only.

obstore writes, copies and uploads in parts through the XML API. Each such request becomes one of the JSON API's, whose
server decides about conditions; parts are kept here until they are put together. All else passes unchanged.
"""

from __future__ import annotations

import hashlib
import http.client
import http.server
import json
import re
import sys
import threading
import uuid
from collections.abc import Mapping
from html import unescape
from typing import Any, ClassVar
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_API = ("/storage/v1", "/upload/", "/download/", "/batch/", "/_internal/")


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without it, the head and the body of a response wait for one another.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    backend: ClassVar[int]
    parts: ClassVar[dict[str, dict[int, bytes]]] = {}
    lock: ClassVar[threading.Lock] = threading.Lock()

    def log_message(self, *arguments: object) -> None:
        pass

    def setup(self) -> None:
        super().setup()
        self._server = http.client.HTTPConnection("127.0.0.1", self.backend)

    def finish(self) -> None:
        self._server.close()
        super().finish()

    def _relay(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self._body()
        bucket, _, name = url.path.removeprefix("/").partition("/")
        if self.path.startswith(_API) or not name:
            return self._pass(body)
        if self.command == "PUT" and "partNumber" in query:
            return self._part(query, body)
        if self.command == "PUT" and (source := self.headers["x-goog-copy-source"]):
            return self._copy(source, bucket, name)
        if self.command == "PUT":
            return self._upload(bucket, unquote(name), body)
        if self.command == "POST" and "uploads" in query:
            return self._initiate()
        if self.command == "POST" and "uploadId" in query:
            return self._complete(query["uploadId"], bucket, unquote(name), body)
        if self.command == "DELETE" and "uploadId" in query:
            with self.lock:
                self.parts.pop(query["uploadId"], None)
            return self._reply(204)
        return self._pass(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = _relay

    def _body(self) -> bytes:
        if "chunked" in (self.headers["Transfer-Encoding"] or ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def _reply(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _ask(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        try:
            self._server.request(method, path, body, dict(headers))
            response = self._server.getresponse()
            return response, response.read()
        except BaseException:
            self._server.close()
            raise

    def _pass(self, body: bytes) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
        # The server matches it without a port.
        response, said = self._ask(self.command, self.path, body, {**headers, "Host": "127.0.0.1"})
        tag, wanted = response.headers["ETag"], self.headers["If-Match"]
        if response.status < 300 and tag and wanted and wanted != "*" and wanted.strip('"') != tag.strip('"'):
            return self._reply(412)
        passed = {name: value for name, value in response.headers.items() if name.lower() not in _HOP_BY_HOP}
        said = self._behind(said)
        if self.command == "HEAD" and (length := response.headers["Content-Length"]):
            passed["Content-Length"] = length
        return self._reply(response.status, said, passed)

    def _behind(self, said: bytes) -> bytes:
        """A listing from a key on, which the server does not know."""
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        after = query.get("start-after", query.get("startAfter", [""]))[0]

        def kept(found: re.Match[bytes]) -> bytes:
            name = unescape(found[1].decode())
            return found[0] if name > after else b""

        return re.sub(rb"<Contents><Key>(.*?)</Key>.*?</Contents>", kept, said) if after else said

    def _condition(self) -> dict[str, str]:
        generation = self.headers["x-goog-if-generation-match"]
        return {} if generation is None else {"ifGenerationMatch": generation}

    def _upload(self, bucket: str, name: str, body: bytes) -> None:
        query = urlencode({"uploadType": "media", "name": name, **self._condition()})
        kind = {"Content-Type": self.headers["Content-Type"] or "application/octet-stream"}
        response, said = self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?{query}", body, kind)
        self._written(response, said, lambda written: written)

    def _copy(self, source: str, bucket: str, name: str) -> None:
        from_bucket, _, from_name = source.removeprefix("/").partition("/")
        if self._condition():
            # The server's own copy knows no conditions.
            response, said = self._ask("GET", f"/{from_bucket}/{from_name}", b"", {"Host": "127.0.0.1"})
            if response.status != 200:
                return self._reply(response.status, said)
            return self._upload(bucket, unquote(name), said)
        origin, target = quote(unquote(from_name), safe=""), quote(unquote(name), safe="")
        path = f"/storage/v1/b/{from_bucket}/o/{origin}/rewriteTo/b/{bucket}/o/{target}?{urlencode(self._condition())}"
        response, said = self._ask("POST", path, b"{}", {"Content-Type": "application/json"})
        return self._written(response, said, lambda written: written["resource"])

    def _written(self, response: http.client.HTTPResponse, said: bytes, resource: Any) -> None:
        if response.status >= 300:
            return self._reply(response.status, said)
        written = resource(json.loads(said))
        etag = f'"{written["etag"].strip(chr(34))}"'
        headers = {"ETag": etag, "x-goog-generation": str(written["generation"])}
        xml = f"<CompleteMultipartUploadResult><ETag>{etag}</ETag></CompleteMultipartUploadResult>"
        return self._reply(200, xml.encode(), headers)

    def _initiate(self) -> None:
        upload = uuid.uuid4().hex
        with self.lock:
            self.parts[upload] = {}
        xml = f"<InitiateMultipartUploadResult><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        self._reply(200, xml.encode())

    def _part(self, query: Mapping[str, str], body: bytes) -> None:
        with self.lock:
            parts = self.parts.get(query["uploadId"])
            if parts is not None:
                parts[int(query["partNumber"])] = body
        if parts is None:
            return self._reply(404)
        return self._reply(200, headers={"ETag": f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'})

    def _complete(self, upload: str, bucket: str, name: str, body: bytes) -> None:
        with self.lock:
            parts = self.parts.pop(upload, None)
        if parts is None:
            return self._reply(404)
        numbers = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
        if not set(numbers) <= parts.keys():
            return self._reply(400)
        return self._upload(bucket, name, b"".join(parts[number] for number in numbers))


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may leave when they like."""


def main() -> None:
    """Listen at the port of the first argument, in front of the one of the second."""
    port, _Handler.backend = map(int, sys.argv[1:])
    with _Server(("127.0.0.1", port), _Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
