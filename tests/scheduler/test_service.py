"""The service on a fake API: binds, writes, events and faults."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from kubeobjects import group, node, pod, queue
from scheduler_api import Running, SchedulerApi

from windlass.api import errors, resources
from windlass.api.resources import POD_GROUPS, PODS, QUEUES
from windlass.client.errors import UNREACHABLE, Unreachable
from windlass.kits.clock import FakeClock
from windlass.kits.timestamps import rfc3339

EXPLANATION = "windlass.dev/explanation"


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    return made


def gang(name: str, size: int, minimum: int | None = None, **fields: Any) -> list[dict[str, Any]]:
    return [
        group(name, size if minimum is None else minimum),
        *[pod(f"{name}-{i}", group=name, **fields) for i in range(size)],
    ]


def explanation(obj: dict[str, Any] | None) -> dict[str, Any] | None:
    text = ((obj or {})["metadata"].get("annotations") or {}).get(EXPLANATION)
    return json.loads(text) if text else None


async def test_the_start_of_a_pod_is_known_to_the_second(
    api: SchedulerApi,
) -> None:
    """Objects have whole seconds, rounded down.

    A new leader knows no more than that.
    """
    api.add(node("n1", gpus=4))
    async with Running(api, debounce_seconds=0.0) as running:
        await api.clock.advance(0.7 - api.clock.now() % 1.0 + 1.0)
        decided = api.clock.now()
        api.add(*gang("g", 1))
        await running.settle(0.1)
        told = rfc3339(decided)
        api.change(PODS, "default/g-0", status={"phase": "Running", "startTime": told})
        await running.settle(0.1)
        since = running.service.engine.state.tasks["default/g-0"].task.started
        assert since == pytest.approx(decided, abs=0.05)
    async with Running(api) as running:
        since = running.service.engine.state.tasks["default/g-0"].task.started
        assert since == int(decided)


async def test_a_gang_is_bound_with_its_devices(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=4), *gang("g", 3))
    async with Running(api) as running:
        await running.settle(1.5)
        assert api.bound() == ["g-0", "g-1", "g-2"]
        devices = {o["metadata"]["annotations"]["windlass.dev/devices"] for o in api.objects(PODS)}
        assert devices == {"0", "1", "2"}
        assert api.phase("g") == "Running"
        assert api.conditions(POD_GROUPS, "default/g")["Scheduled"]["status"] == "True"
        assert running.reasons("g-0") == ["Scheduled"]
        assert ("g-0", "Scheduled", "Successfully assigned default/g-0 to n1") in running.recorder.said
        allocated = (api.object(QUEUES, "default") or {})["status"]["allocated"]
        assert allocated["nvidia.com/gpu"] == "3"
        for name in ("g-0", "g-1", "g-2"):
            api.end(name)
        await running.settle(2.5)
        assert api.phase("g") == "Completed"
        status = (api.object(POD_GROUPS, "default/g") or {})["status"]
        assert (status["running"], status["succeeded"], status["failed"]) == (0, 3, 0)
        assert not (api.object(QUEUES, "default") or {})["status"]["allocated"].get("nvidia.com/gpu")


async def test_a_request_for_more_units_than_devices_is_reported_with_the_bind(
    api: SchedulerApi,
) -> None:
    """Eight replicas of two GPUs: the pod gets them, as the kubelet counts them."""
    labels = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
    api.add(
        node("n1", gpus=8, labels=labels),
        pod("all", requests={"nvidia.com/gpu": "6"}),
        pod("some", requests={"nvidia.com/gpu": "2"}),
    )
    async with Running(api) as running:
        await running.settle(1.5)
        assert api.bound() == ["all", "some"]
        told = {name: message for name, reason, message in running.recorder.said if reason == "Scheduled"}
        assert told["some"] == "Successfully assigned default/some to n1"
        assert told["all"].startswith(
            "Successfully assigned default/all to n1; it asks for 6 nvidia.com/gpu, of which the node has 2 cards"
        )


async def test_a_gang_that_does_not_fit_waits_as_a_whole_with_a_reason_and_runs_later(
    api: SchedulerApi,
) -> None:
    api.add(node("n1", gpus=4), *gang("first", 3), *gang("second", 2))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["first-0", "first-1", "first-2"]
        assert api.phase("second") == "Inqueue"
        told = api.conditions(POD_GROUPS, "default/second")["Unschedulable"]
        assert (told["status"], told["reason"]) == ("True", "NotEnoughResources")
        record = explanation(api.object(POD_GROUPS, "default/second"))
        assert record is not None
        assert record["code"] == "InsufficientResources"
        assert record["message"] == told["message"]
        assert record["position"] == 1
        on_pod = api.conditions(PODS, "default/second-1")["PodScheduled"]
        assert (on_pod["status"], on_pod["reason"]) == ("False", "Unschedulable")
        summary = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu"
        assert on_pod["message"] == f"{told['message']} ({summary})"
        assert running.reasons("second-1") == ["FailedScheduling"]

        api.end("first-0")
        await running.settle(1.0)
        assert "second-0" in api.bound()
        assert "second-1" in api.bound()
        assert api.phase("second") == "Running"
        assert api.conditions(POD_GROUPS, "default/second")["Unschedulable"]["status"] == "False"
        assert explanation(api.object(POD_GROUPS, "default/second")) is None


async def test_the_phase_allows_the_controller_to_create_pods(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=4), group("g", 2))
    async with Running(api) as running:
        await running.settle(0.2)
        assert api.phase("g") == "Inqueue"
        api.add(queue("shut", state="Closed"), group("h", 2, queue="shut"))
        await running.settle(1.0)
        assert api.phase("h") == "Pending"
        record = explanation(api.object(POD_GROUPS, "default/h"))
        assert record is None or record["code"] == "QueueClosed"


async def test_a_short_wait_is_not_written(api: SchedulerApi) -> None:
    """While a controller creates a gang's pods one by one, nothing is written about
    missing members."""
    api.add(node("n1", gpus=4), group("g", 3))
    async with Running(api) as running:
        for i in range(3):
            api.add(pod(f"g-{i}", group="g"))
            await running.settle(0.1)
        await running.settle(1.0)
        assert api.bound() == ["g-0", "g-1", "g-2"]
        assert "Unschedulable" not in api.conditions(POD_GROUPS, "default/g")
        assert [verb for verb, key in api.writes("pods")] == []


async def test_a_gang_with_arriving_pods_is_not_reported_to_lack_members(api: SchedulerApi) -> None:
    parts = gang("g", 20)
    api.add(node("n1", gpus=24), *parts[:2])
    async with Running(api) as running:
        for part in parts[2:11]:  # slower than a wait has to be for being told
            await running.settle(0.38)
            api.add(part)
        await running.settle(0.2)
        assert running.reasons("g") == []
        assert not explanation(api.object(POD_GROUPS, "default/g"))
        await running.settle(2.0)  # no more come
        assert running.reasons("g") == ["Unschedulable"]
        for part in parts[11:]:
            api.add(part)
        await running.settle(1.0)
        assert len(api.bound()) == 20


async def test_a_gang_that_is_bound_at_once_is_reported_as_running_only(api: SchedulerApi) -> None:
    bind = api.bind

    async def slowly(*args: Any, **options: Any) -> None:
        await api.clock.sleep(0.5)
        await bind(*args, **options)

    api.bind = slowly  # type: ignore[method-assign]
    api.add(node("n1", gpus=8), *gang("g", 6))
    async with Running(api, bind_concurrency=2, bind_concurrency_max=2) as running:
        await running.settle(3.0)
        assert api.phase("g") == "Running"
        assert api.writes("podgroups") == [("patch", "default/g")] * 2  # the reservation, the phase


async def test_the_running_phase_is_written_after_the_binds_but_not_late(api: SchedulerApi) -> None:
    bind = api.bind

    async def slowly(*args: Any, **options: Any) -> None:
        await api.clock.sleep(0.5)
        await bind(*args, **options)

    api.bind = slowly  # type: ignore[method-assign]
    api.add(node("n1", gpus=80), *gang("a", 2), *gang("b", 60))
    async with Running(api, bind_concurrency=2, bind_concurrency_max=2) as running:
        await running.settle(2.0)
        assert set(api.bound()) >= {"a-0", "a-1"}
        assert api.phase("a") != "Running"
        await running.settle(9.0)
        assert len(api.bound()) < 60
        assert api.phase("a") == "Running"
        await running.settle(9.0)
        assert api.phase("b") == "Running"


async def test_nothing_is_written_again_without_a_change(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(2.0)
        written = list(api.log)
        await running.settle(120.0)
        assert api.log == written


async def test_a_pod_without_a_group_has_its_own_explanation(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=0), pod("lonely"))
    async with Running(api) as running:
        await running.settle(1.0)
        record = explanation(api.object(PODS, "default/lonely"))
        assert record is not None
        assert record["code"] == "ExceedsEveryNode" or record["waitingHelps"] == "no"
        api.add(node("n2", gpus=1))
        await running.settle(1.0)
        assert api.node_of("lonely") == "n2"
        assert explanation(api.object(PODS, "default/lonely")) is None


async def test_an_invalid_pod_is_reported_with_its_field(api: SchedulerApi) -> None:
    bad = pod("bad", requests={"nvidia.com/gpu": "one"})
    api.add(node("n1"), bad, pod("good"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["good"]
        message = api.conditions(PODS, "default/bad")["PodScheduled"]["message"]
        assert "spec.containers[0].resources.requests[nvidia.com/gpu]" in message
        record = explanation(api.object(PODS, "default/bad"))
        assert record is not None
        assert record["code"] == "Misconfigured"


async def test_a_rejected_bind_is_repeated_after_a_pause(api: SchedulerApi) -> None:
    refusals = []

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if name == "g-1" and len(refusals) < 2:
            refusals.append(where)
            return errors.failure(500, "InternalError", "etcd is unwell")
        return None

    api.refuse_bind = refuse
    api.add(node("n1", gpus=4), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(0.3)
        assert api.bound() == ["g-0"]
        assert "FailedScheduling" in running.reasons("g-1")
        await running.settle(8.0)
        assert api.bound() == ["g-0", "g-1"]
        assert len(refusals) == 2
        assert api.phase("g") == "Running"


async def test_a_gang_that_cannot_be_completed_is_evicted(api: SchedulerApi) -> None:
    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        return errors.failure(500, "InternalError", "no") if name == "g-1" else None

    api.refuse_bind = refuse
    api.add(node("n1", gpus=4), *gang("g", 2))
    async with Running(api) as running:
        await running.settle(20.0)
        assert "DisruptionTarget" not in api.conditions(PODS, "default/g-0")
        await running.settle(15.0)
        condition = api.conditions(PODS, "default/g-0")["DisruptionTarget"]
        assert (condition["status"], condition["reason"]) == ("True", "GangBindFailed")
        assert (api.object(PODS, "default/g-0") or {})["metadata"].get("deletionTimestamp")
        assert ("delete", "pods", "default/g-0") in api.log
        assert "GangBindFailed" in running.reasons("g-0")


async def test_a_lost_response_is_resolved(api: SchedulerApi) -> None:
    """The binding was made without a response.

    The next attempt gets a conflict, and the pod is looked up.
    """
    lost = []

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if not lost:
            lost.append(name)
            api._bind(f"{namespace}/{name}", where, f"uid-{namespace}-{name}", None)
            return Unreachable(UNREACHABLE, "the connection broke", processed=True)
        return None

    api.refuse_bind = refuse
    api.add(node("n1", gpus=1), *gang("g", 1))
    async with Running(api) as running:
        await running.settle(2.0)
        assert api.bindings == [("default/g-0", "n1")]
        assert running.reasons("g-0") == ["Scheduled"]
        assert not running.service.model.binds.assumed


async def test_a_bind_that_failed_inside_the_server_may_have_succeeded(api: SchedulerApi) -> None:
    """etcd answered too late, and the watch is late, too.

    The capacity must not be given away meanwhile.
    """
    failed = []

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if not failed:
            failed.append(name)
            api.lagging = True
            api._bind(f"{namespace}/{name}", where, f"uid-{namespace}-{name}", None)
            return errors.failure(500, "InternalError", "etcdserver: request timed out")
        return None

    api.refuse_bind = refuse
    api.add(node("n1", gpus=1), pod("a"))
    async with Running(api) as running:
        await running.settle(1.0)
        assert (api.lagging, api.bound()) == (True, ["a"])
        api.lagging = False
        api.add(pod("b"))
        await running.settle(8.0)
        assert api.bindings == [("default/a", "n1")]
        assert running.reasons("a") == ["Scheduled"]
        api.catch_up()
        await running.settle(1.0)
        assert not running.service.model.binds.assumed


async def test_a_pod_bound_by_another_scheduler_is_left_to_it(api: SchedulerApi) -> None:
    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if name == "a" and not api.node_of("a"):
            api._bind("default/a", "n2", "uid-default-a", None)
        return None

    api.refuse_bind = refuse
    api.add(node("n1", gpus=1), node("n2", gpus=2), pod("a"), pod("b"))
    async with Running(api) as running:
        await running.settle(3.0)
        assert api.node_of("a") == "n2"
        assert api.node_of("b")
        assert len(api.bindings) == 2
        assert not api.conditions(PODS, "default/a").get("DisruptionTarget")


async def test_overload_lowers_the_limit_and_everything_is_bound_in_the_end(api: SchedulerApi) -> None:
    answers = iter(range(10_000))

    def refuse(namespace: str, name: str, where: str) -> BaseException | None:
        if next(answers) % 3 == 0:
            error = errors.failure(429, "TooManyRequests", "slow down", {"retryAfterSeconds": 1})
            return error
        return None

    api.refuse_bind = refuse
    api.add(*[node(f"n{i}") for i in range(8)], *gang("g", 60))
    async with Running(api) as running:
        await running.settle(0.05)
        assert running.service.components.bind_queue.limit.limit < 32
        await running.settle(60.0)
        assert len(api.bound()) == 60
        assert api.most_under_way <= 32


async def test_binds_are_sent_concurrently(api: SchedulerApi) -> None:
    api.add(*[node(f"n{i}") for i in range(8)], *gang("g", 64))
    async with Running(api) as running:
        await running.settle(1.0)
        assert len(api.bound()) == 64
        assert 16 <= api.most_under_way <= 128


async def test_a_restart_completes_a_gang_bound_in_part(api: SchedulerApi) -> None:
    """Half a gang was bound when the scheduler died.

    The next one completes it with what is left.
    """
    api.refuse_bind = lambda namespace, name, where: (
        Unreachable(UNREACHABLE, "cut") if name in ("g-2", "g-3") else None
    )
    api.add(node("n1", gpus=2), node("n2", gpus=2), node("n3", gpus=1), *gang("g", 4), *gang("late", 1))
    async with Running(api) as running:
        await running.settle(0.5)
        assert "g-0" in api.bound()
        assert "g-2" not in api.bound()
    api.refuse_bind = lambda *_: None
    async with Running(api) as running:
        await running.settle(2.0)
        assert api.bound() == ["g-0", "g-1", "g-2", "g-3", "late-0"]
        assert api.phase("g") == "Running"
    devices: dict[tuple[str, str], str] = {}
    for obj in api.objects(PODS):
        slot = (obj["spec"]["nodeName"], obj["metadata"]["annotations"]["windlass.dev/devices"])
        assert devices.setdefault(slot, obj["metadata"]["name"]) == obj["metadata"]["name"]


async def test_a_restart_decides_the_same_and_writes_nothing(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=2), *gang("a", 2), *gang("b", 2))
    async with Running(api) as running:
        await running.settle(2.0)
    before = (list(api.log), list(api.bindings))
    async with Running(api) as running:
        await running.settle(2.0)
    assert (api.log, api.bindings) == before


async def test_time_continues_after_the_machine_was_suspended(api: SchedulerApi) -> None:
    """Otherwise all times on objects (starts of pods, ends of terminations) would be in
    its future for ever."""
    api.add(node("n1", gpus=4), *gang("g", 3))
    async with Running(api) as running:
        await running.settle(1.0)
        api.clock.suspend(8 * 3600.0)
        api.add(*gang("h", 1))
        await running.settle(0.5)
        assert api.bound() == ["g-0", "g-1", "g-2", "h-0"]
        assert abs(running.service.components.time.now() - api.clock.now()) < 1.0


async def test_two_schedulers_with_the_same_pods_never_overcommit(fake_clock: FakeClock) -> None:
    """Both see late what the other did.

    The one with the second binding gives its pod up.
    """
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), *[node(f"n{i}", gpus=2) for i in range(3)])
    api.lagging = True
    async with Running(api) as left, Running(api) as right:
        api.catch_up()
        for i in range(12):
            api.add(pod(f"p{i}", priority=i))
        api.catch_up()
        for _ in range(40):
            await left.settle(0.05)
            await right.settle(0.05)
            api.finish_deletions()
            api.catch_up()
        taken: dict[tuple[str, str], int] = {}
        for obj in api.objects(PODS):
            where = obj["spec"].get("nodeName")
            if where and not obj["metadata"].get("deletionTimestamp"):
                slot = (where, obj["metadata"]["annotations"]["windlass.dev/devices"])
                taken[slot] = taken.get(slot, 0) + 1
        assert max(taken.values()) == 1
        assert len(taken) == 6


async def test_capacity_that_another_scheduler_took_first_is_given_up(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=1))
    async with Running(api) as running:
        api.lagging = True
        api.add(pod("theirs", scheduler="other"))
        api._bind("default/theirs", "n1", "uid-default-theirs", {"windlass.dev/devices": "0"})
        late, api._late = api._late, []
        api.lagging = False
        api.add(pod("ours"))
        api.lagging = True
        await running.settle(0.2)
        assert api.node_of("ours") == "n1"
        api._late = late + api._late
        api.lagging = False
        api.catch_up()
        await running.settle(0.5)
        condition = api.conditions(PODS, "default/ours")["DisruptionTarget"]
        assert condition["reason"] == "NodeOvercommitted"
        assert "holds 2 of 1 nvidia.com/gpu" in condition["message"]


async def test_an_unseen_bind_is_looked_up(api: SchedulerApi) -> None:
    """The watch is silent: after a timeout, the pod itself is read."""
    api.add(node("n1", gpus=1))
    async with Running(api) as running:
        api.add(pod("a"))
        api.lagging = True
        await running.settle(1.0)
        assert api.node_of("a") == "n1"
        assert "default/a" in running.service.model.binds.assumed
        await running.settle(35.0)
        assert "default/a" not in running.service.model.binds.assumed
        api.add(pod("b"))
        api.catch_up()
        await running.settle(1.0)
        assert not api.node_of("b")  # the room is known to be taken


async def test_metrics_count_binds_evictions_and_cycles(api: SchedulerApi) -> None:
    from prometheus_client import CollectorRegistry

    from windlass.observe.metrics import exposition

    api.add(node("n1", gpus=1), *gang("a", 1), *gang("b", 2))
    registry = CollectorRegistry()
    async with Running(api, registry=registry) as running:
        await running.settle(3.0)
        kind, body = exposition(registry)
        text = body.decode()
        assert kind.startswith("text/plain")
        assert 'windlass_scheduler_pods_bound_total{result="bound"} 1.0' in text
        assert "windlass_scheduler_pending_groups" in text
        assert (
            'windlass_scheduler_queue_resource{queue="default",resource="nvidia.com/gpu",state="allocated"} 1.0'
            in text
        )
        assert running.service.ready.is_set()
        api.remove(QUEUES, "default")
        await running.settle(0.5)
        assert 'queue="default"' not in exposition(registry)[1].decode()


async def test_impossible_spreading_is_reported(api: SchedulerApi) -> None:
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    wish = {**spread, "whenUnsatisfiable": "ScheduleAnyway"}
    api.add(node("n1"), pod("spread", topologySpreadConstraints=[spread]))
    api.add(pod("wishful", topologySpreadConstraints=[wish]))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == ["wishful"]
        message = api.conditions(PODS, "default/spread")["PodScheduled"]["message"]
        assert "excluded by the topology spread constraints (no label zone)" in message


async def test_a_closed_queue_becomes_the_reason(api: SchedulerApi) -> None:
    api.add(queue("q"), queue("default"), node("n1", gpus=1), *gang("hog", 1))
    async with Running(api) as running:
        await running.settle(1.0)
        api.add(group("waits", 1, queue="q"), pod("waits-0", group="waits"))
        await running.settle(2.0)
        record = explanation(api.object(POD_GROUPS, "default/waits"))
        assert record is not None
        assert record["code"] == "InsufficientResources"
        api.change(QUEUES, "q", status={"state": "Closing"})
        await running.settle(1.0)  # another reason does not wait for its turn
        record = explanation(api.object(POD_GROUPS, "default/waits"))
        assert record is not None
        assert record["code"] == "QueueClosed"
        assert record["waitingHelps"] != "yes"
        api.end("hog-0")
        await running.settle(8.0)
        assert api.bound() == ["hog-0"]
        api.change(QUEUES, "q", status={"state": "Open"})
        await running.settle(2.0)
        assert api.bound() == ["hog-0", "waits-0"]


def bind_claim(api: SchedulerApi) -> None:
    """Provision a volume, as a provisioner and the volume controller do."""
    notes = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    api.change(resources.PERSISTENT_VOLUME_CLAIMS, "default/data", spec={"volumeName": "v"}, metadata=notes)


async def test_a_claim_is_prepared_before_its_pod_is_bound(api: SchedulerApi) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "uid": "c"},
        "spec": {"storageClassName": "fast"},
    }
    fast = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    api.put(resources.PERSISTENT_VOLUME_CLAIMS, claim)
    api.put(resources.STORAGE_CLASSES, fast)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    api.add(node("n1"), pod("a", volumes=volumes))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == []  # its volume is being made
        bind_claim(api)
        await running.settle(1.0)
        assert api.bound() == ["a"]
        written = api.object(resources.PERSISTENT_VOLUME_CLAIMS, "default/data")
        assert written["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n1"
        verbs = [(verb, key) for verb, _, key in api.log]
        assert ("patch", "default/data") in verbs


async def test_a_claim_follows_the_capacity_of_its_driver(api: SchedulerApi) -> None:
    group = {"apiVersion": "storage.k8s.io/v1"}
    zone = "topology.kubernetes.io/zone"
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "uid": "c"},
        "spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "5Gi"}}},
    }
    fast = {
        **group,
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    driver = {
        **group,
        "kind": "CSIDriver",
        "metadata": {"name": "disk.example.com"},
        "spec": {"storageCapacity": True},
    }
    pool = {
        **group,
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "b", "namespace": "default"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {zone: "b"}},
        "capacity": "4Gi",
    }
    for kind, found in (
        (resources.PERSISTENT_VOLUME_CLAIMS, claim),
        (resources.STORAGE_CLASSES, fast),
        (resources.CSI_DRIVERS, driver),
        (resources.STORAGE_CAPACITIES, pool),
    ):
        api.put(kind, found)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    api.add(node("n1", labels={zone: "a"}), node("n2", labels={zone: "b"}), pod("a", volumes=volumes))
    async with Running(api) as running:
        await running.settle(1.0)
        assert api.bound() == []
        api.put(resources.STORAGE_CAPACITIES, {**pool, "capacity": "5Gi"})
        await running.settle(1.0)
        bind_claim(api)
        await running.settle(1.0)
        assert api.bound() == ["a"]
        written = api.object(resources.PERSISTENT_VOLUME_CLAIMS, "default/data")
        assert written["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] == "n2"


async def test_the_reason_for_autoscalers_does_not_alternate(api: SchedulerApi) -> None:
    """The queue is closed and opened all the time.

    An autoscaler sees that at most every few seconds.
    """
    api.add(queue("q"), node("n1", gpus=1), *gang("hog", 1), group("g", 1, queue="q"), pod("g-0", group="g"))
    reasons = []
    async with Running(api) as running:
        await running.settle(2.0)
        for i in range(40):
            api.change(QUEUES, "q", status={"state": "Closing" if i % 2 else "Open"})
            await running.settle(0.7)
            reason = api.conditions(PODS, "default/g-0").get("PodScheduled", {}).get("reason", "")
            if not reasons or reasons[-1] != reason:
                reasons.append(reason)
    assert set(reasons) <= {"Unschedulable", "SchedulingGated", ""}
    assert len(reasons) <= 1 + 30 / 5


async def test_a_drain_finishes_binds_and_events(api: SchedulerApi) -> None:
    bind = api.bind

    async def slowly(*args: Any, **options: Any) -> None:
        await api.clock.sleep(0.2)
        await bind(*args, **options)

    api.bind = slowly  # type: ignore[method-assign]
    api.add(node("n1", gpus=8), *gang("g", 6))
    async with Running(api, bind_concurrency=1, bind_concurrency_max=1) as running:
        while not api.bound():
            await running.settle(0.02)
        assert len(api.bound()) < 6  # in the middle of the gang
        ending = asyncio.create_task(running.service.drain(5.0))
        api.add(*gang("late", 2))
        await running.settle(3.0)
        assert ending.done()
        assert api.bound() == [f"g-{i}" for i in range(6)]
        assert [running.reasons(f"g-{i}") for i in range(6)] == [["Scheduled"]] * 6


async def test_a_drain_has_a_timeout(api: SchedulerApi) -> None:
    api.add(node("n1", gpus=8), *gang("g", 2))
    async with Running(api) as running:
        running.recorder.waiting = 1  # the server does not answer
        ending = asyncio.create_task(running.service.drain(3.0))
        await running.settle(2.0)
        assert not ending.done()
        await running.settle(1.5)
        assert ending.done()


async def test_a_gang_is_completed_before_the_next_begins(api: SchedulerApi) -> None:
    bind = api.bind

    async def slowly(*args: Any, **options: Any) -> None:
        await api.clock.sleep(0.1)
        await bind(*args, **options)

    api.bind = slowly  # type: ignore[method-assign]
    api.add(node("n1", gpus=32), *gang("a", 6), *gang("b", 6), *gang("c", 6))
    async with Running(api, bind_concurrency=2, bind_concurrency_max=2) as running:
        await running.settle(4.0)
        order = [key.partition("/")[2][0] for key, _ in api.bindings]
        runs = [one for one, before in zip(order, ["", *order], strict=False) if one != before]
        assert len(order) == 18
        assert len(runs) <= 4, order  # two are under way at once, so two gangs may be


async def test_the_admission_of_a_group_with_pods_is_not_written(api: SchedulerApi) -> None:
    """It costs the API server as much as three binds, and is outdated in a moment."""
    parts = gang("g", 6)
    api.add(node("n1", gpus=8), *parts[:2])
    async with Running(api) as running:
        for part in parts[2:]:
            await running.settle(0.2)
            api.add(part)
        await running.settle(2.0)
        assert api.phase("g") == "Running"
        assert api.writes("podgroups") == [("patch", "default/g")] * 2  # its reservation, and that it runs


async def test_the_admission_is_written_at_once_if_the_owner_waits_for_it(
    api: SchedulerApi,
) -> None:
    owned = group("job", 2)
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": "job", "uid": "j"}
    owned["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    api.add(node("n1", gpus=8), owned, group("bare", 2))
    async with Running(api) as running:
        await running.settle(0.05)
        assert (api.phase("job"), api.phase("bare")) == ("Inqueue", "")
        await running.settle(0.5)
        assert api.phase("bare") == "Inqueue"


@pytest.mark.parametrize("phase", ["Running", "Pending", "Succeeded"])
async def test_a_pod_that_never_terminates_causes_no_cycles(api: SchedulerApi, phase: str) -> None:
    """If it runs, it counts as stuck two minutes after its deletion.

    Nothing is decided again and again.
    """
    since = rfc3339(api.clock.now())
    kept = pod("kept", node="n1", phase=phase, metadata={"deletionTimestamp": since, "finalizers": ["x/y"]})
    api.add(node("n1", gpus=1), kept)
    async with Running(api) as running:
        await running.settle(200.0)
        cycles = running.service.engine.cycles
        api.add(pod("later"))
        await running.settle(100.0)
        assert running.service.engine.cycles - cycles <= 20
        assert api.bound() == (["kept", "later"] if phase == "Succeeded" else ["kept"])
