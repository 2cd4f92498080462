"""Table of scores for a job: ranking of the nodes for its pods, score by score.

It is computed from the current cluster with the scheduler's engine and configuration.
Pods of the job that have a node are treated as pending. So the table of a job that was
just placed is the one that was used, as far as nothing else has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.api import annotations as names
from windlass.api import resources
from windlass.api.errors import StatusError
from windlass.cli import tables
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.jobs import Job, pod_phase
from windlass.cli.text import plural

if TYPE_CHECKING:
    from windlass.engine.placement.score_table import ScoreTable
    from windlass.spi.configuration import SchedulerConfig

Object = dict[str, Any]
SHOWN = 10
"""Maximum number of nodes in the table for people."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Ranking of nodes for a job.

    ``config``: the policy in force.
    ``tables``: one for each kind of pods of the job.
    ``rejected``: node → why it takes no such pod.
    """

    config: SchedulerConfig
    tables: tuple[ScoreTable, ...]
    rejected: Mapping[str, str]


def ranking_of(invocation: Invocation, job: Job) -> Ranking:
    """Return the ranking of nodes for the unfinished pods of a job, as if they were pending."""
    from windlass.cli.simulate.live_cluster import policy_in_force
    from windlass.engine.config import EngineConfig
    from windlass.model import scheduler_config
    from windlass.model.cluster import snapshot
    from windlass.model.cluster.cluster_model import ClusterModel
    from windlass.model.cluster.engine_factory import make_engine
    from windlass.model.pods.device_exclusion import exclusive_rules

    text = policy_in_force(invocation.client, embedded=not invocation.target.remote)
    config = scheduler_config.parse(text).config if text else scheduler_config.SchedulerConfig()
    model = ClusterModel(
        snapshot.EVERY_SCHEDULER, tiers=bool(config.tiers), exclusive=exclusive_rules(config)
    )
    engine = make_engine(config, lambda _: None, base=EngineConfig(actions=("allocate",)))
    model.read_labels(engine.reads, images=engine.reads_images)
    pods = {_key(pod) for pod in job.pods if pod_phase(pod) not in ("Succeeded", "Failed")}
    snapshot.load(model, _objects(invocation, pods))
    now = invocation.clock.now()
    engine.apply(model.take(now))
    engine.update_plugins(now)  # as a cycle does: some scores follow the usual requests of pods
    engine.update_groups(now)
    named = dict.fromkeys(filter(None, (model.groups.group_of(key) for key in sorted(pods))))
    groups = [group for group in named if group in engine.state.groups]
    rejected = {node: why for group in groups for node, why in engine.rejections(group).items()}
    return Ranking(config, _merged(table for group in groups for table in engine.scores(group)), rejected)


def _merged(found: Iterable[ScoreTable]) -> tuple[ScoreTable, ...]:
    """Merge tables of pods for which the ranking of nodes is equal."""
    merged: dict[tuple[Any, Any], ScoreTable] = {}
    for table in found:
        key = (table.columns, table.nodes)
        before = merged.get(key)
        merged[key] = replace(table, pods=table.pods + (before.pods if before else 0))
    return tuple(merged.values())


def _objects(invocation: Invocation, pods: set[str]) -> Iterator[tuple[str, Object]]:
    from windlass.model.cluster import snapshot

    for kind in snapshot.KINDS:
        version, _, name = kind.rpartition("/")
        resource = resources.by_kind(version, name)
        if resource is None:
            continue
        try:
            items = invocation.client.list(resource).items
        except StatusError as error:
            if error.code != 404:  # the cluster does not have this API
                raise
            continue
        for item in items:
            obj: Object = {**item, "apiVersion": version, "kind": name}
            if resource is resources.PODS and _key(obj) in pods:
                obj = _unplaced(obj)
            yield f"{name} {obj['metadata']['name']}", obj


def _key(pod: Object) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def _unplaced(pod: Object) -> Object:
    metadata = dict(pod["metadata"])
    annotations_before = metadata.get("annotations") or {}
    metadata["annotations"] = {key: text for key, text in annotations_before.items() if key != names.DEVICES}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def as_records(found: Sequence[ScoreTable]) -> list[Object]:
    """Return the tables for programs: all nodes, best first."""
    return [
        {
            "pods": table.pods,
            "scores": [
                {"plugin": column.plugin, "part": column.part, "weight": column.weight}
                for column in table.columns
            ],
            "nodes": [
                {
                    "node": row.node,
                    "fits": row.fits,
                    "total": round(row.total, 4),
                    "points": [round(points, 4) for points in row.points],
                }
                for row in table.nodes
            ],
        }
        for table in found
    ]


def as_text(found: Sequence[ScoreTable]) -> str:
    """Return the tables for people: weight × points of each score, best nodes first."""
    parts = []
    for table in found:
        header = ["NODE", "FITS", "TOTAL", *(f"{c.title} ×{c.weight:g}" for c in table.columns)]
        rows = [
            [
                row.node,
                "yes" if row.fits else "no",
                f"{row.total:.1f}",
                *(f"{c.weight * points:.1f}" for c, points in zip(table.columns, row.points, strict=True)),
            ]
            for row in table.nodes[:SHOWN]
        ]
        parts.append(f"scores for {plural(table.pods, 'pod')}, weight times points:\n")
        parts.append(tables.render(header, rows, right=frozenset(range(2, len(header)))))
        if len(table.nodes) > SHOWN:
            parts.append(f"{plural(len(table.nodes) - SHOWN, 'more node')} not shown; -o json lists all\n")
    return "".join(parts)
