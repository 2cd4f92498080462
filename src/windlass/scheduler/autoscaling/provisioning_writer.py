"""What asking for nodes writes: a request and the templates that it counts, and on pods which request counts them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from windlass.api import annotations as names
from windlass.api import resources, views
from windlass.api.errors import StatusError
from windlass.client.client import Client
from windlass.client.responses import is_another, is_missing
from windlass.model.autoscaling.provisioning import WantedRequest
from windlass.model.autoscaling.provisioning_objects import OwningGroup, consumes, request_of, template_of
from windlass.model.cluster.cluster_model import ClusterModel


class CreateResult(Enum):
    """What became of asking: the request was made; it was there; a pod that it would count is gone."""

    MADE = auto()
    THERE = auto()
    GONE = auto()


class ProvisioningWriter:
    """Each raises ``StatusError`` or ``Unreachable`` where the server says no, and may be repeated."""

    def __init__(self, client: Client, model: ClusterModel) -> None:
        self._client = client
        self._model = model
        self._uncounted: dict[str, dict[str, None]] = {}
        """Owner (uid) → templates that were made for him while there was no request that counts them."""

    async def ask(self, owner: OwningGroup, want: WantedRequest, attempt: int) -> CreateResult:
        """Templates first, else the request would be seen without them."""
        named: list[str] = []
        for one in want.classes:
            name = await self._template(owner, one.pods[0], dict(one.labels))
            if name is None:
                return CreateResult.GONE
            named.append(name)
            self._uncounted.setdefault(owner.uid, {})[name] = None
        body = request_of(owner, want, named, attempt)
        made = await self._create(resources.PROVISIONING_REQUESTS, body, owner.namespace)
        self._uncounted.pop(owner.uid, None)
        return CreateResult.MADE if made else CreateResult.THERE

    async def tidy(self, owner: OwningGroup) -> None:
        """Nothing is wanted any more: templates go for which no request was made. (Of those that a process made which
        has died since nobody knows; they go with their owner.)"""
        for name in list(self._uncounted.get(owner.uid, ())):
            await self._delete(resources.POD_TEMPLATES, owner.namespace, name)
            del self._uncounted[owner.uid][name]
        self._uncounted.pop(owner.uid, None)

    async def _template(self, owner: OwningGroup, pod: str, labels: Mapping[str, str]) -> str | None:
        """The name of the template of pods like this one, made if it was not there; ``None``: the pod is gone."""
        whole = await self._client.find(resources.PODS, pod.partition("/")[2], owner.namespace)
        if whole is None:
            return None
        template = template_of(owner, whole, labels)
        await self._create(resources.POD_TEMPLATES, template, owner.namespace)
        return str(template["metadata"]["name"])

    async def _create(self, kind: resources.Resource, body: dict[str, object], namespace: str) -> bool:
        """Whether it was not there. One that is says the same: its name does."""
        try:
            await self._client.create(kind, body, namespace)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def withdraw(self, request: views.ProvisioningRequest) -> None:
        """First the request, which else would be seen without its templates; then those that no other one counts."""
        await self._delete(resources.PROVISIONING_REQUESTS, request.namespace, request.name, request.uid)
        others = {
            name
            for seen in self._model.requests.values()
            for one in seen.values()
            if one.uid != request.uid and one.namespace == request.namespace and not one.deleted
            for name in one.templates
        }
        for name in request.templates:
            if name not in others:
                await self._delete(resources.POD_TEMPLATES, request.namespace, name)

    async def _delete(self, kind: resources.Resource, namespace: str, name: str, uid: str = "") -> None:
        try:
            await self._client.delete(kind, name, namespace, uid=uid or None)
        except StatusError as error:
            if not (is_missing(error) or is_another(error)):
                raise

    async def tell_pods(
        self,
        group: str,
        owner: OwningGroup | None,
        want: WantedRequest | None,
        request: views.ProvisioningRequest | None = None,
    ) -> None:
        """Pods that wait name the request that counts them, and none that Windlass has withdrawn."""
        counted = set(want.pods) if want is not None else set()
        for pod in list(self._model.pods_of(group)):
            if pod.node_name or pod.finished or pod.deleted:
                continue
            named = pod.annotations.get(names.NODES_REQUESTED, "")
            wanted = request.name if request is not None and pod.key in counted else ""
            if named == wanted or (not wanted and not (owner is not None and owner.is_request(named))):
                continue
            words = consumes(wanted, request.class_name if request is not None and wanted else "")
            patch = {"metadata": {"uid": pod.uid, "annotations": words}}
            try:
                await self._client.patch(resources.PODS, pod.name, patch, pod.namespace)
            except StatusError as error:
                if not (is_missing(error) or is_another(error)):
                    raise
