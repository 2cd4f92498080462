"""Reservation of a gang: written before its first bind, and read by the next leader."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors
from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, NODES, POD_GROUPS, PODS
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.engine.decision import Bind, DeviceShare
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339
from windlass.model.records import gang_reservation
from windlass.scheduler.cache import initial_sync
from windlass.spi.numa import NumaHolding

NOTE = "windlass.dev/reservation"
CUT = Unreachable(UNREACHABLE, "cut")


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def gang(name: str, size: int) -> list[dict[str, Any]]:
    return [group(name, size), *[pod(f"{name}-{i}", group=name) for i in range(size)]]


def note(api: SchedulerApi, name: str) -> str:
    return ((api.object(POD_GROUPS, f"default/{name}") or {})["metadata"].get("annotations") or {}).get(
        NOTE, ""
    )


def seats(api: SchedulerApi, name: str) -> dict[str, str]:
    found = gang_reservation.decode(note(api, name))
    assert found is not None
    return {seat.pod: f"{seat.node}:{','.join(str(d.index) for d in seat.devices)}" for seat in found.seats}


def places(api: SchedulerApi) -> dict[str, str]:
    return {
        o["metadata"][
            "name"
        ]: f"{o['spec']['nodeName']}:{o['metadata']['annotations']['windlass.dev/devices']}"
        for o in api.objects(PODS)
        if o["spec"].get("nodeName")
    }


# ------------------------------------------------------------------ the text

shares = st.builds(
    DeviceShare,
    st.integers(0, 15),
    st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]),
    st.sampled_from([1000, 500]),
    st.sampled_from([0, 1024]),
    st.sampled_from(["", "1g.10gb"]),
    st.integers(-1, 6),
    st.sampled_from([0, 81920]),
    st.sampled_from([(), (("gpu.example.com/n/gpu-0:memory", 5, 10),)]),
)
holdings = st.none() | st.builds(
    NumaHolding, st.just(((0, (("cpu", 4000),)),)), st.just(((0, 1),)), st.just((("nvidia.com/gpu", 2),))
)


@given(st.lists(st.tuples(st.lists(shares, max_size=3), holdings), min_size=1, max_size=60))
def test_a_written_reservation_is_read(members: list[tuple[list[DeviceShare], NumaHolding | None]]) -> None:
    binds = [
        Bind(f"team/g-{i}", f"{i:08x}-rest", "team/g", f"node-{i % 7}", tuple(devices), zones)
        for i, (devices, zones) in enumerate(members)
    ]
    text = gang_reservation.encode(binds, 1_767_268_800.0)
    assert text is not None
    found = gang_reservation.decode(text)
    assert found is not None
    assert found.at == 1_767_268_800.0
    for bind, seat in zip(binds, found.seats, strict=True):
        assert (f"team/{seat.pod}", seat.node, seat.devices, seat.zones) == (
            bind.task,
            bind.node,
            bind.devices,
            bind.zones,
        )
        assert seat.is_of(bind.uid)
        assert not seat.is_of("another")


def test_large_gangs_are_compressed_and_the_largest_have_no_reservation() -> None:
    def binds(count: int) -> list[Bind]:
        card = DeviceShare(0, "nvidia.com/gpu")
        return [
            Bind(f"t/g-worker-{i}", f"{i * 2654435761 % 2**32:08x}", "t/g", f"n{i}", (card,))
            for i in range(count)
        ]

    text = gang_reservation.encode(binds(5000), 0.0)
    assert text is not None
    assert len(text) < 100_000
    assert len((gang_reservation.decode(text) or gang_reservation.GangReservation(0, ())).seats) == 5000
    assert gang_reservation.encode(binds(60_000), 0.0) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "z:AAAA",
        "z:é",
        '{"at": "2026-01-01T12:00:00Z", "seats": {"a": ["u"]}}',
        '{"seats": 1}',
    ],
)
def test_an_edited_text_is_not_a_reservation(text: str) -> None:
    assert gang_reservation.decode(text) is None


# ------------------------------------------------------------------ before the first bind


async def test_it_is_written_before_the_first_bind_and_lists_the_binds(api: SchedulerApi) -> None:
    stood: list[bool] = []
    api.refuse_bind = lambda *_: stood.append(bool(note(api, "g")))  # type: ignore[func-returns-value]
    api.add(node("n1", gpus=2), node("n2", gpus=2), *gang("g", 3))
    async with Running(api) as running:
        await running.settle(2.0)
        assert stood == [True] * 3
        assert seats(api, "g") == places(api)
        assert api.phase("g") == "Running"
        patches = [key for verb, kind, key in api.log if kind == "podgroups"]
        assert patches == ["default/g"] * 2  # the reservation, then phase and condition in one


async def test_one_pod_and_the_last_of_a_gang_need_no_reservation(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=4), *gang("one", 1), pod("bare"), group("two", 2))
    api.add(
        pod("two-0", group="two", node="n1", annotations={"windlass.dev/devices": "0"}),
        pod("two-1", group="two"),
    )
    async with Running(api) as running:
        await running.settle(2.0)
        assert api.bound() == ["bare", "one-0", "two-0", "two-1"]
        assert not note(api, "one")
        assert not note(api, "two")


async def test_gangs_are_bound_without_the_right_to_write_a_reservation(api: SchedulerApi) -> None:
    api.reject = lambda verb, resource, patch: (
        errors.failure(403, "Forbidden", "no") if NOTE in str(patch) else None
    )
    api.add(node("n1", gpus=2), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["g-0", "g-1"]


async def test_the_write_is_repeated_on_an_overloaded_server_before_any_bind(api: SchedulerApi) -> None:
    busy = [errors.failure(429, "TooManyRequests", "later", {"retryAfterSeconds": 1}) for _ in range(3)]
    api.reject = lambda verb, resource, patch: busy.pop() if NOTE in str(patch) and busy else None
    api.add(node("n1", gpus=2), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(1.5)
        assert api.bound() == []
        await running.settle(4.0)
        assert api.bound() == ["g-0", "g-1"]


@pytest.mark.parametrize("code", [409, 410, 500, 502])
async def test_a_stray_rejection_does_not_prevent_the_reservation(api: SchedulerApi, code: int) -> None:
    said = [errors.failure(code, "Stray", "not now") for _ in range(3)]
    api.reject = lambda verb, resource, obj: said.pop() if said and resource == POD_GROUPS else None
    api.add(node("n1", gpus=2), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(0.05)
        assert api.bindings == []
        await running.settle(4.0)
        assert seats(api, "g") == places(api)


async def test_gangs_are_bound_if_the_reservation_is_always_rejected(api: SchedulerApi) -> None:
    """For example by a webhook that does not answer.

    This is logged, and costs one guarantee.
    """
    broken = errors.failure(500, "InternalError", "failed calling webhook")
    api.reject = lambda verb, resource, obj: broken if resource == POD_GROUPS else None
    api.add(node("n1", gpus=2), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(4.0)
        assert api.bindings == []
        await running.settle(8.0)
        assert api.bound() == ["g-0", "g-1"]


async def test_due_annotations_are_written_along(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2), *gang("first", 2), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(1.5)
        assert "windlass.dev/explanation" in api.object(POD_GROUPS, "default/g")["metadata"]["annotations"]
        before = len(api.writes("podgroups"))
        api.end("first-0")
        api.end("first-1")
        await running.settle(0.1)
        notes = api.object(POD_GROUPS, "default/g")["metadata"]["annotations"]
        assert NOTE in notes
        assert "windlass.dev/explanation" not in notes
        await running.settle(2.0)
        mine = [key for _, key in api.writes("podgroups")[before:] if key == "default/g"]
        assert len(mine) == 2


async def test_kai_gangs_have_a_reservation_too(api: SchedulerApi) -> None:
    api.put(KAI_QUEUES, kai_queue("q"))
    api.put(KAI_POD_GROUPS, kai_group("a", 2, "q"))
    api.add(node("n1", gpus=2), kai_pod("a0", "a", "q"), kai_pod("a1", "a", "q"))
    api.refuse_bind = lambda namespace, name, where: CUT if name == "a1" else None
    async with Running(api) as running:
        await running.settle(1.0)
        found = gang_reservation.decode(
            api.object(KAI_POD_GROUPS, "default/a")["metadata"]["annotations"][NOTE]
        )
        assert found is not None
        assert [seat.pod for seat in found.seats] == ["a0", "a1"]
    api.refuse_bind = lambda *_: None
    async with Running(api) as running:
        await running.settle(0.5)
        assert api.bound() == ["a0", "a1"]


async def test_an_incomplete_kai_gang_is_evicted(api: SchedulerApi) -> None:
    api.put(KAI_QUEUES, kai_queue("q"))
    api.put(KAI_POD_GROUPS, kai_group("a", 2, "q"))
    api.add(node("n1", gpus=2), kai_pod("a0", "a", "q"), kai_pod("a1", "a", "q"))
    api.refuse_bind = lambda namespace, name, where: (
        errors.failure(500, "InternalError", "no") if name == "a1" else None
    )
    async with Running(api) as running:
        await running.settle(10.0)
        assert api.bound() == ["a0"]
        await running.settle(35.0)
        assert api.conditions(PODS, "default/a0")["DisruptionTarget"]["reason"] == "GangBindFailed"
        assert "GangBindFailed" in running.reasons("a")


async def test_a_new_leader_evicts_an_incomplete_gang_that_runs(api: SchedulerApi) -> None:
    """The members left by a crash run long before the 30 seconds are over."""
    api.add(*[node(f"n{i}", gpus=1) for i in range(4)], *gang("g", 4))
    api.refuse_bind = lambda namespace, name, where: (
        errors.failure(500, "InternalError", "no") if name in ("g-2", "g-3") else None
    )
    async with Running(api) as running:
        await running.settle(0.3)
        assert api.bound() == ["g-0", "g-1"]
        api.run("g-0")
        api.run("g-1")
        await running.settle(10.0)
    assert api.phase("g") == "Unknown"
    async with Running(api) as running:
        await running.settle(40.0)
        assert "GangBindFailed" in running.reasons("g")
        assert api.conditions(PODS, "default/g-0")["DisruptionTarget"]["reason"] == "GangBindFailed"


async def test_a_new_leader_evicts_an_incomplete_kai_gang_that_runs(api: SchedulerApi) -> None:
    api.put(KAI_QUEUES, kai_queue("q"))
    api.put(KAI_POD_GROUPS, kai_group("a", 2, "q", stalenessGracePeriod="-1s"))
    begun = kai_pod("a0", "a", "q", node="n1")
    begun["status"]["startTime"] = "2026-01-01T11:59:50Z"
    api.add(node("n1", gpus=1), begun, kai_pod("a1", "a", "q"))
    async with Running(api) as running:
        await running.settle(25.0)
        api.change(PODS, "default/a0", status={"phase": "Running", "podIP": "10.0.0.1"})
        api.add(kai_pod("a2", "a", "q"))
        await running.settle(15.0)
        assert api.conditions(PODS, "default/a0")["DisruptionTarget"]["reason"] == "GangBindFailed"


async def test_a_kai_gang_that_ran_before_is_not_evicted_after_a_restart(api: SchedulerApi) -> None:
    api.put(KAI_QUEUES, kai_queue("q"))
    api.put(KAI_POD_GROUPS, kai_group("a", 2, "q", stalenessGracePeriod="-1s"))
    old = kai_pod("a0", "a", "q", node="n1")
    old["status"]["startTime"] = "2026-01-01T11:00:00Z"
    api.add(node("n1", gpus=1), old, kai_pod("a1", "a", "q"))
    async with Running(api) as running:
        await running.settle(70.0)
        assert not api.conditions(PODS, "default/a0").get("DisruptionTarget")


# ------------------------------------------------------------------ taking over


async def crashed(api: SchedulerApi, *lost: str) -> dict[str, str]:
    """A scheduler that bound all pods but ``lost`` and died. Return its reservation."""
    api.refuse_bind = lambda namespace, name, where: CUT if name in lost else None
    async with Running(api) as running:
        await running.settle(0.3)
    api.refuse_bind = lambda *_: None
    return seats(api, "g")


@pytest.mark.parametrize("piece", [500, 1])
@pytest.mark.parametrize("bound", range(4))
async def test_the_gang_is_completed_as_reserved(
    api: SchedulerApi, bound: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was bound before the crash.

    A later pod of higher priority does not come in between, also if the engine got the
    pods in batches before.
    """
    monkeypatch.setattr(initial_sync, "BATCH_PODS", piece)
    api.add(*[node(f"n{i}", gpus=1) for i in range(6)], *gang("g", 4))
    meant = await crashed(api, *[f"g-{i}" for i in range(bound, 4)])
    free = {f"n{i}" for i in range(6)} - {place.partition(":")[0] for place in meant.values()}
    api.add(*[pod(f"vip{i}", priority=1000) for i in range(6)])
    async with Running(api) as running:
        await running.settle(1.0)
        assert {name: at for name, at in places(api).items() if name.startswith("g-")} == meant
        others = {at.partition(":")[0] for name, at in places(api).items() if not name.startswith("g-")}
        assert others == free
        assert api.phase("g") == "Running"
    assert len(api.bindings) == 6


