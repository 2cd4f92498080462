"""Checks of ``windlass --context NAME doctor``: a cluster instead of this machine.

Each check has a result and a remedy.

What this user may not see is reported as such, and is not a failure: many users have
rights in one namespace only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from windlass.api.devices.plugin_units import unit_of
from windlass.api.devices.request import WHOLE
from windlass.api.errors import StatusError, WindlassError
from windlass.api.leases import CLOCK_SECONDS, renews
from windlass.api.quantities import is_device
from windlass.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.doctor import gpu_parts
from windlass.cli.doctor.machine_checks import FAIL, OK, WARN, CheckResult, queues
from windlass.cli.errors import absent_kinds, unless_forbidden
from windlass.cli.install import gpu_sharing, upgrade
from windlass.cli.install.objects import DEPLOYED, PART_OF
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.health import excess_units
from windlass.cli.nodes.dra_devices import drivers_by_node, slices_of
from windlass.cli.resources import allocatable
from windlass.cli.text import join_words, natural_key, plural, timestamp
from windlass.client.transport import Request
from windlass.kits.timestamps import age

_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
_LEVELS = {upgrade.GOOD: OK, upgrade.NOTE: WARN, upgrade.STOP: FAIL}
_NODE_LEASES = "kube-node-lease"
"""Namespace of the leases that kubelets renew."""
_PRESENT = "nvidia.com/gpu.present"
"""Label that feature discovery sets on a node with GPUs of NVIDIA."""
Json = dict[str, Any]


def all_checks(invocation: Invocation) -> Iterator[CheckResult]:
    """Yield all checks in order. A server that does not respond ends them."""
    try:
        yield from _server(invocation)
    except WindlassError as error:
        remedy = error.remedies[0] if error.remedies else "kubectl config view --minify"
        yield CheckResult("API server", FAIL, error.message, remedy)
        return
    checks: Sequence[tuple[str, Callable[[Invocation], Iterator[CheckResult]]]] = (
        ("clock", _clock),
        ("kinds", _kinds),
        ("windlass", _windlass),
        ("shared GPUs", _shared_devices),
        ("nodes", _nodes),
        ("GPU parts", _gpu_parts),
        ("clock", _node_clocks),
        ("queues", queues),
        ("your rights", _rights),
    )
    for name, check in checks:
        try:
            yield from check(invocation)
        except (StatusError, WindlassError) as error:
            yield CheckResult(name, WARN, f"could not be checked: {error}")


def _server(invocation: Invocation) -> Iterator[CheckResult]:
    client = invocation.client
    try:
        found = upgrade.server(client)
        client.call(Request("GET", "/readyz"))
    except StatusError as error:
        remedy = "kubectl auth whoami" if error.code == 401 else "kubectl get --raw '/readyz?verbose'"
        yield CheckResult("API server", FAIL, f"{client.connection.where}: {error}", remedy)
        return
    yield CheckResult(
        "API server", _LEVELS[found.level], f"{found.words} on {client.connection.where}", found.remedy
    )


def _clock_offset(invocation: Invocation) -> float:
    """Return how far this machine's clock is ahead of the API server's in seconds.

    The precision is one or two seconds; 0 if the server does not send its time.
    """
    date = invocation.client.request(Request("GET", "/readyz")).headers.get("date", "")
    try:
        return invocation.clock.now() - parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0


def _clock(invocation: Invocation) -> Iterator[CheckResult]:
    ahead = _clock_offset(invocation)
    if abs(ahead) < CLOCK_SECONDS:
        yield CheckResult("clock", OK, "agrees with the API server's")
    else:
        text = f"{_offset_text(ahead)} the API server's: ages and estimates in the output are wrong"
        yield CheckResult("clock", WARN, text, "timedatectl status")


def _offset_text(ahead: float) -> str:
    return f"{age(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"


def _kinds(invocation: Invocation) -> Iterator[CheckResult]:
    missing = [resource.qualified for resource in absent_kinds(invocation.client)]
    if missing:
        yield CheckResult("kinds", FAIL, f"not served: {', '.join(missing)}", "windlass install")
    else:
        yield CheckResult("kinds", OK, "queues, gangs and jobs are served")


def _windlass(invocation: Invocation) -> Iterator[CheckResult]:
    client = invocation.client
    deployments = unless_forbidden(lambda: client.list(DEPLOYMENTS, labels=PART_OF).items, None)
    if deployments is None:
        yield CheckResult("windlass", WARN, "you may not see whether it is installed", "ask an administrator")
        return
    if not deployments:
        yield CheckResult("windlass", FAIL, "is not installed", "windlass install")
    for deployment in deployments:
        metadata, wanted = deployment["metadata"], deployment["spec"].get("replicas", 1)
        ready = (deployment.get("status") or {}).get("readyReplicas") or 0
        level = OK if ready >= wanted > 0 else WARN if ready else FAIL
        text = f"{metadata['namespace']}/{metadata['name']}: {ready} of {wanted} ready"
        yield CheckResult("windlass", level, text, f"kubectl -n {metadata['namespace']} describe pods")
    namespaces = sorted({deployment["metadata"]["namespace"] for deployment in deployments})
    if len(namespaces) > 1:
        text = f"is installed in {join_words(namespaces)}: each has a leader, and they schedule the same pods and jobs"
        yield CheckResult("windlass", FAIL, text, f"windlass uninstall -n {namespaces[-1]}")
    now = invocation.clock.now() - _clock_offset(invocation)
    for namespace in namespaces:
        for lease in DEPLOYED:
            yield from _leader(invocation, lease, namespace, now)


def _leader(invocation: Invocation, name: str, namespace: str, now: float) -> Iterator[CheckResult]:
    """Check the holder of a lease, its last renewal, and its clock.

    ``now``: by the clock of the API server, which also records the time of each write.
    """
    client = invocation.client
    lease = unless_forbidden(lambda: client.find(LEASES, name, namespace), None)
    lease = lease or {}
    spec = lease.get("spec") or {}
    remedy = f"kubectl -n {namespace} logs deployment/{name}"
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        yield CheckResult("leader", FAIL, f"{namespace}/{name} has no leader", remedy)
        return
    renewed_by_holder = timestamp(spec["renewTime"])
    renewed_at = _renewed_at(lease)
    late = now - renewed_at > float(spec.get("leaseDurationSeconds") or 15)
    text = (
        f"{spec['holderIdentity']} leads {namespace}/{name}, renewed {max(0.0, now - renewed_at):.0f} s ago"
    )
    yield CheckResult("leader", FAIL if late else OK, text, remedy)
    if abs(renewed_by_holder - renewed_at) >= CLOCK_SECONDS:
        text = f"that of {spec['holderIdentity']} is {_offset_text(renewed_by_holder - renewed_at)} the API server's: "
        if name == DEPLOYED[0]:  # uses the server's clock for decisions
            text += "the times in its events and conditions are wrong"
        else:
            text += f"its timeouts end too {'early' if renewed_by_holder > renewed_at else 'late'}"
        yield CheckResult("clock", WARN, text, f"kubectl -n {namespace} get pods -o wide   (shows its node)")


def _renewed_at(lease: Json) -> float:
    """Return the renewal of a lease by the API server's clock; if unknown, by the holder's."""
    times = [
        timestamp(entry["time"]) for entry in lease["metadata"].get("managedFields") or () if renews(entry)
    ]
    return max(times, default=timestamp(lease["spec"]["renewTime"]))


def _node_clocks(invocation: Invocation) -> Iterator[CheckResult]:
    """Check the clocks of nodes by the leases that their kubelets renew."""
    leases = unless_forbidden(lambda: invocation.client.list(LEASES, _NODE_LEASES).items, [])
    offsets = {}
    for lease in leases:
        if renewed := timestamp((lease.get("spec") or {}).get("renewTime")):
            offset = renewed - _renewed_at(lease)
            if abs(offset) >= CLOCK_SECONDS:
                offsets[lease["metadata"]["name"]] = offset
    if offsets:
        worst = max(offsets, key=lambda name: abs(offsets[name]))
        text = f"those of {_some(sorted(offsets, key=natural_key))} are wrong ({worst} is "
        text += (
            f"{_offset_text(offsets[worst])} the API server's), and so are start, end and run times of pods"
        )
        yield CheckResult("clock", WARN, text, f"timedatectl status   (on {worst})")


def _shared_devices(invocation: Invocation) -> Iterator[CheckResult]:
    """Check that devices of device plugins can be reserved, if that is enabled."""
    client, name = invocation.client, "shared GPUs"
    maps = unless_forbidden(lambda: client.list(CONFIG_MAPS, labels=gpu_sharing.SETTINGS).items, [])
    files = [(one.get("data") or {}).get("settings.yaml", "") for one in maps]
    on = [text for text in files if gpu_sharing.is_on(text)]
    if not on:
        return
    if unless_forbidden(lambda: client.find(NAMESPACES, gpu_sharing.RESERVATION_NAMESPACE), {}) is None:
        text = f"namespace {gpu_sharing.RESERVATION_NAMESPACE} does not exist, so no GPU can be reserved"
        yield CheckResult(name, FAIL, text, "windlass install --gpu-sharing")
        return
    for wanted in {gpu_sharing.runtime_class(text) for text in on} - {""}:
        if unless_forbidden(lambda one=wanted: client.find(gpu_sharing.RUNTIME_CLASSES, one), {}) is None:
            text = f"runtime class {wanted} does not exist, so reservation pods are rejected"
            remedy = "change the setting scheduler.reservationRuntimeClass (gpuSharing.runtimeClassName of the chart)"
            yield CheckResult(name, FAIL, text, remedy)
    pods = gpu_sharing.reservation_pods(client) or []
    stuck = [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") != "Running"]
    text = f"{plural(len(pods), 'GPU')} reserved"
    if stuck:
        text += f"; not running: {_some(stuck, 'more pod')}"
    remedy = f"kubectl -n {gpu_sharing.RESERVATION_NAMESPACE} describe pods"
    yield CheckResult(name, WARN if stuck else OK, text, remedy)


def _nodes(invocation: Invocation) -> Iterator[CheckResult]:
    client = invocation.client
    nodes = unless_forbidden(lambda: client.list(NODES).items, None)
    if nodes is None:
        return
    unready = [node["metadata"]["name"] for node in nodes if not _is_ready(node)]
    text = f"{len(nodes) - len(unready)} of {len(nodes)} ready"
    named = f"; not ready: {_some(unready)}" if unready else ""
    yield CheckResult("nodes", WARN if unready or not nodes else OK, text + named, "windlass node ls")
    without = [
        node["metadata"]["name"]
        for node in nodes
        if (node["metadata"].get("labels") or {}).get(_PRESENT) == "true" and not _has_devices(node)
    ]
    if without:
        text = f"{_some(without)}: the label {_PRESENT} is set, but the kubelet offers no GPUs"
        yield CheckResult(
            "gpus", WARN, text, "kubectl get pods -A -o wide   (check the device plugin on these nodes)"
        )
    yield from _excess_units(invocation, nodes)


def _gpu_parts(invocation: Invocation) -> Iterator[CheckResult]:
    """Check the six parts of the GPU stack on each node."""
    client = invocation.client
    nodes = unless_forbidden(lambda: client.list(NODES).items, [])
    pods = unless_forbidden(lambda: client.list(PODS, None).items, None)
    yield from gpu_parts.checks(nodes, pods, drivers_by_node(slices_of(client)))


def _excess_units(invocation: Invocation, nodes: Sequence[Json]) -> Iterator[CheckResult]:
    """Check for pods that request more device units than their node has devices."""
    replicated = {node["metadata"]["name"]: node for node in nodes if _replicates(node)}
    if not replicated:
        return
    pods = unless_forbidden(lambda: invocation.client.list(PODS, None).items, [])
    excess = []
    for pod in pods:
        node = replicated.get((pod.get("spec") or {}).get("nodeName") or "")
        words = excess_units(pod, node) if node is not None else ""
        if words:
            excess.append((f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", words))
    if excess:
        excess.sort(key=lambda pair: natural_key(pair[0]))
        more = f"; and {plural(len(excess) - 1, 'more pod')}" if len(excess) > 1 else ""
        remedy = "request one unit per pod there, or avoid these nodes by the label nvidia.com/gpu.sharing-strategy"
        yield CheckResult("gpus", WARN, f"pod {excess[0][0]} {excess[0][1]}{more}", remedy)


def _replicates(node: Json) -> bool:
    listed, labels = allocatable(node), node["metadata"].get("labels") or {}
    units = (unit_of(name, labels, milli // WHOLE) for name, milli in listed.items())
    return any(unit is not None and unit.replicas > 1 for unit in units)


def _is_ready(node: Json) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _has_devices(node: Json) -> bool:
    offered = (node.get("status") or {}).get("allocatable") or {}
    return any(is_device(name) and str(amount) != "0" for name, amount in offered.items())


def _some(names: Sequence[str], noun: str = "more node") -> str:
    return ", ".join(names[:3]) + (f" and {plural(len(names) - 3, noun)}" if len(names) > 3 else "")


def _rights(invocation: Invocation) -> Iterator[CheckResult]:
    """Check the rights that commands need for users that run jobs."""
    space = invocation.home_namespace
    needs = (
        (
            "create",
            VOLCANO_JOBS,
            space,
            f"submit jobs in {space}",
            "ask an administrator to bind the cluster role edit there",
        ),
        ("list", QUEUES, "", "see queues", "ask an administrator to set rbac.queueReaders of the chart"),
        (
            "list",
            NODES,
            "",
            "see nodes (node ls, gpu ls, plan, what-if)",
            "ask an administrator for this permission: get, list nodes",
        ),
    )
    for verb, resource, namespace, action, remedy in needs:
        attributes = {
            "verb": verb,
            "group": resource.group,
            "resource": resource.plural,
            "namespace": namespace,
        }
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        answer = invocation.client.create(_REVIEWS, body)
        allowed = bool((answer.get("status") or {}).get("allowed"))
        text = f"you may {'' if allowed else 'not '}{action}"
        yield CheckResult("your rights", OK if allowed else WARN, text, remedy)
