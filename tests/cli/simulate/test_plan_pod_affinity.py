"""``windlass plan``: gangs with required pod affinity to themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, priority_class

Json = dict[str, Any]
GPU = {"nvidia.com/gpu": 1}
HOST = "kubernetes.io/hostname"
TIERS = {
    "actions": "enqueue, allocate, backfill, preempt, reclaim",
    "tiers": [
        {"plugins": [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}]},
        {"plugins": [{"name": name} for name in ("drf", "predicates", "proportion", "nodeorder", "binpack")]},
    ],
}
CONFIGURATIONS = pytest.mark.parametrize("configuration", [None, TIERS], ids=["default", "tiers"])


def zone(name: str, nodes: int) -> list[Json]:
    return [node(f"{name}{at}", gpus=1, labels={"zone": name}) for at in range(nodes)]


def together(key: str = "zone") -> Json:
    term = {"labelSelector": {"matchLabels": {"app": "g"}}, "topologyKey": key}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def members(count: int, key: str = "zone", **spec: Any) -> list[Json]:
    more = {"scheduler": "volcano", "labels": {"app": "g"}, "affinity": together(key), "requests": GPU}
    return [pod(f"g-{at}", group="g", **more, **spec) for at in range(count)]


def low(at: int, on: str) -> list[Json]:
    """Return a running pod of low priority that may be preempted."""
    notes = {"volcano.sh/preemptable": "true"}
    running = pod(
        f"low-{at}",
        group=f"low{at}",
        scheduler="volcano",
        node=on,
        phase="Running",
        requests=GPU,
        annotations=notes,
        priority=10,
        priorityClassName="low",
    )
    return [group(f"low{at}", 1, priorityClassName="low", phase="Running"), running]


def planned(windlass: Any, path: Path, *objects: Json, configuration: Json | None = None) -> Json:
    dump, config = path / "cluster.yaml", path / "scheduler.conf"
    dump.write_text(yaml.safe_dump_all(objects))
    config.write_text(yaml.safe_dump(configuration or {}))
    with_config = ["--config", str(config)] if configuration else []
    done = windlass("plan", "-f", str(dump), *with_config, "--until-stable", "-o", "json")
    assert done.code == 0, done.err
    result: Json = json.loads(done.out)
    return result


def places(plan: Json) -> list[str]:
    return sorted(bind["node"] for bind in plan["binds"] if bind["pod"].startswith("g-"))


@CONFIGURATIONS
def test_a_gang_starts_in_the_zone_that_holds_all_of_it(
    windlass: Any, tmp_path: Path, configuration: Json | None
) -> None:
    cluster = [*zone("a", 2), *zone("b", 4), *zone("c", 3), group("g", 4), *members(4)]
    plan = planned(windlass, tmp_path, *cluster, configuration=configuration)
    assert places(plan) == ["b0", "b1", "b2", "b3"]


@CONFIGURATIONS
def test_a_gang_starts_on_the_node_that_holds_all_of_it(
    windlass: Any, tmp_path: Path, configuration: Json | None
) -> None:
    nodes = [node(name, gpus=gpus) for name, gpus in (("n1", 2), ("n2", 4), ("n3", 3))]
    plan = planned(windlass, tmp_path, *nodes, group("g", 4), *members(4, HOST), configuration=configuration)
    assert places(plan) == ["n2"] * 4


@CONFIGURATIONS
def test_capacity_is_freed_in_one_zone(windlass: Any, tmp_path: Path, configuration: Json | None) -> None:
    victims = [each for at in range(4) for each in low(at, f"b{at}")]
    classes = [priority_class("top", 1000), priority_class("low", 10)]
    gang = group("g", 4, priorityClassName="top", phase="Inqueue")
    pods = members(4, priority=1000, priorityClassName="top")
    plan = planned(
        windlass,
        tmp_path,
        *classes,
        *zone("a", 2),
        *zone("b", 4),
        *victims,
        gang,
        *pods,
        configuration=configuration,
    )
    assert places(plan) == ["b0", "b1", "b2", "b3"]
    assert {eviction["node"] for eviction in plan["evictions"]} == {"b0", "b1", "b2", "b3"}


def test_a_role_without_affinity_may_be_elsewhere(windlass: Any, tmp_path: Path) -> None:
    other = pod("h-0", group="g", scheduler="volcano", requests=GPU)
    plan = planned(windlass, tmp_path, *zone("a", 2), *zone("b", 3), group("g", 4), *members(3), other)
    assert places(plan) == ["b0", "b1", "b2"]
    assert len(plan["binds"]) == 4


def test_a_gang_of_kai_starts_in_the_zone_that_holds_all_of_it(windlass: Any, tmp_path: Path) -> None:
    pods = [
        kai_pod(f"g-{at}", "g", "q", labels={"app": "g"}, affinity=together(), requests=GPU)
        for at in range(4)
    ]
    queues = [kai_queue("top"), kai_queue("q", "top")]
    plan = planned(windlass, tmp_path, *zone("a", 2), *zone("b", 4), *queues, kai_group("g", 4, "q"), *pods)
    assert places(plan) == ["b0", "b1", "b2", "b3"]


@pytest.mark.parametrize(
    ("nodes", "code", "sentence"),
    [
        (3, "ExceedsEveryDomain", "of 2 none would hold them even if empty: b would hold 3."),
        (4, "TopologyPlacementFailed", "of 2 none holds them now: b holds 3, a holds 2."),
    ],
)
def test_the_domains_are_named_while_it_waits(
    windlass: Any, tmp_path: Path, nodes: int, code: str, sentence: str
) -> None:
    busy = pod("busy", node="b3", phase="Running", requests=GPU, scheduler="volcano")
    cluster = [*zone("a", 2), *zone("b", nodes), *([busy] if nodes > 3 else [])]
    plan = planned(windlass, tmp_path, *cluster, group("g", 4), *members(4))
    (waiting,) = plan["pending"]
    start = "4 pods must lie in one domain of zone (pod affinity); "
    assert (waiting["code"], waiting["message"]) == (code, start + sentence)
