"""PodDisruptionBudget as the scheduler sees it."""

from __future__ import annotations

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.podshape import LabelSelector
from windlass.api.views.wire import intern, metadata, part, split


class PodDisruptionBudget(msgspec.Struct, gc=False):
    """``selector`` ``None`` selects nothing, an empty one all pods of the namespace. ``allowed``: how many
    evictions its status allows; 0 where the status is not there, or older than the spec."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class _Spec(msgspec.Struct, gc=False):
    selector: LabelSelector | None = None


class _Status(msgspec.Struct, gc=False, rename="camel"):
    observed_generation: int | None = None
    disruptions_allowed: int | None = None


class _Generation(msgspec.Struct, gc=False):
    generation: int | None = None


_spec_decoder = msgspec.json.Decoder(_Spec)
_status_decoder = msgspec.json.Decoder(_Status)
_generation_decoder = msgspec.json.Decoder(_Generation)


def decode_disruption_budget(raw: bytes | msgspec.Raw) -> PodDisruptionBudget:
    """A PodDisruptionBudget. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_spec_decoder, whole.spec, "spec", _Spec, problems)
    status = part(_status_decoder, whole.status, "status", _Status, problems)
    version = part(_generation_decoder, whole.metadata, "metadata", _Generation, problems)
    current = (status.observed_generation or 0) >= (version.generation or 0)
    allowed = max(0, status.disruptions_allowed or 0) if current else 0
    return PodDisruptionBudget(intern(meta.namespace), meta.name, spec.selector, allowed)
