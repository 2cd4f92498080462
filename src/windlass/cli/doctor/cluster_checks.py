"""What ``windlass --context NAME doctor`` looks at: a cluster instead of this box.

Each check says what it found and, when something is wrong, the remedy. What this user may not see is said so, and is
no failure: a researcher has rights in one namespace only.
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
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    QUEUES,
    VOLCANO_JOBS,
    Resource,
)
from windlass.cli.doctor.box_checks import FAIL, OK, WARN, CheckResult, queues
from windlass.cli.errors import absent_kinds, unless_forbidden
from windlass.cli.install import gpu_sharing, upgrade
from windlass.cli.install.objects import DEPLOYED, DEPLOYMENTS, PART_OF
from windlass.cli.invocation import Invocation
from windlass.cli.jobs.health import excess_units
from windlass.cli.resources import allocatable
from windlass.cli.text import join_words, natural_key, plural, timestamp
from windlass.client.transport import Request
from windlass.kits.timestamps import age

_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
_LEVELS = {upgrade.GOOD: OK, upgrade.NOTE: WARN, upgrade.STOP: FAIL}
_NODE_LEASES = "kube-node-lease"
"""The namespace in which kubelets say that they live."""
_PRESENT = "nvidia.com/gpu.present"
"""The label that feature discovery gives a node with GPUs of NVIDIA."""
Json = dict[str, Any]


def all_checks(invocation: Invocation) -> Iterator[CheckResult]:
    """Every check in order. A server that does not answer ends them."""
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
        ("shared cards", _shared_cards),
        ("nodes", _nodes),
        ("clock", _clocks_of_nodes),
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


def _ahead(invocation: Invocation) -> float:
    """Seconds by which this machine's clock is ahead of the API server's, to one or two; 0 where the server does not
    say."""
    said = invocation.client.request(Request("GET", "/readyz")).headers.get("date", "")
    try:
        return invocation.clock.now() - parsedate_to_datetime(said).timestamp()
    except ValueError:
        return 0.0


def _clock(invocation: Invocation) -> Iterator[CheckResult]:
    ahead = _ahead(invocation)
    if abs(ahead) < CLOCK_SECONDS:
        yield CheckResult("clock", OK, "goes with the API server's")
    else:
        text = f"{_off(ahead)} the API server's: ages and estimates are shown wrong here"
        yield CheckResult("clock", WARN, text, "timedatectl status")


def _off(ahead: float) -> str:
    return f"{age(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'}"


def _kinds(invocation: Invocation) -> Iterator[CheckResult]:
    missing = [resource.qualified for resource in absent_kinds(invocation.client)]
    if missing:
        yield CheckResult("kinds", FAIL, f"not served: {', '.join(missing)}", "windlass install")
    else:
        yield CheckResult("kinds", OK, "queues, gangs and jobs are served")


def _windlass(invocation: Invocation) -> Iterator[CheckResult]:
    client = invocation.client
    found = unless_forbidden(lambda: client.list(DEPLOYMENTS, labels=PART_OF).items, None)
    if found is None:
        yield CheckResult("windlass", WARN, "you may not see whether it is installed", "ask an administrator")
        return
    if not found:
        yield CheckResult("windlass", FAIL, "is not installed", "windlass install")
    for deployment in found:
        metadata, wanted = deployment["metadata"], deployment["spec"].get("replicas", 1)
        ready = (deployment.get("status") or {}).get("readyReplicas") or 0
        level = OK if ready >= wanted > 0 else WARN if ready else FAIL
        text = f"{metadata['namespace']}/{metadata['name']}: {ready} of {wanted} ready"
        yield CheckResult("windlass", level, text, f"kubectl -n {metadata['namespace']} describe pods")
    spaces = sorted({deployment["metadata"]["namespace"] for deployment in found})
    if len(spaces) > 1:
        text = f"is installed in {join_words(spaces)}: each has a leader, and they decide on the same pods and jobs"
        yield CheckResult("windlass", FAIL, text, f"windlass uninstall -n {spaces[-1]}")
    now = invocation.clock.now() - _ahead(invocation)
    for namespace in spaces:
        for lease in DEPLOYED:
            yield from _leader(invocation, lease, namespace, now)


def _leader(invocation: Invocation, name: str, namespace: str, now: float) -> Iterator[CheckResult]:
    """Who holds a lease, whether he still renews it, and how his clock goes. ``now``: by the API server's, which notes
    when it was told, too."""
    client = invocation.client
    lease = unless_forbidden(lambda: client.find(LEASES, name, namespace), None)
    lease = lease or {}
    spec = lease.get("spec") or {}
    remedy = f"kubectl -n {namespace} logs deployment/{name}"
    if not spec.get("holderIdentity") or not spec.get("renewTime"):
        yield CheckResult("leader", FAIL, f"nobody leads {namespace}/{name}", remedy)
        return
    said = timestamp(spec["renewTime"])
    told = _noted(lease)
    late = now - told > float(spec.get("leaseDurationSeconds") or 15)
    text = f"{spec['holderIdentity']} leads {namespace}/{name}, said so {max(0.0, now - told):.0f} s ago"
    yield CheckResult("leader", FAIL if late else OK, text, remedy)
    if abs(said - told) >= CLOCK_SECONDS:
        text = f"of {spec['holderIdentity']}, {_off(said - told)} the API server's: "
        if name == DEPLOYED[0]:  # which reckons by the server's
            text += "the times in its events and conditions are wrong"
        else:
            text += f"what it waits for ends too {'early' if said > told else 'late'}"
        yield CheckResult("clock", WARN, text, f"kubectl -n {namespace} get pods -o wide, for its node")


def _noted(lease: Json) -> float:
    """When a lease was renewed by the API server's clock; where it does not say, by that of who renewed it."""
    noted = [timestamp(one["time"]) for one in lease["metadata"].get("managedFields") or () if renews(one)]
    return max(noted, default=timestamp(lease["spec"]["renewTime"]))