async def test_a_reservation_without_capacity_is_dropped(api: SchedulerApi) -> None:
    """Another scheduler took one of the places: everything left is decided again."""
    api.add(*[node(f"n{i}", gpus=1) for i in range(5)], *gang("g", 4))
    meant = await crashed(api, "g-2", "g-3")
    taken = meant["g-3"].partition(":")[0]
    api.add(pod("theirs", scheduler="other", node=taken))
    async with Running(api) as running:
        await running.settle(1.0)
        found = (
            places(api)
            if False
            else {o["metadata"]["name"]: o["spec"].get("nodeName") for o in api.objects(PODS)}
        )
        assert found["g-3"] != taken
        assert all(found.values())
        assert len(set(found.values())) == 5


@pytest.mark.parametrize(
    "spec",
    [{"unschedulable": True}, {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}],
)
async def test_a_cordoned_node_is_not_used(api: SchedulerApi, spec: dict[str, Any]) -> None:
    api.add(*[node(f"n{i}", gpus=1) for i in range(5)], *gang("g", 4))
    meant = await crashed(api, "g-2", "g-3")
    bad = meant["g-2"].partition(":")[0]
    api.change(NODES, bad, spec=spec)
    async with Running(api) as running:
        await running.settle(1.0)
        assert len(places(api)) == 4
        assert bad not in {at.partition(":")[0] for at in places(api).values()}


