"""Reading of a running cluster for ``windlass plan``, also without Windlass in it.

Nothing is written. A kind that the cluster lacks, or that the user may not list, is
omitted with a warning. Nodes and pods are required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import (
    ALL,
    CONFIG_MAPS,
    COSCHEDULING_POD_GROUPS,
    CSI_DRIVERS,
    CSI_NODES,
    KAI_POD_GROUPS,
    KAI_QUEUES,
    NATIVE_POD_GROUPS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    STORAGE_CAPACITIES,
    STORAGE_CLASSES,
    Resource,
)
from windlass.cli.errors import if_served
from windlass.cli.install.objects import NAMESPACE
from windlass.client.blocking import BlockingClient
from windlass.model.cluster.snapshot import KINDS
from windlass.model.scheduler_config import CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE, ConfigError, text_of

Warn = Callable[[str], None]
CONFIG_KEY = "windlass.conf"
_FORBIDDEN, _NOT_FOUND = 403, 404
_NEEDED = (NODES, PODS)
_STORAGE = (STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, STORAGE_CAPACITIES)
_GANGS = (QUEUES, POD_GROUPS, KAI_QUEUES, KAI_POD_GROUPS, COSCHEDULING_POD_GROUPS)


def read_kinds() -> tuple[Resource, ...]:
    """Return the kinds that matter to a scheduler, in the order in which they are listed."""
    served = dict.fromkeys((*_NEEDED, *ALL, *_STORAGE, NATIVE_POD_GROUPS))
    return tuple(kind for kind in served if f"{kind.api_version}/{kind.kind}" in KINDS)


def objects(
    client: BlockingClient, tell: Warn, read: set[Resource] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of the cluster with a text for its place.

    Raises ``StatusError`` if nodes or pods may not be read, and ``Unreachable``.

    :param tell: receives warnings
    :param read: receives the kinds that the cluster has
    """
    absent: list[Resource] = []
    for resource in read_kinds():
        try:
            items = client.list(resource).items
        except StatusError as error:
            if resource in _NEEDED or error.code not in (_FORBIDDEN, _NOT_FOUND):
                raise
            if error.code == _NOT_FOUND:
                absent.append(resource)
            else:
                tell(f"you may not read {resource.qualified}, so the plan ignores them: {error.message}")
            continue
        if read is not None:
            read.add(resource)
        for obj in items:
            named = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
            yield resource.qualified, named
    if all(resource in absent for resource in _GANGS):  # one API is enough
        names = ", ".join(resource.qualified for resource in _GANGS)
        tell(f"the cluster does not have these kinds: {names}; every pod is planned alone")
    elif QUEUES not in absent and POD_GROUPS in absent:
        tell(
            f"the cluster does not have the kind {POD_GROUPS.qualified}: the installation of Windlass is "
            "incomplete; to complete it: windlass install"
        )


def installed_config_map(client: BlockingClient, name: str) -> dict[str, Any] | None:
    """Return the ConfigMap of this name of the Windlass in a cluster, in any namespace.

    If there are several, that of the usual namespace comes first, then the order is by
    name. Without rights for all namespaces only the usual one is read. ``None`` if
    there is none, or the user may not read it. Raises ``StatusError`` and
    ``Unreachable``.
    """
    items = if_served(lambda: client.list(CONFIG_MAPS, fields=f"metadata.name={name}").items, None)
    if items is None:
        return if_served(lambda: client.find(CONFIG_MAPS, name, NAMESPACE), None)
    by_namespace = {item["metadata"]["namespace"]: item for item in items}
    return next(
        (by_namespace[space] for space in (NAMESPACE, *sorted(by_namespace)) if space in by_namespace), None
    )


def policy_in_force(client: BlockingClient, embedded: bool) -> str:
    """Return the scheduler configuration in force as text; ``""`` if none is set or readable.

    It is that of the installed Windlass, or of single-node mode (``embedded``). Raises
    :class:`WindlassError` if the ConfigMap holds several.
    """
    if not embedded:
        return ((installed_config_map(client, "windlass-scheduler") or {}).get("data") or {}).get(
            CONFIG_KEY
        ) or ""
    name, namespace = CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE
    config_map = if_served(lambda: client.find(CONFIG_MAPS, name, namespace), None)
    data = (config_map or {}).get("data") or {}
    if not data:
        return ""
    try:
        return text_of(data)
    except ConfigError as error:
        raise WindlassError("WL-CONFIG-465", f"ConfigMap {namespace}/{name}: {error}") from error
