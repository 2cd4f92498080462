"""Labels, annotations and variables of LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``)."""

from __future__ import annotations

PREFIX = "leaderworkerset.sigs.k8s.io/"
NAME = f"{PREFIX}name"
GROUP_INDEX = f"{PREFIX}group-index"
WORKER_INDEX = f"{PREFIX}worker-index"
GROUP_KEY = f"{PREFIX}group-key"
REVISION = f"{PREFIX}template-revision-hash"
SUBGROUP_INDEX = f"{PREFIX}subgroup-index"
SUBGROUP_KEY = f"{PREFIX}subgroup-key"

SIZE = f"{PREFIX}size"
REPLICAS = f"{PREFIX}replicas"
LEADER_NAME = f"{PREFIX}leader-name"
EXCLUSIVE_TOPOLOGY = f"{PREFIX}exclusive-topology"
SUBGROUP_EXCLUSIVE_TOPOLOGY = f"{PREFIX}subgroup-exclusive-topology"
SUBGROUP_SIZE = f"{PREFIX}subgroup-size"
SUBGROUP_TYPE = f"{PREFIX}subgroup-policy-type"
SUBDOMAIN_POLICY = f"{PREFIX}subdomainPolicy"
LEADER_REQUESTS_TPUS = f"{PREFIX}leader-requests-tpus"

UNIQUE_PER_REPLICA = "UniquePerReplica"
LEADER_READY = "LeaderReady"
LEADER_EXCLUDED = "LeaderExcluded"
RECREATE_ON_RESTART = "RecreateGroupOnPodRestart"
RECREATE_AFTER_START = "RecreateGroupAfterStart"


def group_name(name: str, index: str | int, revision: str) -> str:
    """Return the name of the PodGroup of one group."""
    return f"{name}-{index}-{revision}"