async def test_a_gang_that_tolerates_a_cordon_is_completed_on_the_node(api: SchedulerApi) -> None:
    bears = [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]
    api.add(*[node(f"n{i}", gpus=1) for i in range(6)], group("g", 4))
    api.add(*[pod(f"g-{i}", group="g", tolerations=bears) for i in range(4)])
    meant = await crashed(api, "g-2", "g-3")
    api.change(NODES, meant["g-2"].partition(":")[0], spec={"unschedulable": True})
    api.add(*[pod(f"vip{i}", priority=1000) for i in range(6)])
    async with Running(api) as running:
        await running.settle(1.0)
        assert {name: at for name, at in places(api).items() if name.startswith("g-")} == meant


async def test_later_pods_of_the_same_names_do_not_use_the_reservation(api: SchedulerApi) -> None:
    api.add(*[node(f"n{i}", gpus=1) for i in range(4)], *gang("g", 2))
    await crashed(api, "g-0", "g-1")
    for i in range(2):
        api.remove(PODS, f"default/g-{i}")
        api.add(pod(f"g-{i}", group="g", uid=f"later-{i}"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert len(api.bound()) == 2
        found = gang_reservation.decode(note(api, "g"))
        assert found is not None
        assert {seat.uid for seat in found.seats} == {"later-0", "later-1"}


async def test_an_old_reservation_without_bound_pods_expires(api: SchedulerApi) -> None:
    api.add(*[node(f"n{i}", gpus=1) for i in range(2)], *gang("g", 2))
    await crashed(api, "g-0", "g-1")
    old = json.loads(note(api, "g"))
    old["at"] = rfc3339(api.clock.now() - 3600)
    api.change(POD_GROUPS, "default/g", metadata={"annotations": {NOTE: json.dumps(old)}})
    api.add(pod("vip", priority=1000))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["vip"]


async def test_a_gang_that_cannot_be_completed_is_evicted_with_a_reason(api: SchedulerApi) -> None:
    api.add(*[node(f"n{i}", gpus=1) for i in range(4)], *gang("g", 4))
    await crashed(api, "g-2", "g-3")
    api.refuse_bind = lambda namespace, name, where: errors.failure(500, "InternalError", "no")
    async with Running(api) as running:
        await running.settle(20.0)
        assert "DisruptionTarget" not in api.conditions(PODS, "default/g-0")
        await running.settle(15.0)
        for name in ("g-0", "g-1"):
            assert api.conditions(PODS, f"default/{name}")["DisruptionTarget"]["reason"] == "GangBindFailed"
            assert api.object(PODS, f"default/{name}")["metadata"].get("deletionTimestamp")
            assert "GangBindFailed" in running.reasons(name)
        told = api.conditions(POD_GROUPS, "default/g")["GangBindFailed"]
        assert (told["status"], told["reason"]) == ("True", "GangBindFailed")
        assert "GangBindFailed" in running.reasons("g")
        api.finish_deletions()
        api.refuse_bind = lambda *_: None
        api.add(pod("g-0", group="g", uid="new-0"), pod("g-1", group="g", uid="new-1"))
        await running.settle(10.0)
        assert api.phase("g") == "Running"
        assert api.conditions(POD_GROUPS, "default/g")["GangBindFailed"]["status"] == "False"


# ------------------------------------------------------------------ standing by


async def test_an_instance_that_stands_by_writes_nothing_and_is_up_to_date(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2), *gang("g", 2), pod("big", requests={"nvidia.com/gpu": "9"}))
    async with Running(api, stands_by=True) as running:
        for i in range(300):
            api.add(pod(f"churn-{i}", node="n1"))
            api.remove(PODS, f"default/churn-{i}")
        await running.settle(12.0)
        assert running.service.ready.is_set()
        assert (api.log, api.bindings, running.recorder.said) == ([], [], [])
        assert len(running.service.model.marks.pods) < 100
        running.service.lead()
        await running.settle(2.0)
        assert api.bound() == ["g-0", "g-1"]
        assert api.phase("g") == "Running"
        assert running.reasons("big") == ["FailedScheduling"]
