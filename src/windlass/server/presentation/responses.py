"""Responses: bodies, headers, warnings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass.api.errors import StatusError
from windlass.client.transport import Response
from windlass.server.presentation.presenter import to_yaml
from windlass.server.request.negotiation import Representation

_encode = msgspec.json.Encoder().encode
JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


def body(status: int, data: bytes, form: Representation | None = None) -> Response:
    """Return a response with a JSON body.

    ``form``: may request YAML.
    """
    if form is not None and form.yaml:
        return Response(status, {"content-type": "application/yaml"}, to_yaml(data))
    return Response(status, {"content-type": JSON}, data)


def json(status: int, value: Any, form: Representation | None = None) -> Response:
    return body(status, _encode(value) + b"\n", form)


def text(status: int, value: str) -> Response:
    return Response(status, {"content-type": TEXT}, value.encode())


def stream(chunks: AsyncIterator[bytes], content_type: str = JSON) -> Response:
    return Response(200, {"content-type": content_type}, stream=chunks)  # type: ignore[arg-type]


def rejection(error: StatusError, form: Representation | None = None) -> Response:
    """Return the Status of an error, with ``Retry-After`` if the error contains a delay."""
    response = json(error.code, error.status, form)
    headers = {**response.headers, **error.headers}
    seconds = error.retry_after_seconds
    if seconds:
        headers.setdefault("retry-after", str(seconds))
    response.headers = headers
    return response


def success(code: int, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the Status of a success."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        status["details"] = dict(details)
    if code != 200:
        status["code"] = code
    return status


def with_warnings(response: Response, warnings: Sequence[str]) -> Response:
    """Add ``Warning`` headers (RFC 7234, ``299 - "text"``), each text once."""
    if warnings:
        texts = [f'299 - "{_quoted(warning)}"' for warning in dict.fromkeys(warnings)]
        response.headers = {**response.headers, "warning": ", ".join(texts)}
    return response


def _quoted(text: str) -> str:
    printable = "".join(char if char >= " " and char != "\x7f" else " " for char in text)
    return printable.replace("\\", "\\\\").replace('"', '\\"')
