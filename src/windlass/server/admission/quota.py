"""ResourceQuota: rejection of writes that would exceed a quota, also under concurrency.

The event loop stores each admitted object before the next review, and usage counts all
submitted objects. So two
concurrent creates cannot both take the last unit. Usage per namespace is updated by
changes, without recounting.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from windlass.api import errors, quantities, quota_usage
from windlass.api.quota_usage import Usage
from windlass.api.resources import RESOURCE_QUOTAS, Resource
from windlass.server.admission.objects import Objects
from windlass.server.admission.plugin import Review

_NONE = Fraction(0)


@dataclass(slots=True)
class _Account:
    """Usage of one quota by one kind: key → (version, usage), and the sum."""

    spec: Mapping[str, Any]
    objects: dict[str, tuple[int, Usage]] = field(default_factory=dict)
    total: Usage = field(default_factory=dict)
    position: int | None = None
    """Position in the history of the kind up to which usage is counted."""

    def add(self, amounts: Usage, sign: int) -> None:
        for name, amount in amounts.items():
            self.total[name] = self.total.get(name, _NONE) + sign * amount


class QuotaUsage:
    """Counts usage, and rejects writes that exceed a quota."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._accounts: dict[tuple[str, Resource], _Account] = {}

    def check(self, review: Review) -> None:
        """Raise 403, with kube-apiserver's message, if the write would exceed a quota."""
        if not review.main or not review.resource.namespaced:
            return
        quotas = self._objects.list(RESOURCE_QUOTAS, review.namespace)
        if not quotas:
            self._forget(review.namespace)
            return
        for quota in sorted(quotas, key=lambda q: q["metadata"]["name"]):
            self._check_one(review, quota)

    def _check_one(self, review: Review, quota: Mapping[str, Any]) -> None:
        spec = quota.get("spec") or {}
        hard = {name: text for name, text in (spec.get("hard") or {}).items() if quota_usage.counted(name)}
        if review.resource not in quota_usage.counted_kinds(hard):
            return
        if not quota_usage.in_scope(spec, review.resource, review.object):
            return
        wanted = self._delta(review, spec, hard)
        if wanted is None:
            return
        name = quota["metadata"]["name"]
        self._require_stated(review, name, hard)
        requested = {key: amount for key, amount in wanted.items() if amount > 0}
        if not requested:
            return
        used = self.used(review.namespace, quota, review.resource)
        over = [
            key
            for key, amount in requested.items()
            if used.get(key, _NONE) + amount > quantities.parse(str(hard[key]))
        ]
        if over:
            raise errors.forbidden(
                review.resource, review.name, _exceeded_message(name, sorted(over), requested, used, hard)
            )

    def _delta(self, review: Review, spec: Mapping[str, Any], hard: Mapping[str, Any]) -> Usage | None:
        """Return the additional usage by quota name; ``None`` if it cannot be counted."""
        try:
            new = quota_usage.usage(review.resource, review.object)
            old: Usage = {}
            if review.old is not None and quota_usage.in_scope(spec, review.resource, review.old):
                old = quota_usage.usage(review.resource, review.old)
        except quantities.QuantityError:
            return None  # reported by validation
        return {
            name: new.get(name, _NONE) - old.get(name, _NONE) for name in hard if name in new or name in old
        }

    def _require_stated(self, review: Review, name: str, hard: Mapping[str, Any]) -> None:
        """Raise 403 if a compute quota applies and a container states no cpu or memory."""
        missing = _unstated(review, hard) if review.creating else []
        if missing:
            raise errors.forbidden(
                review.resource,
                review.name,
                f"failed quota: {name}: must specify {'; '.join(missing)}",
            )

    def used(self, namespace: str, quota: Mapping[str, Any], resource: Resource) -> Usage:
        """Return the usage of ``quota`` by all submitted objects of ``resource``."""
        key = (f"{namespace}/{quota['metadata']['name']}", resource)
        spec = quota.get("spec") or {}
        account = self._accounts.get(key)
        scope = {name: spec.get(name) for name in ("scopes", "scopeSelector")}
        if account is None or account.spec != scope:
            account = self._accounts[key] = _Account(scope)
        self._refresh(account, namespace, resource)
        return account.total

    def _refresh(self, account: _Account, namespace: str, resource: Resource) -> None:
        """Update the account with all changes since its position."""
        account.position, changed = self._objects.changed(resource, account.position)
        if changed is None:
            changed = [*account.objects, *self._objects.keys(resource, namespace)]
        prefix = f"{namespace}/"
        for key in changed:
            if key.startswith(prefix):
                self._update(account, resource, key)

    def _update(self, account: _Account, resource: Resource, key: str) -> None:
        version = self._objects.version(resource, key)
        known = account.objects.get(key)
        if known is not None and known[0] == version:
            return
        if known is not None:
            account.add(known[1], -1)
            del account.objects[key]
        if version is not None:
            amounts = self._usage_of(account, resource, key)
            account.add(amounts, 1)
            account.objects[key] = (version, amounts)

    def _usage_of(self, account: _Account, resource: Resource, key: str) -> Usage:
        obj = self._objects.by_key(resource, key)
        if obj is None or not quota_usage.in_scope(account.spec, resource, obj):
            return {}
        try:
            return quota_usage.usage(resource, obj)
        except quantities.QuantityError:
            return {}

    def _forget(self, namespace: str) -> None:
        if self._accounts:
            prefix = f"{namespace}/"
            for key in [key for key in self._accounts if key[0].startswith(prefix)]:
                del self._accounts[key]


def _unstated(review: Review, hard: Mapping[str, Any]) -> list[str]:
    """Return ``requests.cpu for: a,b`` for each compute resource that a container omits."""
    if review.resource.plural != "pods" or review.resource.group:
        return []
    spec = review.object.get("spec") or {}
    whole = spec.get("resources") or {}
    groups: dict[tuple[str, ...], list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        amounts = container.get("resources") or {}
        names = tuple(
            sorted(
                name
                for name in hard
                if (place := _place(name))
                and place[1] not in (amounts.get(place[0]) or {})
                and place[1] not in (whole.get(place[0]) or {})
            )
        )
        if names:
            groups.setdefault(names, []).append(container.get("name", ""))
    return [
        f"{name} for: {','.join(sorted(containers))}"
        for names, containers in groups.items()
        for name in names
    ]


def _place(name: str) -> tuple[str, str] | None:
    """Return (requests, cpu) for ``requests.cpu``; ``None`` if containers may omit it."""
    which, _, resource = name.rpartition(".")
    if name in ("cpu", "memory"):
        return "requests", name
    return (which, resource) if which in ("requests", "limits") and resource in ("cpu", "memory") else None


def _exceeded_message(
    quota: str, names: Iterable[str], requested: Usage, used: Usage, hard: Mapping[str, Any]
) -> str:
    names = list(names)
    shown_requested = ",".join(f"{name}={quota_usage.shown(name, requested[name])}" for name in names)
    taken = ",".join(f"{name}={quota_usage.shown(name, used.get(name, _NONE))}" for name in names)
    limited = ",".join(f"{name}={hard[name]}" for name in names)
    return f"exceeded quota: {quota}, requested: {shown_requested}, used: {taken}, limited: {limited}"
