"""Spec of a LeaderWorkerSet, and its revisions."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass.api.fields import leaderworkerset

Json = dict[str, Any]
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class GroupTemplate:
    """Template of the groups of one revision.

    ``revision``: hash of the template.
    ``record``: fields of the spec that a ControllerRevision keeps.
    """

    revision: str
    record: Json

    @property
    def _template(self) -> Json:
        return self.record["leaderWorkerTemplate"]

    @property
    def size(self) -> int:
        return int(self._template.get("size") or 1)

    @property
    def leader(self) -> Json:
        """Pod template of leaders: that of workers unless the spec has another one."""
        return self._template.get("leaderTemplate") or self._template["workerTemplate"]

    @property
    def worker(self) -> Json:
        return self._template["workerTemplate"]

    @property
    def restart_policy(self) -> str:
        return self._template.get("restartPolicy") or leaderworkerset.RECREATE_ON_RESTART

    @property
    def sub_group(self) -> Json:
        return self._template.get("subGroupPolicy") or {}

    @property
    def claims(self) -> list[Json]:
        return self._template.get("volumeClaimTemplates") or []

    @property
    def retention(self) -> Json | None:
        return self._template.get("persistentVolumeClaimRetentionPolicy")

    @property
    def unique_subdomains(self) -> bool:
        return (self.record.get("networkConfig") or {}).get(
            "subdomainPolicy"
        ) == leaderworkerset.UNIQUE_PER_REPLICA


@dataclass(frozen=True, slots=True)
class LeaderWorkerSet:
    """A LeaderWorkerSet as its controller reads it."""

    name: str
    namespace: str
    uid: str
    annotations: Json
    replicas: int
    startup_policy: str
    partition: int
    max_unavailable: int
    max_surge: int
    template: GroupTemplate


def template_of(record: Json) -> GroupTemplate:
    """Return the template of a record of a ControllerRevision."""
    revision = hashlib.sha256(_encode(record)).hexdigest()[:10]
    return GroupTemplate(revision, record)


def read_set(obj: Json) -> LeaderWorkerSet:
    """Read a LeaderWorkerSet, which has its defaults."""
    meta, spec = obj["metadata"], obj["spec"]
    rolling = (spec.get("rolloutStrategy") or {}).get("rollingUpdateConfiguration") or {}
    replicas = int(spec.get("replicas", 1))
    record = {"leaderWorkerTemplate": spec["leaderWorkerTemplate"]}
    if spec.get("networkConfig"):
        record["networkConfig"] = spec["networkConfig"]
    return LeaderWorkerSet(
        name=meta["name"],
        namespace=meta["namespace"],
        uid=meta.get("uid") or "",
        annotations=meta.get("annotations") or {},
        replicas=replicas,
        startup_policy=spec.get("startupPolicy") or "LeaderCreated",
        partition=int(rolling.get("partition") or 0),
        max_unavailable=scaled(rolling.get("maxUnavailable", 1), replicas, up=False),
        max_surge=min(scaled(rolling.get("maxSurge", 0), replicas, up=True), replicas),
        template=template_of(record),
    )


def scaled(value: Any, replicas: int, *, up: bool) -> int:
    """Return an integer or a percentage of the replicas, rounded."""
    if isinstance(value, str) and value.endswith("%"):
        product = int(value[:-1]) * replicas
        return -(-product // 100) if up else product // 100
    return int(value)
