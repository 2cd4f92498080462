"""A collector on loopback: takes OTLP/HTTP trace requests and keeps the spans as plain dictionaries."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    return getattr(value, kind) if kind else None


def _words(attributes: Any) -> dict[str, Any]:
    return {one.key: _plain(one.value) for one in attributes}


class OtlpSink:
    """``with OtlpSink() as sink``: ``sink.url`` for ``--otlp-endpoint``; ``sink.spans`` is what came.

    ``refuse``: an HTTP status to answer with instead.
    """

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.refuse = 0
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.paths.append(self.path)
                if sink.refuse:
                    self.send_response(sink.refuse)
                    self.send_header("content-length", "0")
                    self.end_headers()
                    return
                sink._keep(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def _keep(self, request: ExportTraceServiceRequest) -> None:
        for group in request.resource_spans:
            self.resources.append(_words(group.resource.attributes))
            for scope in group.scope_spans:
                for span in scope.spans:
                    self.spans.append(
                        {
                            "name": span.name,
                            "trace": span.trace_id.hex(),
                            "id": span.span_id.hex(),
                            "parent": span.parent_span_id.hex(),
                            "begun": span.start_time_unix_nano / 1e9,
                            "ended": span.end_time_unix_nano / 1e9,
                            "attributes": _words(span.attributes),
                            "events": [(e.name, _words(e.attributes)) for e in span.events],
                            "links": [(k.trace_id.hex(), _words(k.attributes)) for k in span.links],
                            "fault": span.status.message,
                        }
                    )

    def named(self, name: str) -> list[dict[str, Any]]:
        return [span for span in self.spans if span["name"] == name]

    def __enter__(self) -> OtlpSink:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
