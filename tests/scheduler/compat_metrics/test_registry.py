"""``/metrics`` under the names of other schedulers, as exported by a running scheduler."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
from kaiobjects import kai_group, kai_pod, kai_queue
from kubeobjects import group, node, pod, priority_class, queue
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from scheduler_api import Running, SchedulerApi

from windlass.api.resources import KAI_POD_GROUPS, KAI_QUEUES, PODS, PRIORITY_CLASSES
from windlass.kits.clock import FakeClock
from windlass.observe import metrics
from windlass.observe.metrics import Collected, exposition
from windlass.scheduler.compat_metrics.families import DETAILS, DEVICES, JOBS, LEGACY_DEVICES, MetricFamily
from windlass.scheduler.compat_metrics.registry import OPTIONAL, CompatMetrics, modules

GPU, GIB = "nvidia.com/gpu", 1 << 30
DECLARED = {family.name: family for module in modules(OPTIONAL, DETAILS) for family in module.FAMILIES}
Value = Callable[..., float | None]


@pytest.fixture
def api(fake_clock: FakeClock) -> SchedulerApi:
    """Four GPUs, three of them for a gang of three. Another gang of three waits."""
    made = SchedulerApi(fake_clock)
    made.add(queue("root"), queue("default"))
    limits = {"deserved": {GPU: "2"}, "guarantee": {"resource": {GPU: "1"}}, "capability": {GPU: "4"}}
    made.add(queue("a", weight=3, **limits), queue("b", deserved={GPU: "2"}))
    card = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
    made.add(node("n1", gpus=4, cpu="10", labels=card), node("n2", gpus=0, ready="False"))
    first = group("g", 3, queue="a")
    first["metadata"]["creationTimestamp"] = "2026-01-01T11:59:00Z"
    made.add(first, *[pod(f"g-{i}", group="g") for i in range(3)])
    made.add(group("late", 3, queue="a"), *[pod(f"late-{i}", group="late") for i in range(3)])
    return made


def scrape(running: Running, registry: CollectorRegistry, *details: str) -> tuple[str, Value]:
    """Return the text of /metrics, and a function that returns one value."""
    CompatMetrics(registry, running.service.sources(details), OPTIONAL)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    return exposition(registry)[1].decode(), value


async def play(api: SchedulerApi, running: Running) -> None:
    """Let the first gang run, then a minute pass."""
    await running.settle(2.0)
    for name in ("g-0", "g-1", "g-2"):
        api.run(name)
    await running.settle(60.0)


async def test_kube_scheduler_and_volcano(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        _, value = scrape(running, registry)

        ours = value("windlass_scheduler_pod_scheduling_duration_seconds_count")
        assert value("scheduler_pod_scheduling_sli_duration_seconds_count") == ours == 3
        seconds = value("windlass_scheduler_pod_scheduling_duration_seconds_sum")
        assert seconds is not None
        latency = "volcano_task_scheduling_latency_milliseconds_sum"
        assert value(latency, stage="Bound") == pytest.approx(1000 * seconds)
        assert value("scheduler_schedule_attempts_total", result="scheduled", profile="windlass") == 3
        assert value("volcano_schedule_attempts_total", result="error") == 0
        assert value("scheduler_pending_pods", queue="unschedulable") == 3
        assert value("scheduler_cache_size", type="nodes") == 2
        assert value("scheduler_cache_size", type="pods") == 3
        bind = {"extension_point": "Bind", "status": "Success", "profile": "windlass"}
        assert value("scheduler_framework_extension_point_duration_seconds_count", **bind) == 3
        cycles = value("windlass_scheduler_cycle_duration_seconds_count")
        for name in ("scheduling", "podgroup_scheduling"):
            assert value(f"scheduler_{name}_algorithm_duration_seconds_count") == cycles
        assert value("windlass_scheduler_cycle_part_duration_seconds_count", part="carry out") == cycles
        assert value("volcano_open_session_duration_milliseconds_count") == cycles
        assert value("volcano_action_scheduling_latency_milliseconds_count", action="allocate") == cycles
        assert (
            value("scheduler_podgroup_schedule_attempts_total", result="scheduled", profile="windlass") == 1
        )
        assert value("volcano_unschedule_job_count") == 1
        assert value("volcano_unschedule_task_count") == 3
        assert value("volcano_e2e_job_scheduling_latency_milliseconds_count") == 1
        assert value("volcano_e2e_job_scheduling_latency_milliseconds_sum") == pytest.approx(60000, abs=50)
        a = {"queue_name": "a", "resource": GPU}
        amounts = {
            "allocated": 3000,
            "request": 6000,
            "deserved": 2000,
            "capacity": 4000,
            "real_capacity": 4000,
        }
        told = {word: value(f"volcano_queue_{word}_scalar_resources", **a) for word in amounts}
        assert told == amounts, "thousandths, as Volcano's boards expect them"
        pods = {"queue_name": "a", "resource": "pods"}
        assert value("volcano_queue_allocated_scalar_resources", **pods) == 3
        assert value("volcano_queue_weight", queue_name="a") == 3
        assert value("volcano_queue_share", queue_name="a") == 1.5
        assert value("volcano_queue_overused", queue_name="a") == 1
        assert value("volcano_queue_pod_group_running_count", queue_name="a") == 1
        assert value("volcano_queue_pod_group_inqueue_count", queue_name="a") == 1
        bucket = "volcano_e2e_scheduling_latency_milliseconds_bucket"
        assert value(bucket, le="500.0") == value(bucket, le="+Inf") == cycles
        assert value("volcano_total_preemption_attempts") == 0


async def test_resources_of_admitted_groups_are_exported(api: SchedulerApi) -> None:
    api.add(group("big", 2, queue="b", minResources={"cpu": "3", GPU: "8"}))
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await running.settle(5.0)
        _, value = scrape(running, registry)
        assert value("volcano_queue_pod_group_inqueue_count", queue_name="b") == 1
        assert value("volcano_queue_inqueue_milli_cpu", queue_name="b") == 3000
        assert value("volcano_queue_inqueue_scalar_resources", queue_name="b", resource=GPU) == 8000


async def test_kueue_and_yunikorn(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        _, value = scrape(running, registry)

        a = {"cluster_queue": "a"}
        assert value("kueue_admitted_active_workloads", **a) == 2
        assert value("kueue_admitted_workloads_total", **a) == 2
        assert value("kueue_admission_wait_time_seconds_count", **a) == 2
        assert value("kueue_ready_wait_time_seconds_count", **a) == 1
        assert value("kueue_execution_time_seconds_count", **a) is None
        waits = {**a, "reason": "WaitingForQuota", "underlying_cause": "WaitingForQuota"}
        assert value("kueue_unadmitted_workloads", **waits) == 1
        assert value("kueue_admission_attempts_total", result="success") == 1
        assert value("kueue_cluster_queue_status", status="active", **a) == 1
        gpus = {"cohort": "root", **a, "flavor": "", "resource": GPU}
        told = {
            word: value(f"kueue_cluster_queue_{word}", **gpus)
            for word in (
                "resource_usage",
                "resource_pending",
                "nominal_quota",
                "borrowing_limit",
                "lending_limit",
            )
        }
        assert list(told.values()) == [3, 3, 2, 2, 1]
        assert value("kueue_cluster_queue_resource_usage", **{**gpus, "cluster_queue": "root"}) is None
        root = {"cohort": "root", "flavor": "", "resource": GPU}
        assert value("kueue_cohort_subtree_resource_reservations", **root) == 3
        # One above its quota, of three that the members can lend (one of four is guaranteed), by weight 3.
        assert value("kueue_cluster_queue_weighted_share", cohort="root", **a) == 111
        tree = {"cohort": "root", "parent_cohort": "root", "root_cohort": "root"}
        assert value("kueue_cluster_queue_info", **a, **tree) == 1
        assert value("kueue_cohort_subtree_admitted_workloads_total", cohort="root") == 2
        held = {"queue": "a", "resource": GPU}
        assert value("yunikorn_queue_resource", state="allocated", **held) == 3
        assert value("yunikorn_queue_resource", state="pending", **held) == 3
        assert value("yunikorn_queue_app", queue="a", state="running") == 1
        assert value("yunikorn_scheduler_node", state="unhealthy") == 1
        attempts = "yunikorn_scheduler_container_allocation_attempt_total"
        assert value(attempts, state="allocated") == 3
        assert value("yunikorn_scheduler_nvidia_com_gpu_node_usage_total", range="(70%,80%]") == 1
        assert value("yunikorn_scheduler_vcore_node_usage_total", range="[0,10%]") == 2
        for name in ("g-0", "g-1", "g-2"):
            api.end(name)
        await running.settle(2.0)
        assert value("kueue_finished_workloads_total", **a) == 1
        assert value("kueue_execution_time_seconds_sum", **a) == pytest.approx(60, abs=1)
        assert value("kueue_finished_workloads", **a) == 1


async def test_evictions_and_preemptions_are_exported(fake_clock: FakeClock) -> None:
    api = SchedulerApi(fake_clock)
    api.add(queue("root"), queue("default"), node("n1", gpus=2))
    for name, value in (("low", 1), ("high", 9)):
        api.put(PRIORITY_CLASSES, priority_class(name, value))
    api.add(group("low", 1, priorityClassName="low"))
    api.add(*[pod(f"low-{i}", group="low", priority=1) for i in range(2)])
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await running.settle(2.0)
        assert api.bound() == ["low-0", "low-1"]
        api.run("low-0")
        api.run("low-1")
        api.add(group("high", 2, priorityClassName="high"))
        api.add(*[pod(f"high-{i}", group="high", priority=9) for i in range(2)])
        await running.settle(10.0)
        _, value = scrape(running, registry, *DETAILS)
        assert value("scheduler_preemption_attempts_total") == 1
        assert value("scheduler_preemption_victims_sum") == 2
        assert value("volcano_eviction_transactions_total", action="preempt") == 1
        assert value("kai_total_preemption_attempts") == 2
        why = {"cluster_queue": "default", "reason": "Preempted"}
        assert value("kueue_evicted_workloads_total", **why, underlying_cause="") == 1
        within = {"preempting_cluster_queue": "default", "reason": "InClusterQueue"}
        assert value("kueue_preempted_workloads_total", **within) == 1
        pods = {"podgroup": "low", "namespace": "default", "nodepool": "", "action": "preempt"}
        uid = running.service.components.counters.lives["default/low"].uid
        assert value("kai_pod_group_evicted_pods_total", **pods, uid=uid) == 2


async def test_kai(fake_clock: FakeClock) -> None:
    api = SchedulerApi(fake_clock)
    api.add(node("n1", gpus=2))
    for kind, obj in (
        (KAI_QUEUES, kai_queue("org")),
        (KAI_QUEUES, kai_queue("team", "org", gpus=1)),
        (KAI_POD_GROUPS, kai_group("a", 2, "team")),
        (PODS, kai_pod("a0", "a", "team")),
        (PODS, kai_pod("a1", "a", "team")),
    ):
        api.put(kind, obj)
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await running.settle(2.0)
        _, value = scrape(running, registry)
        team = {"queue_name": "team", "queue_metadata_name": "team"}
        assert value("kai_queue_info", **team) == 1
        assert value("kai_queue_allocated_gpus", **team) == 2
        assert value("kai_queue_deserved_gpus", **team) == 1
        assert value("kai_queue_info", queue_name="root", queue_metadata_name="root") is None
        assert value("kai_podgroups_scheduled_by_action", action="allocate") == 1
        assert (
            value("kai_action_scheduling_latency_milliseconds", action="allocate") == 0
        )  # the clock stands still
        assert value("kai_task_bind_latency_milliseconds_count") == 2


async def test_hamis_devices_and_shares_are_exported_on_request(api: SchedulerApi) -> None:
    api.add(pod("part", requests={}, annotations={"gpu-fraction": "0.25"}))
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        text, value = scrape(running, registry, "cards", "legacyCards")
        kind = "NVIDIA-A100-SXM4-80GB"
        held = {
            index: value(
                "GPUDeviceCoreAllocated", nodeid="n1", deviceuuid="", deviceidx=index, devicetype=kind
            )
            for index in "0123"
        }
        assert sorted(held.values()) == [25, 100, 100, 100]  # type: ignore[type-var]
        (shared,) = [index for index, part in held.items() if part == 25]
        new = {"node": "n1", "device_uuid": "", "device_index": shared}
        assert value("hami_gpu_memory_limit_bytes", **new, device_type=kind) == 80 * GIB
        assert (
            value("hami_gpu_memory_allocated_bytes", **new, device_cores="100", device_type=kind) == 20 * GIB
        )
        assert value("hami_node_gpu_memory_allocated_ratio", **new) == 0.25
        assert value("hami_gpu_shared_count", **new, device_type=kind) == 1
        part = {
            "namespace": "default",
            "node": "n1",
            "pod": "part",
            "container_index": "0",
            "device_uuid": shared,
        }
        assert value("hami_vgpu_core_allocated_ratio", **part) == 25
        assert text.count("vGPUMemoryAllocated{") == 4


@pytest.mark.parametrize(
    ("details", "told", "seen"),
    [
        ((DEVICES, LEGACY_DEVICES), (b"hami_", b"GPUDevice", b"vGPU"), b'pod="g-0"'),
        ((JOBS,), (b"volcano_job_", b"volcano_e2e_job_scheduling_"), b'volcano_job_share{job_id="g"'),
    ],
)
async def test_details_have_the_state_of_the_scrape(
    api: SchedulerApi, details: tuple[str, ...], told: tuple[bytes, ...], seen: bytes
) -> None:
    """They are formatted outside the event loop, while decisions go on."""

    def chosen(text: bytes) -> list[bytes]:
        return [line for line in text.splitlines() if line.startswith(told)]

    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        CompatMetrics(registry, running.service.sources(details), OPTIONAL)
        then = chosen(exposition(registry)[1])
        noted = Collected(registry.collect())
        api.end("g-0")
        await running.settle(60.0)
        assert chosen(exposition(registry)[1]) != then
        assert chosen(exposition(noted)[1]) == then
    assert any(seen in line for line in then)


async def test_exactly_the_declared_families_are_exported(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        text, _ = scrape(running, registry, *DETAILS)
    shown = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE)
    assert len({name for name, _ in shown}) == len(shown)
    named = {name: kind for name, kind in shown if not name.startswith(("windlass_", "process_", "python_"))}
    assert named == {name: _kind(family) for name, family in DECLARED.items()}
    for family in text_string_to_metric_families(text):
        declared = DECLARED.get(family.name) or DECLARED.get(f"{family.name}_total")
        if declared is None:
            continue
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(declared.labels), sample.name
    assert "_created" not in text


def _kind(family: MetricFamily) -> str:
    """Type in the exposition format: a counter without the suffix has none."""
    return "untyped" if family.kind == "counter" and not family.name.endswith("_total") else family.kind


async def test_details_are_not_exported_by_default(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        text, _ = scrape(running, registry)
    shown = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert shown.isdisjoint(family.name for family in DECLARED.values() if family.detail)
    assert 'g-0"' not in text


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt-get install prometheus")
async def test_prometheus_reads_the_exposition(api: SchedulerApi) -> None:
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        text, _ = scrape(running, registry, *DETAILS)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode in (0, 3), done.stderr  # 3: names that others chose are not what it would choose
    complaints = [line for line in done.stderr.splitlines() if line.startswith("windlass_")]
    assert complaints == []


async def test_the_oldest_wait_counts_groups_that_waiting_may_help(api: SchedulerApi) -> None:
    api.add(queue("shut", state="Closed"), group("never", 1, queue="shut"), pod("never-0", group="never"))
    registry = metrics.registry()
    async with Running(api, registry=registry) as running:
        await play(api, running)
        _, value = scrape(running, registry)
        since = running.service.components.counters.lives["default/late"].created
        assert value("windlass_scheduler_queue_oldest_wait_seconds", queue="a") == pytest.approx(
            running.service.components.time.now() - since
        )
        assert value("windlass_scheduler_queue_oldest_wait_seconds", queue="b") == 0
        assert not value("windlass_scheduler_queue_oldest_wait_seconds", queue="shut")
