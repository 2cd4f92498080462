"""Workers of several pods (``spec.shards``): addresses and ranks of the pods, and their part of the gang. Pure.

Rank 0 leases and commits rows. All containers get the variables of a torch program and of a
LeaderWorkerSet, so that the ranks of a sharded server or program find one another.
"""

from __future__ import annotations

import zlib
from typing import Any

from windlass.api.fields import aigc
from windlass.jobs.aigc.job import AigcJob
from windlass.jobs.aigc.topology import network_topology
from windlass.jobs.definition import Role

_FIRST_PORT, _PORTS = 10_000, 10_000


def shard_policy(job: AigcJob, role: Role) -> dict[str, Any]:
    """Return the part of the PodGroup's ``subGroupPolicy``: each worker starts and is evicted as a whole."""
    network = network_topology(job.spec)
    return {
        "name": role.key,
        "labelSelector": {"matchLabels": {aigc.JOB_NAME: job.definition.name, aigc.ROLE: role.key}},
        "matchLabelKeys": [aigc.INDEX],
        "subGroupSize": role.size,
        "minSubGroups": max(1, role.minimum // role.size),
        **({"networkTopology": network} if network else {}),
    }


def shards_port(job: AigcJob, replica: int) -> int:
    """Return the port of rank 0 of a worker. Workers may share the network of a machine."""
    return _FIRST_PORT + zlib.crc32(f"{job.definition.uid}/{replica}".encode()) % _PORTS


def shard_variables(job: AigcJob, role: Role, index: int) -> dict[str, str]:
    """Return the variables by which the pods of a worker find one another."""
    definition = job.definition
    replica, rank = role.place_of(index)
    leader = definition.pod_name(role, replica * role.size)
    address = f"{leader}.{job.shards_host}.{definition.namespace}.svc"
    port, size = str(shards_port(job, replica)), str(role.size)
    return {
        "RANK": str(rank),
        "WORLD_SIZE": size,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "NODE_RANK": str(rank),
        "PET_NNODES": size,
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "LWS_LEADER_ADDRESS": address,
        "LWS_GROUP_SIZE": size,
        "LWS_WORKER_INDEX": str(rank),
    }


def add_shard(job: AigcJob, body: dict[str, Any], role: Role, index: int) -> None:
    """Give a pod its address, and all its containers their rank. Variables of the template stay."""
    body["hostname"] = job.definition.pod_name(role, index)
    body["subdomain"] = job.shards_host
    variables = shard_variables(job, role, index)
    for field in ("initContainers", "containers"):
        if body.get(field):
            body[field] = [_with_variables(one, variables) for one in body[field]]
    first, *others = body["containers"]
    rank = {"name": "WINDLASS_BATCH_SHARD", "value": variables["RANK"]}
    body["containers"] = [{**first, "env": [*first["env"], rank]}, *others]


def _with_variables(container: dict[str, Any], variables: dict[str, str]) -> dict[str, Any]:
    given = container.get("env") or ()
    stated = {one.get("name") for one in given}
    added = [{"name": name, "value": text} for name, text in variables.items() if name not in stated]
    return {**container, "env": [*added, *given]}
