"""Writes of ProvisioningRequests, their PodTemplates, and annotations of their pods."""

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
    """Result of creating a request.

    ``POD_GONE``: a pod that it would count does not exist.
    """

    CREATED = auto()
    EXISTED = auto()
    POD_GONE = auto()


class ProvisioningWriter:
    """Writes requests.

    Each method raises ``StatusError`` or ``Unreachable``, and may be repeated.
    """

    def __init__(self, client: Client, model: ClusterModel) -> None:
        self._client = client
        self._model = model
        self._unused: dict[str, dict[str, None]] = {}
        """Uid of an owner → templates created for it that no request counts yet."""

    async def create(self, owner: OwningGroup, want: WantedRequest, attempt: int) -> CreateResult:
        """Create the templates, then the request, so that it is never seen without them."""
        templates: list[str] = []
        for pod_class in want.classes:
            name = await self._create_template(owner, pod_class.pods[0], dict(pod_class.labels))
            if name is None:
                return CreateResult.POD_GONE
            templates.append(name)
            self._unused.setdefault(owner.uid, {})[name] = None
        body = request_of(owner, want, templates, attempt)
        created = await self._create(resources.PROVISIONING_REQUESTS, body, owner.namespace)
        self._unused.pop(owner.uid, None)
        return CreateResult.CREATED if created else CreateResult.EXISTED

    async def delete_unused_templates(self, owner: OwningGroup) -> None:
        """Delete the templates for which no request was created.

        Those of an earlier process are not known. They are deleted with their owner.
        """
        for name in list(self._unused.get(owner.uid, ())):
            await self._delete(resources.POD_TEMPLATES, owner.namespace, name)
            del self._unused[owner.uid][name]
        self._unused.pop(owner.uid, None)

    async def _create_template(self, owner: OwningGroup, pod: str, labels: Mapping[str, str]) -> str | None:
        """Return the name of the template of pods like this one, created if it did not exist.

        ``None``: the pod does not exist.
        """
        whole = await self._client.find(resources.PODS, pod.partition("/")[2], owner.namespace)
        if whole is None:
            return None
        template = template_of(owner, whole, labels)
        await self._create(resources.POD_TEMPLATES, template, owner.namespace)
        return str(template["metadata"]["name"])

    async def _create(self, kind: resources.Resource, body: dict[str, object], namespace: str) -> bool:
        """Return whether the object was created.

        An existing one is equal, since its name is.
        """
        try:
            await self._client.create(kind, body, namespace)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return False
        return True

    async def withdraw(self, request: views.ProvisioningRequest) -> None:
        """Delete a request, then its templates, so that it is never seen without them.

        Templates that another request counts are kept.
        """
        await self._delete(resources.PROVISIONING_REQUESTS, request.namespace, request.name, request.uid)
        used = {
            name
            for requests in self._model.objects.requests.values()
            for other in requests.values()
            if other.uid != request.uid and other.namespace == request.namespace and not other.deleted
            for name in other.templates
        }
        for name in request.templates:
            if name not in used:
                await self._delete(resources.POD_TEMPLATES, request.namespace, name)

    async def _delete(self, kind: resources.Resource, namespace: str, name: str, uid: str = "") -> None:
        try:
            await self._client.delete(kind, name, namespace, uid=uid or None)
        except StatusError as error:
            if not (is_missing(error) or is_another(error)):
                raise

    async def annotate_pods(
        self,
        group: str,
        owner: OwningGroup | None,
        want: WantedRequest | None,
        request: views.ProvisioningRequest | None = None,
    ) -> None:
        """Annotate pending pods with the request that counts them.

        A request that this scheduler has withdrawn is removed from them.
        """
        counted = set(want.pods) if want is not None else set()
        for pod in list(self._model.groups.pods_of(group)):
            if pod.node_name or pod.finished or pod.deleted:
                continue
            named = pod.annotations.get(names.NODES_REQUESTED, "")
            wanted = request.name if request is not None and pod.key in counted else ""
            if named == wanted or (not wanted and not (owner is not None and owner.is_request(named))):
                continue
            annotations = consumes(wanted, request.class_name if request is not None and wanted else "")
            patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
            try:
                await self._client.patch(resources.PODS, pod.name, patch, pod.namespace)
            except StatusError as error:
                if not (is_missing(error) or is_another(error)):
                    raise