def _clocks_of_nodes(invocation: Invocation) -> Iterator[CheckResult]:
    """Whose kubelet renews its lease by another clock than the API server's."""
    leases = unless_forbidden(lambda: invocation.client.list(LEASES, _NODE_LEASES).items, [])
    off = {}
    for lease in leases:
        if said := timestamp((lease.get("spec") or {}).get("renewTime")):
            ahead = said - _noted(lease)
            if abs(ahead) >= CLOCK_SECONDS:
                off[lease["metadata"]["name"]] = ahead
    if off:
        worst = max(off, key=lambda name: abs(off[name]))
        text = f"of {_some(sorted(off, key=natural_key))}: {worst} is {_off(off[worst])} the API server's: when pods "
        text += "started and ended, by which run times are reckoned, is told wrong"
        yield CheckResult("clock", WARN, text, f"timedatectl status, on {worst}")


def _shared_cards(invocation: Invocation) -> Iterator[CheckResult]:
    """Whether the cards of device plug-ins can be held, where that is switched on."""
    client, name = invocation.client, "shared cards"
    maps = unless_forbidden(lambda: client.list(CONFIG_MAPS, labels=gpu_sharing.SETTINGS).items, [])
    files = [(one.get("data") or {}).get("settings.yaml", "") for one in maps]
    on = [text for text in files if gpu_sharing.is_on(text)]
    if not on:
        return
    if unless_forbidden(lambda: client.find(NAMESPACES, gpu_sharing.SPACE), {}) is None:
        text = f"namespace {gpu_sharing.SPACE} is not there, so no card can be held"
        yield CheckResult(name, FAIL, text, "windlass install --gpu-sharing")
        return
    for wanted in {gpu_sharing.runtime_class(text) for text in on} - {""}:
        if unless_forbidden(lambda one=wanted: client.find(gpu_sharing.RUNTIME_CLASSES, one), {}) is None:
            text = f"there is no runtime class {wanted}, so pods that hold cards are refused"
            remedy = (
                "the setting scheduler.reservationRuntimeClass (gpuSharing.runtimeClassName of the chart)"
            )
            yield CheckResult(name, FAIL, text, remedy)
    pods = gpu_sharing.held(client) or []
    stuck = [pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") != "Running"]
    text = f"{plural(len(pods), 'card')} held"
    if stuck:
        text += f"; not running: {_some(stuck, 'more pod')}"
    remedy = f"kubectl -n {gpu_sharing.SPACE} describe pods"
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
        text = f"{_some(without)}: the label {_PRESENT} says that there are GPUs, the kubelet offers none"
        yield CheckResult(
            "gpus", WARN, text, "kubectl get pods -A -o wide, for the device plug-in of these nodes"
        )
    yield from _shared_with_themselves(invocation, nodes)


def _shared_with_themselves(invocation: Invocation, nodes: Sequence[Json]) -> Iterator[CheckResult]:
    """Pods that ask for more units of cards than their node has cards."""
    replicated = {node["metadata"]["name"]: node for node in nodes if _replicates(node)}
    if not replicated:
        return
    pods = unless_forbidden(lambda: invocation.client.list(PODS, None).items, [])
    told = []
    for pod in pods:
        node = replicated.get((pod.get("spec") or {}).get("nodeName") or "")
        words = excess_units(pod, node) if node is not None else ""
        if words:
            told.append((f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", words))
    if told:
        told.sort(key=lambda pair: natural_key(pair[0]))
        more = f"; {plural(len(told) - 1, 'more pod')} likewise" if len(told) > 1 else ""
        remedy = (
            "ask for one unit per pod there, or keep the pod off by the label nvidia.com/gpu.sharing-strategy"
        )
        yield CheckResult("gpus", WARN, f"pod {told[0][0]} {told[0][1]}{more}", remedy)


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
    """What the commands of somebody who runs jobs need."""
    space = invocation.home_namespace
    needs = (
        (
            "create",
            VOLCANO_JOBS,
            space,
            f"submit jobs in {space}",
            "an administrator binds the cluster role edit there",
        ),
        ("list", QUEUES, "", "see queues", "an administrator sets rbac.queueReaders of the chart"),
        (
            "list",
            NODES,
            "",
            "see nodes (node ls, gpu ls, plan, what-if)",
            "an administrator grants it: get, list nodes",
        ),
    )
    for verb, resource, namespace, words, remedy in needs:
        asked = {"verb": verb, "group": resource.group, "resource": resource.plural, "namespace": namespace}
        body = {
            "apiVersion": _REVIEWS.api_version,
            "kind": _REVIEWS.kind,
            "spec": {"resourceAttributes": asked},
        }
        answer = invocation.client.create(_REVIEWS, body)
        allowed = bool((answer.get("status") or {}).get("allowed"))
        text = f"you may {'' if allowed else 'not '}{words}"
        yield CheckResult("your rights", OK if allowed else WARN, text, remedy)
