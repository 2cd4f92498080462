"""Filter by volumes: location, claims, and maximum of attached volumes."""

from __future__ import annotations

import numpy as np
from cluster_dsl import Cluster, needs, node

from windlass.api.reasons import Reason
from windlass.engine.nodes.table import NodeTable
from windlass.engine.nodes.view import TableView
from windlass.plugins.nodes.volumes import Volumes
from windlass.spi.objects import Expression, Needs, Node, NodeTerm, VolumeNeed, VolumeOption

LIMIT = "attachable-volumes-csi-disk"


def zone(*values: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Expression("zone", "In", values),)),)


def host(name: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Expression("kubernetes.io/hostname", "In", (name,)),)),)


def uses(*volumes: VolumeNeed) -> Needs:
    return needs("cpu=1", volumes=volumes)


class Scene:
    def __init__(self) -> None:
        self.table = NodeTable()
        for text in ("n1 zone=a", "n2 zone=a", "n3 zone=b"):
            self.table.upsert(node(text))
        self.plugin = Volumes()
        self.view = TableView(self.table)
        self.plugin.attach(self.view)
        self.known: list[Needs] = []

    def learn(self, *volumes: VolumeNeed) -> int:
        self.known.append(uses(*volumes))
        self.plugin.learn(len(self.known) - 1, self.known[-1], [])
        return len(self.known) - 1

    def open(self, number: int) -> str:
        verdict = self.plugin.verdict(number, self.view)
        blocked = np.zeros(3, dtype=bool)
        for blocker in self.plugin.blockers(self.known[number], self.view):
            of_claim = blocker.blocked.all() and not blocker.resource and "claim ns/" in blocker.detail[:10]
            assert blocker.code is (Reason.CLAIM_UNAVAILABLE if of_claim else Reason.VOLUME_UNAVAILABLE)
            blocked |= blocker.blocked
        assert (blocked == ~verdict).all()
        return " ".join(name for name, good in zip(self.view.names(), verdict, strict=True) if good)


def test_a_volume_is_reached_from_its_zone() -> None:
    s = Scene()
    assert s.open(s.learn(VolumeNeed("ns/a", terms=zone("b")))) == "n3"
    assert s.open(s.learn(VolumeNeed("ns/a", terms=zone("b")), VolumeNeed("ns/c", terms=zone("a")))) == ""
    assert s.open(s.learn(VolumeNeed("ns/a", terms=(*zone("b"), *host("n1"))))) == "n1 n3"


def test_a_claim_with_a_problem_has_no_node() -> None:
    s = Scene()
    number = s.learn(VolumeNeed("ns/a", fault="claim ns/a is not bound to a volume yet"))
    assert s.open(number) == ""
    (blocker,) = s.plugin.blockers(s.known[number], s.view)
    assert blocker.detail == "claim ns/a is not bound to a volume yet"


def test_a_claim_for_one_pod_lets_no_second_in() -> None:
    s = Scene()
    mine = s.learn(VolumeNeed("ns/a", exclusive=True))
    other = s.learn(VolumeNeed("ns/a", exclusive=True), VolumeNeed("ns/b", exclusive=True))
    s.plugin.add(mine, 0, 1)
    assert s.open(mine) == s.open(other) == ""
    assert s.plugin.touched(mine, 0) is None
    assert set(s.plugin.listens_to(mine)) == {mine, other}
    s.plugin.add(mine, 0, -1)
    assert s.open(mine) == "n1 n2 n3"
    assert s.plugin._users == {}


def test_local_volumes_are_given_once() -> None:
    s = Scene()
    options = (VolumeOption("v1", host("n1")), VolumeOption("v2", host("n1")), VolumeOption("v3", host("n3")))
    a, b, c = (s.learn(VolumeNeed(f"ns/{name}", options=options)) for name in "abc")
    assert s.open(a) == "n1 n3"
    s.plugin.add(a, 0, 1)
    assert s.plugin._taken == {"ns/a": "v1"}
    assert s.open(a) == "n1"  # a second pod with the claim goes where its volume is
    assert s.open(b) == "n1 n3"
    s.plugin.add(b, 0, 1)
    assert s.open(c) == "n3"
    s.plugin.add(a, 0, 1)
    s.plugin.add(a, 0, -1)
    assert s.open(c) == "n3"
    s.plugin.add(a, 0, -1)
    assert s.open(c) == "n1 n3"
    assert s.plugin._taken == {"ns/b": "v2"}


