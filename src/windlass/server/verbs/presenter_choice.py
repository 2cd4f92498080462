"""Choice of the representation of a response."""

from __future__ import annotations

from windlass.server.core import Call, ServerCore
from windlass.server.presentation.presenter import MetadataPresenter, Presenter, object_presenter
from windlass.server.presentation.tables import TablePresenter
from windlass.server.request.negotiation import ResponseShape

_DECODING_COST = 5
"""Cost of encoding an object that must be decoded, in plain objects."""


def objects_per_chunk(core: ServerCore, call: Call) -> int:
    """Return the number of objects to encode before yielding to the event loop."""
    size = core.options.chunk_objects
    plain = call.form.shape is ResponseShape.OBJECT and call.target.resource is call.target.stored
    return size if plain else max(1, size // _DECODING_COST)


def presenter_for(core: ServerCore, call: Call, *, collection: bool) -> Presenter:
    """Return the presenter of the negotiated representation."""
    form, resource = call.form, call.target.resource
    if form.shape is ResponseShape.TABLE:
        include = call.params.get("includeObject", "")
        return TablePresenter(resource, core.clock, version=form.version, include=include)
    if form.shape in (ResponseShape.METADATA, ResponseShape.METADATA_LIST):
        return MetadataPresenter(form.version)
    return object_presenter(resource)
