"""Image locality: against kube-scheduler's formula written out for one pod and one node, and in the whole way from
objects to a decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from cluster_dsl import Cluster, needs, node
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api import views
from windlass.engine.engine import Engine
from windlass.engine.nodes.images import ImageTable
from windlass.engine.nodes.view import TableView
from windlass.model.cluster.cluster_model import ClusterModel
from windlass.model.cluster.engine_factory import make_engine
from windlass.model.scheduler_config import PluginOption, PluginTier, SchedulerConfig
from windlass.plugins.defaults import default_plugins
from windlass.plugins.volcano.nodes.image_locality import ImageLocality
from windlass.spi.objects import Dialect, Needs, Node

MIB = 1 << 20
NAMES = ("a:1", "b:latest", "reg.io:5000/c:2", "d@sha256:1", "e:1")
Images = Mapping[str, int]


def kube_score(containers: Sequence[str], here: Images, everywhere: Sequence[Images]) -> int:
    """``ImageLocality`` of kube-scheduler 1.35, one step after the other."""
    total = 0
    for image in containers:
        if image in here:
            spread = sum(image in images for images in everywhere) / len(everywhere)
            total += int(here[image] * spread)
    least, most = 23 * MIB, 1000 * MIB * len(containers)
    total = max(least, min(most, total))
    return 100 * (total - least) // (most - least)


def asking(*images: str, request: str = "cpu=1") -> Needs:
    return needs(request, images=tuple(sorted(images)), dialect=Dialect.VOLCANO)


def with_images(name: str, images: Images) -> Node:
    found = node(name)
    return Node(found.name, found.allocatable, found.labels, images=tuple(images.items()))


def scored(cluster: Cluster, wanted: Needs) -> dict[str, float] | None:
    """Return the score by node; ``None`` without any."""
    table = cluster.engine.state.table
    view, score = TableView(table), ImageLocality()
    if not score.has_preference(0, wanted, view):
        return None
    found = score.relative(0, wanted, view, table.live[: table.height])
    return {name: float(found[row]) for name, row in table.rows.items() if table.live[row]}


SIZES = st.one_of(st.integers(0, 3000 * MIB), st.sampled_from([23 * MIB, 1000 * MIB, 24 * MIB, 2 << 40]))
LISTS = st.lists(st.dictionaries(st.sampled_from(NAMES), SIZES), min_size=1, max_size=6)
CONTAINERS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4)


@settings(max_examples=examples(150))
@given(LISTS, LISTS, st.sets(st.integers(0, 5)), CONTAINERS)
def test_every_node_has_kube_schedulers_points(
    before: list[dict[str, int]], after: list[dict[str, int]], gone: set[int], containers: list[str]
) -> None:
    """Also after nodes got other images, came and went."""
    cluster = Cluster(plugins=[])
    for images in (before, after):
        cluster.nodes(*(with_images(f"n{at}", each) for at, each in enumerate(images)))
    for at in gone:
        if f"n{at}" in cluster.node_specs and len(cluster.node_specs) > 1:
            cluster.remove_node(f"n{at}")
    everywhere = {name: dict(spec.images) for name, spec in cluster.node_specs.items()}
    expected = {
        name: kube_score(containers, images, list(everywhere.values())) for name, images in everywhere.items()
    }
    found = scored(cluster, asking(*containers))
    assert (found or dict.fromkeys(expected, 0)) == expected
    assert {name: points for name, points in expected.items() if points} == {
        name: points for name, points in (found or {}).items() if points
    }


def test_figures_worked_out_by_hand() -> None:
    cluster = Cluster(plugins=[]).nodes(
        with_images("n1", {"a:1": 2000 * MIB}), with_images("n2", {}), with_images("n3", {"a:1": 500 * MIB})
    )
    # of 2000 MiB on two of three nodes 1333 count, which is above 1000 MiB; of 500 MiB 333
    assert scored(cluster, asking("a:1")) == {"n1": 100, "n2": 0, "n3": 31}
    assert scored(cluster, asking("a:1", "b:latest")) == {"n1": 66, "n2": 0, "n3": 15}
    assert scored(cluster, asking("b:latest")) is None
    assert scored(cluster, asking()) is None


def test_of_a_name_that_is_listed_twice_the_first_counts() -> None:
    table = ImageTable()
    table.change(0, (), (("a:1", 7), ("a:1", 9)))
    assert table.column("a:1", 1).tolist() == [7]
    table.change(0, (("a:1", 7), ("a:1", 9)), ())
    assert (table.carriers("a:1"), table.column("a:1", 1).tolist()) == (0, [0])


def test_a_gang_goes_where_its_image_is() -> None:
    cluster = Cluster(plugins=[*default_plugins(), ImageLocality()]).queues("default")
    cluster.nodes(*(with_images(f"n{at}", {"a:1": 4000 * MIB} if at == 3 else {}) for at in range(6)))
    cluster.gang("g", 3, asking("a:1", request="gpu=0 cpu=1"))
    cluster.cycle()
    assert cluster.where("g") == {"n3": 3}
    cluster.nodes(with_images("n5", {"b:latest": 4000 * MIB}))
    cluster.gang("h", 1, asking("b:latest"))
    cluster.cycle()
    assert cluster.where("h") == {"n5": 1}
    copy = Engine.load(cluster.engine.dump(), [*default_plugins(), ImageLocality()])
    assert copy.dump() == cluster.engine.dump()
    assert copy.state.table.images.carriers("a:1") == 1


def test_other_images_of_a_node_are_no_news_to_those_who_wait() -> None:
    cluster = Cluster().queues("default").nodes(node("n1 gpu=1"))
    cluster.gang("g", 1, "gpu=2")
    cluster.settle()
    spec = cluster.node_specs["n1"]
    table = cluster.engine.state.table
    shape = table.shape
    cluster.nodes(Node(spec.name, spec.allocatable, spec.labels, images=(("a:1", 5),)))
    assert (table.shape, table.improved, table.nodes_changed) == (shape, set(), False)
    assert table.images.carriers("a:1") == 1


# ---------------------------------------------------------------------- from objects


def kube_node(name: str, images: list[dict[str, Any]]) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "64Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name},
        "status": {"allocatable": allocatable, "images": images},
    }


def kube_pod(name: str, *images: str, init: str = "") -> dict[str, Any]:
    containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {
            "schedulerName": "volcano",
            "containers": containers,
            **({"initContainers": [{"name": "i", "image": init}]} if init else {}),
        },
    }


def engine_with(arguments: dict[str, Any] | None) -> Engine:
    told: list[str] = []
    options = () if arguments is None else (PluginOption("nodeorder", arguments=arguments),)
    tier = PluginTier((PluginOption("gang"), *options))
    found = make_engine(SchedulerConfig(tiers=(tier,), actions=("allocate",)), told.append)
    assert told == []
    return found


@pytest.mark.parametrize(
    ("arguments", "weighed"),
    [
        ({}, True),  # Volcano's default weight is 1
        ({"imagelocality.weight": "2"}, True),
        ({"imagelocality.weight": 0}, False),
        (None, False),
    ],
)
def test_images_are_told_only_where_they_are_weighed(arguments: dict[str, Any] | None, weighed: bool) -> None:
    engine = engine_with(arguments)
    assert engine.reads_images is weighed
    model = ClusterModel(["volcano"])
    model.read_labels(engine.reads, images=engine.reads_images)
    listed = [
        {"names": ["x@sha256:1", "x:latest"], "sizeBytes": 4000 * MIB},
        {"names": None},
        {"sizeBytes": 3},
    ]
    for name in ("n1", "n2", "n3"):
        model.objects.upsert_node(
            views.decode_node(views.encode(kube_node(name, listed if name == "n2" else [])))
        )
    for pod in (kube_pod("p", "x", init="x:latest"), kube_pod("q", "y")):
        model.objects.upsert_pod(views.decode_pod(views.encode(pod)))
    engine.apply(model.take(10.0))
    state = engine.state
    assert len({entry.cls.number for entry in state.tasks.values()}) == (2 if weighed else 1)
    assert {e.task.needs.images for e in state.tasks.values()} == (
        {("x:latest", "x:latest"), ("y:latest",)} if weighed else {()}
    )
    assert state.table.images.carriers("x@sha256:1") == int(weighed)
    binds = {bind.task: bind.node for bind in engine.cycle(10.0).binds}
    assert len(binds) == 2
    if weighed:
        assert binds["ns/p"] == "n2"


def test_another_configuration_is_told_of_images_from_then_on() -> None:
    model = ClusterModel(["volcano"])
    listed = [{"names": ["x:1"], "sizeBytes": 5}]
    model.objects.upsert_node(views.decode_node(views.encode(kube_node("n1", listed))))
    model.objects.upsert_pod(views.decode_pod(views.encode(kube_pod("p", "x:1"))))
    seen: list[Counter[str]] = []
    for images in (False, True, False):
        model.read_labels((), images=images)
        model.resend()
        changes = model.take(10.0)
        seen.append(Counter(str("x:1" in repr(change)) for change in changes))
    assert [found["True"] for found in seen] == [0, 2, 0]


@pytest.mark.parametrize("images", [{"not": "a list"}, [{"names": 3}], None])
def test_a_list_that_cannot_be_read_is_none(images: Any) -> None:
    view = views.decode_node(views.encode(kube_node("n1", images)))
    assert (view.images, view.problems) == ((), ())
    assert view.allocatable["cpu"] == 8000
