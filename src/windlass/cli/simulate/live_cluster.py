"""What ``windlass plan`` reads from a running cluster, whether Windlass is installed there or not.

Nothing is written. A kind that the cluster does not have, or that the user may not list, is left out and told; nodes
and pods are what no plan can do without.
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

Tell = Callable[[str], None]
CONFIG_KEY = "windlass.conf"
_FORBIDDEN, _NOT_FOUND = 403, 404
_NEEDED = (NODES, PODS)
_STORAGE = (STORAGE_CLASSES, CSI_NODES, CSI_DRIVERS, STORAGE_CAPACITIES)
_GANGS = (QUEUES, POD_GROUPS, KAI_QUEUES, KAI_POD_GROUPS, COSCHEDULING_POD_GROUPS)


def read_kinds() -> tuple[Resource, ...]:
    """The kinds that say something to a scheduler, as a server lists them."""
    served = dict.fromkeys((*_NEEDED, *ALL, *_STORAGE, NATIVE_POD_GROUPS))
    return tuple(kind for kind in served if f"{kind.api_version}/{kind.kind}" in KINDS)


def objects(
    client: BlockingClient, tell: Tell, read: set[Resource] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of the cluster with the words for its place; ``read`` gets the kinds that there are. Raises
    ``StatusError`` where nodes or pods may not be read, ``Unreachable``."""
    absent: list[Resource] = []
    for resource in read_kinds():
        try:
            found = client.list(resource).items
        except StatusError as error:
            if resource in _NEEDED or error.code not in (_FORBIDDEN, _NOT_FOUND):
                raise
            if error.code == _NOT_FOUND:
                absent.append(resource)
            else:
                tell(f"{resource.qualified} may not be read, so the plan knows none of them: {error.message}")
            continue
        if read is not None:
            read.add(resource)
        for obj in found:
            named = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
            yield resource.qualified, named
    if all(resource in absent for resource in _GANGS):  # one of the APIs is enough
        names = ", ".join(resource.qualified for resource in _GANGS)
        tell(f"the cluster does not have: {names}; every pod is planned by itself")
    elif QUEUES not in absent and POD_GROUPS in absent:
        tell(
            f"the cluster does not have: {POD_GROUPS.qualified}; half of Windlass is installed: windlass install"
        )


def own_config_map(client: BlockingClient, name: str) -> dict[str, Any] | None:
    """The ConfigMap of this name of the Windlass that runs on a cluster, in whichever namespace it is installed: where
    there are several, the usual one comes first, then by name. Who may not look through all namespaces looks in the
    usual one. ``None`` where there is none, or the user may not read it. Raises ``StatusError``, ``Unreachable``."""
    everywhere = if_served(lambda: client.list(CONFIG_MAPS, fields=f"metadata.name={name}").items, None)
    if everywhere is None:
        return if_served(lambda: client.find(CONFIG_MAPS, name, NAMESPACE), None)
    spaces = {found["metadata"]["namespace"]: found for found in everywhere}
    return next((spaces[space] for space in (NAMESPACE, *sorted(spaces)) if space in spaces), None)


def policy(client: BlockingClient, embedded: bool) -> str:
    """The scheduler configuration of the Windlass that is installed, or of a box, as text; ``""`` where none is, or
    where the user may not read it. Raises :class:`WindlassError` for a ConfigMap that holds several."""
    if not embedded:
        return ((own_config_map(client, "windlass-scheduler") or {}).get("data") or {}).get(CONFIG_KEY) or ""
    name, namespace = CONFIG_MAP_NAME, CONFIG_MAP_NAMESPACE
    found = if_served(lambda: client.find(CONFIG_MAPS, name, namespace), None)
    data = (found or {}).get("data") or {}
    if not data:
        return ""
    try:
        return text_of(data)
    except ConfigError as error:
        raise WindlassError("WL-CONFIG-465", f"ConfigMap {namespace}/{name}: {error}") from error
