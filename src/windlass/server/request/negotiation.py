"""Content negotiation by the Accept header, with the rules of kube-apiserver.

Responses are JSON or YAML; protobuf is accepted in requests only. Kubernetes clients
that prefer protobuf also accept
JSON. A client that accepts protobuf only gets 406.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from windlass.api.errors import failure

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_JSON_NAMES = (JSON, "application/*", "*/*")
_AVAILABLE = (
    "application/json, application/yaml, application/vnd.kubernetes.protobuf, "
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
)


class ResponseShape(Enum):
    """Shape of an object or a list in a response."""

    OBJECT = "object"
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


class Representation(NamedTuple):
    """Negotiated representation.

    ``version``: version of ``meta.k8s.io`` for shapes that have one (``v1``,
    ``v1beta1``).
    """

    shape: ResponseShape = ResponseShape.OBJECT
    yaml: bool = False
    version: str = "v1"


PLAIN = Representation()
_AS = {shape.value: shape for shape in ResponseShape if shape is not ResponseShape.OBJECT}


class _Clause(NamedTuple):
    media: str
    parameters: dict[str, str]
    quality: float


@lru_cache(maxsize=512)
def negotiate(accept: str) -> Representation:
    """Return the first acceptable representation, by quality and then order. Raises 406."""
    if not accept or accept == JSON:
        return PLAIN
    unknown_form = False
    for clause in _clauses(accept):
        if clause.media in _JSON_NAMES:
            yaml = False
        elif clause.media == YAML:
            yaml = True
        else:
            unknown_form = unknown_form or clause.media == PROTOBUF
            continue
        wanted = clause.parameters.get("as")
        if wanted is None:
            return Representation(yaml=yaml)
        shape = _AS.get(wanted)
        group, version = clause.parameters.get("g", ""), clause.parameters.get("v", "")
        if shape is not None and group == "meta.k8s.io" and version in ("v1", "v1beta1"):
            return Representation(shape, yaml, version)
        unknown_form = True
    if unknown_form:
        media = f"{JSON}, {YAML}, {PROTOBUF}"
        raise failure(406, "NotAcceptable", f"only the following media types are accepted: {media}")
    raise failure(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {_AVAILABLE}", {})


def _clauses(accept: str) -> list[_Clause]:
    clauses = []
    for part in accept.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {}
        for piece in rest:
            key, _, value = piece.partition("=")
            parameters[key.strip()] = value.strip().strip('"')
        try:
            quality = float(parameters.pop("q", 1.0))
        except ValueError:
            quality = 1.0
        if media and quality > 0:
            clauses.append(_Clause(media.lower(), parameters, quality))
    clauses.sort(key=lambda clause: -clause.quality)
    return clauses
