"""Kinds of CustomResourceDefinitions, as reconcilers of all kinds see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windlass.api import resources
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from windlass.api.structural.definition import resources_of
from windlass.client.informers import Informer
from windlass.controllers.runner import Informers

_BUILT_IN = frozenset((resource.group, resource.plural) for resource in resources.ALL)


def kinds_of(crd: Mapping[str, Any]) -> list[Resource]:
    """Return the served versions of a definition, the newest first.

    A kind that Windlass serves itself has none here.
    """
    names = (crd["spec"]["group"], crd["spec"]["names"]["plural"])
    if names in _BUILT_IN:
        return []
    return [replace(resource, definition=None) for resource in resources_of(crd)]


class FollowedKinds:
    """Kinds that a server's CustomResourceDefinitions declare now."""

    def __init__(self, informers: Informers) -> None:
        self.informer: Informer[dict[str, Any]] = informers.informer(CUSTOM_RESOURCE_DEFINITIONS)

    def resources(self) -> list[Resource]:
        """Return one resource for each kind, in its newest version."""
        return [found[0] for crd in self.informer.items.values() if (found := kinds_of(crd))]