def test_a_volume_that_all_reach_may_serve_anywhere() -> None:
    s = Scene()
    assert s.open(s.learn(VolumeNeed("ns/a", options=(VolumeOption("v1"),)))) == "n1 n2 n3"
    assert s.open(s.learn(VolumeNeed("ns/a", options=()))) == ""


def test_a_node_attaches_so_many_and_a_shared_one_once() -> None:
    s = Scene()
    s.table.upsert(Node("n1", {"cpu": 64000, LIMIT: 2}, {"zone": "a"}))
    vol = [s.learn(VolumeNeed(f"ns/{i}", limit=LIMIT, identity=f"disk^{i}")) for i in range(3)]
    s.plugin.add(vol[0], 0, 1)
    s.plugin.add(vol[0], 0, 1)
    assert s.open(vol[1]) == "n1 n2 n3"
    s.plugin.add(vol[1], 0, 1)
    assert s.open(vol[2]) == "n2 n3"
    assert s.open(vol[0]) == "n1 n2 n3"
    assert s.plugin.touched(vol[1], 0) == [("", 0)]
    (blocker,) = s.plugin.blockers(s.known[vol[2]], s.view)
    assert (blocker.resource, blocker.needed, blocker.available.tolist()[0]) == (LIMIT, 1, 0)
    s.plugin.add(vol[0], 0, -2)
    assert s.open(vol[2]) == "n1 n2 n3"


def test_a_node_attaches_as_many_as_its_limit() -> None:
    s = Scene()
    s.table.upsert(Node("n1", {"cpu": 64000, LIMIT: 5}, {"zone": "a"}))
    volumes = [s.learn(VolumeNeed(f"ns/{i}", limit=LIMIT, identity=f"disk^{i}")) for i in range(6)]
    for volume in volumes[:5]:
        assert s.open(volume) == "n1 n2 n3"
        s.plugin.add(volume, 0, 1)
    assert s.open(volumes[5]) == "n2 n3"
    s.plugin.add(volumes[5], 0, 1)  # it runs there already, whatever the limit
    extra = s.learn(VolumeNeed("ns/x", limit=LIMIT, identity="disk^x"))
    (blocker,) = s.plugin.blockers(s.known[extra], s.view)
    assert blocker.available.tolist()[0] == 0


def test_a_gang_takes_one_local_volume_each() -> None:
    c = Cluster().queues("default").nodes("n1", "n2", "n3")
    options = tuple(VolumeOption(f"v{i}", host(f"n{i}")) for i in (1, 2))
    for i in range(3):
        c.gang(f"g{i}", 1, uses(VolumeNeed(f"ns/data-{i}", options=options)))
    c.cycle()
    assert [c.where(f"g{i}") for i in range(3)] == [{"n1": 1}, {"n2": 1}, {}]
    assert c.code("g2") == "VolumeUnavailable"
    assert "no volume for claim ns/data-2 is free there (0 elsewhere)" in str(c.explain("g2").blockers)
    c.finish("g1")
    c.cycle()
    assert c.where("g2") == {"n2": 1}


def test_what_a_claim_lacks_is_said_with_who_to_ask() -> None:
    c = Cluster().queues("default").nodes("n1 cpu=1")
    lost = VolumeNeed("ns/lost", fault="claim ns/lost does not exist")
    c.gang("g", 1, Needs(request=(("cpu", 4000),), volumes=(lost,)))  # more than is there, too
    c.cycle()
    said = c.explain("g")
    assert said.code is Reason.EXCEEDS_EVERY_NODE
    c.nodes("n2 cpu=8")
    c.cycle()
    said = c.explain("g")
    assert said.code is Reason.CLAIM_UNAVAILABLE
    assert said.message == "It can be placed nowhere: claim ns/lost does not exist."
    assert said.remedies == ("Look at the claim: kubectl -n ns describe pvc lost",)


def test_where_a_volume_could_be_made_is_said_with_its_size() -> None:
    s = Scene()
    number = s.learn(VolumeNeed("ns/a", terms=zone("b"), size="9Gi"))
    assert s.open(number) == "n3"
    (blocker,) = s.plugin.blockers(s.known[number], s.view)
    assert blocker.detail == "9Gi for claim ns/a can be had where zone=b only"
