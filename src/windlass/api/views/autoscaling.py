"""ProvisioningRequest (``autoscaling.x-k8s.io``): nodes that the cluster autoscaler is asked for, all or none."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.api.errors import FieldError
from windlass.api.views.wire import OwnerReference, intern, kept, metadata, moment, owners, part, split


class RequestCondition(msgspec.Struct, frozen=True, gc=False):
    """``since``: Unix seconds, 0.0 where that is not said."""

    type: str
    status: str
    reason: str
    message: str
    since: float


class ProvisioningRequest(msgspec.Struct, gc=False):
    """``templates``: the names of the PodTemplates that it counts."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str]
    owners: tuple[OwnerReference, ...]
    created: float
    deleted: float
    class_name: str
    templates: tuple[str, ...]
    conditions: tuple[RequestCondition, ...]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def condition(self, kind: str) -> RequestCondition | None:
        return next((one for one in self.conditions if one.type == kind), None)


class _Reference(msgspec.Struct, gc=False):
    name: str = ""


class _PodSet(msgspec.Struct, gc=False, rename="camel"):
    pod_template_ref: _Reference = msgspec.field(default_factory=_Reference)


class _Spec(msgspec.Struct, gc=False, rename="camel"):
    provisioning_class_name: str | None = None
    pod_sets: tuple[_PodSet, ...] | None = None


class _Condition(msgspec.Struct, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class _Status(msgspec.Struct, gc=False):
    conditions: tuple[_Condition, ...] | None = None


_spec_decoder = msgspec.json.Decoder(_Spec)
_status_decoder = msgspec.json.Decoder(_Status)


def decode_provisioning_request(raw: bytes | msgspec.Raw) -> ProvisioningRequest:
    """A ProvisioningRequest. Raises ``msgspec.DecodeError`` on what has no name."""
    problems: list[FieldError] = []
    whole = split(raw)
    meta = metadata(whole.metadata, problems)
    spec = part(_spec_decoder, whole.spec, "spec", _Spec, problems)
    status = part(_status_decoder, whole.status, "status", _Status, problems)
    return ProvisioningRequest(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        annotations=kept(meta.annotations),
        owners=owners(meta.owner_references),
        created=moment(meta.creation_timestamp),
        deleted=moment(meta.deletion_timestamp),
        class_name=intern(spec.provisioning_class_name or ""),
        templates=tuple(one.pod_template_ref.name for one in spec.pod_sets or ()),
        conditions=tuple(
            RequestCondition(
                one.type, one.status, one.reason or "", one.message or "", moment(one.last_transition_time)
            )
            for one in status.conditions or ()
        ),
    )
