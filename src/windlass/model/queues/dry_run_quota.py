"""ResourceQuotas in a dry run: the pods of a dump that would not be created.

Kubernetes counts a quota when a pod is created, not when it is scheduled. In a dump of
a real cluster every pod has passed its quotas. In a dump that a user has changed for a
what-if question, this module determines which pods would not. Bound pods come first,
then the others by age, and in the order of the dump at equal age. Deleted pods release
their quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from windlass.api import quantities
from windlass.api.quota_usage import Usage, counted, counted_kinds, in_scope, shown, usage
from windlass.api.reasons import Blocker, Explanation, Reason
from windlass.api.resources import PODS

_NONE = Fraction(0)


@dataclass(slots=True)
class _Quota:
    name: str
    spec: Mapping[str, Any]
    hard: dict[str, Fraction]
    used: Usage = field(default_factory=dict)


@dataclass(slots=True)
class _Share:
    """Use of each quota of the namespace that counts a pod."""

    amounts: tuple[tuple[_Quota, Usage], ...]


class NamespaceQuotas:
    """Quotas of namespaces.

    ``withheld``: pods that their quota does not permit, by key, with the reason.
    """

    def __init__(self, quotas: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> None:
        """Read raw objects. Raises ``QuantityError`` on an unreadable amount."""
        self.withheld: dict[str, Explanation] = {}
        self._quotas: dict[str, list[_Quota]] = {}
        self._shares: dict[str, _Share] = {}
        for quota in quotas:
            self._enter(quota)
        waiting: list[tuple[str, str]] = []
        for pod in pods if self._quotas else ():
            metadata = pod["metadata"]
            key = f"{metadata.get('namespace', '')}/{metadata['name']}"
            share = self._share(metadata.get("namespace", ""), pod)
            if share is None:
                continue
            self._shares[key] = share
            if (pod.get("spec") or {}).get("nodeName"):
                _charge(share, 1)
            else:
                waiting.append((str(metadata.get("creationTimestamp") or ""), key))
        for _, key in sorted(waiting, key=lambda entry: entry[0]):
            self._admit(key)

    def release(self, key: str) -> None:
        """Release the quota of a deleted pod."""
        share = self._shares.pop(key, None)
        if share is not None and self.withheld.pop(key, None) is None:
            _charge(share, -1)

    def retry(self) -> list[str]:
        """Return the withheld pods that can be created now."""
        before = list(self.withheld)
        self.withheld.clear()
        for key in before:
            self._admit(key)
        return [key for key in before if key not in self.withheld]

    def _enter(self, quota: Mapping[str, Any]) -> None:
        metadata, spec = quota["metadata"], quota.get("spec") or {}
        hard = {
            name: quantities.parse(str(amount))
            for name, amount in (spec.get("hard") or {}).items()
            if counted(name) and PODS in counted_kinds([name])
        }
        if hard:
            namespace = metadata.get("namespace", "")
            self._quotas.setdefault(namespace, []).append(_Quota(metadata["name"], spec, hard))

    def _share(self, namespace: str, pod: Mapping[str, Any]) -> _Share | None:
        uses = []
        for quota in self._quotas.get(namespace, ()):
            if in_scope(quota.spec, PODS, pod):
                amounts = {name: amount for name, amount in usage(PODS, pod).items() if name in quota.hard}
                if any(amounts.values()):
                    uses.append((quota, amounts))
        return _Share(tuple(uses)) if uses else None

    def _admit(self, key: str) -> None:
        share = self._shares[key]
        blockers = tuple(
            Blocker(
                Reason.NAMESPACE_QUOTA,
                resource=name,
                needed=shown(name, amount),
                available=shown(name, max(_NONE, quota.hard[name] - quota.used.get(name, _NONE))),
                detail=f"ResourceQuota {key.partition('/')[0]}/{quota.name}",
            )
            for quota, amounts in share.amounts
            for name, amount in sorted(amounts.items())
            if quota.used.get(name, _NONE) + amount > quota.hard[name]
        )
        if blockers:
            self.withheld[key] = _explain(key, blockers)
        else:
            _charge(share, 1)


def _charge(share: _Share, sign: int) -> None:
    for quota, amounts in share.amounts:
        for name, amount in amounts.items():
            quota.used[name] = quota.used.get(name, _NONE) + sign * amount


def _explain(key: str, blockers: tuple[Blocker, ...]) -> Explanation:
    first = blockers[0]
    namespace = key.partition("/")[0]
    return Explanation(
        code=Reason.NAMESPACE_QUOTA,
        message=(
            f"pod {key} would not be created: {first.detail} has {first.available} {first.resource} left, "
            f"and it needs {first.needed}"
        ),
        blockers=blockers,
        remedies=(
            f"raise spec.hard[{first.resource}] of {first.detail}",
            f"delete other pods of namespace {namespace}",
        ),
    )


def without_effect(quotas: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each name in ResourceQuotas that limits nothing."""
    for quota in quotas:
        metadata = quota["metadata"]
        for name in (quota.get("spec") or {}).get("hard") or {}:
            if not counted(name):
                resource = name.removeprefix("limits.")
                yield (
                    f"ResourceQuota {metadata.get('namespace', '')}/{metadata['name']}: spec.hard[{name}] limits "
                    f"nothing, as Kubernetes has no quotas of limits of extended resources: write "
                    f"requests.{resource}, or limit the queue (capability.{resource})"
                )
