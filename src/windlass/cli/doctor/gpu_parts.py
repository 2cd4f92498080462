"""Six parts that GPUs of a node need, as NVIDIA's GPU operator bundles them.

They are the driver, the container toolkit, the device plugin, the DCGM exporter, feature
discovery and the MIG manager. Each is judged by labels, allocatable resources and pods of
the node, so the result holds for any way of installation. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from windlass.api import annotations as annotation_names
from windlass.api.devices import node_annotation
from windlass.api.devices.models import NVIDIA
from windlass.api.quantities import is_device
from windlass.cli import resources
from windlass.cli.doctor.machine_checks import OK, WARN, CheckResult
from windlass.cli.text import condition, join_words, name_ranges, natural_key
from windlass.node.devices.labels import DRIVER_VERSION, SIMULATED_DRIVER

Object = Mapping[str, Any]
_VERSIONS = (DRIVER_VERSION, "nvidia.com/cuda.driver-version.full")
"""Labels with the version of the driver, in the order of preference."""
_OLD_VERSION = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
_GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    "feature.node.kubernetes.io/pci-10de.present": "true",
    "feature.node.kubernetes.io/pci-0300_10de.present": "true",
    "feature.node.kubernetes.io/pci-0302_10de.present": "true",
}
"""Labels by which node feature discovery reports a GPU of NVIDIA."""
_CLOUD_LABELS = (
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "kubernetes.azure.com/accelerator",
)
_POD_LABELS = (
    "app",
    "name",
    "k8s-app",
    "app.kubernetes.io/name",
    "app.kubernetes.io/component",
)
_INSTALL = (
    "helm upgrade --install gpu-operator gpu-operator --repo https://helm.ngc.nvidia.com/nvidia "
    "-n gpu-operator --create-namespace --reuse-values"
)


class Part(StrEnum):
    """Part of the GPU stack of a node."""

    DRIVER = "driver"
    TOOLKIT = "container toolkit"
    PLUGIN = "device plugin"
    EXPORTER = "DCGM exporter"
    DISCOVERY = "feature discovery"
    MIG_MANAGER = "MIG manager"


class PartState(StrEnum):
    """State of a part on a node."""

    BUILT_IN = "built in"
    FOUND = "found"
    MISSING = "missing"
    NOT_NEEDED = "not needed"


_WORKLOADS: Mapping[Part, frozenset[str]] = {
    Part.DRIVER: frozenset({"nvidia-driver-daemonset", "nvidia-driver", "nvidia-driver-installer"}),
    Part.TOOLKIT: frozenset({"nvidia-container-toolkit-daemonset", "nvidia-container-toolkit"}),
    Part.PLUGIN: frozenset(
        {
            *("nvidia-device-plugin-daemonset", "nvidia-device-plugin-ds", "nvidia-device-plugin"),
            *("nvidia-gpu-device-plugin", "hami-device-plugin", "volcano-device-plugin"),
            *("nvidia-dra-driver-gpu", "nvidia-dra-driver-gpu-kubelet-plugin"),
        }
    ),
    Part.EXPORTER: frozenset({"nvidia-dcgm-exporter", "dcgm-exporter", "gke-managed-dcgm-exporter"}),
    Part.DISCOVERY: frozenset({"gpu-feature-discovery"}),
    Part.MIG_MANAGER: frozenset({"nvidia-mig-manager", "mig-manager", "nvidia-partition-gpu"}),
}
"""Values of pod labels by which the pods of a part are known, for usual installations."""
_OPERATOR_LABELS: Mapping[Part, str] = {
    Part.DRIVER: "nvidia.com/gpu.deploy.driver",
    Part.TOOLKIT: "nvidia.com/gpu.deploy.container-toolkit",
    Part.PLUGIN: "nvidia.com/gpu.deploy.device-plugin",
    Part.EXPORTER: "nvidia.com/gpu.deploy.dcgm-exporter",
    Part.DISCOVERY: "nvidia.com/gpu.deploy.gpu-feature-discovery",
    Part.MIG_MANAGER: "nvidia.com/gpu.deploy.mig-manager",
}
"""Node labels by which the GPU operator decides whether a part runs on a node."""
_OPERATOR_VALUES: Mapping[Part, str] = {
    Part.DRIVER: "driver.enabled",
    Part.TOOLKIT: "toolkit.enabled",
    Part.PLUGIN: "devicePlugin.enabled",
    Part.EXPORTER: "dcgmExporter.enabled",
    Part.DISCOVERY: "gfd.enabled",
    Part.MIG_MANAGER: "migManager.enabled",
}
"""Values of the GPU operator's chart that enable a part."""


@dataclass(frozen=True, slots=True)
class PartFinding:
    """State of one part on one node.

    ``detail``: evidence without the name of the node. ``remedy``: empty unless the part is
    missing or does not work.
    """

    part: Part
    state: PartState
    detail: str
    remedy: str = ""


def checks(
    nodes: Iterable[Object], pods: Iterable[Object] | None, drivers: Mapping[str, Collection[str]]
) -> list[CheckResult]:
    """Return one result for each part and finding, with the nodes to which it applies.

    ``pods``: None if this user may not list them.
    ``drivers``: DRA drivers that list devices, by node.
    """
    by_node: dict[str, list[Object]] = {}
    for pod in pods or ():
        by_node.setdefault((pod.get("spec") or {}).get("nodeName") or "", []).append(pod)
    named: dict[PartFinding, list[str]] = {}
    for node in nodes:
        name = node["metadata"]["name"]
        own = None if pods is None else by_node.get(name, [])
        for finding in findings(node, own, drivers.get(name, ())):
            named.setdefault(finding, []).append(name)
    order = list(Part)
    return [
        _result(finding, sorted(names, key=natural_key))
        for finding, names in sorted(named.items(), key=lambda pair: order.index(pair[0].part))
    ]


def _result(finding: PartFinding, nodes: Sequence[str]) -> CheckResult:
    text = f"{finding.state.value} on {name_ranges(nodes)}: {finding.detail}"
    level = WARN if finding.remedy else OK
    remedy = finding.remedy.replace("NODE", nodes[0])
    return CheckResult(finding.part.value, level, text, remedy, finding.state.value, tuple(nodes))


def findings(node: Object, pods: Sequence[Object] | None, drivers: Collection[str] = ()) -> list[PartFinding]:
    """Return the finding of each part on one node."""
    labels = node["metadata"].get("labels") or {}
    if labels.get(annotation_names.BOX) == "true" or labels.get(annotation_names.SIMULATED) == "true":
        return _of_agent(node)
    devices = _devices(node)
    if not _has_nvidia(labels, devices, drivers):
        return _without_nvidia(devices)
    return [_of_cluster(part, labels, devices, pods, drivers) for part in Part]


def _devices(node: Object) -> dict[str, int]:
    """Return the number of allocatable devices by resource."""
    units = resources.allocatable(node)
    return {name: milli // 1000 for name, milli in units.items() if is_device(name) and milli > 0}


def _has_nvidia(labels: Mapping[str, str], devices: Mapping[str, int], drivers: Collection[str]) -> bool:
    return (
        any(name.startswith("nvidia.com/") for name in devices)
        or any(labels.get(key) == value for key, value in _GPU_LABELS.items())
        or any("nvidia" in labels.get(key, "") for key in _CLOUD_LABELS)
        or any("nvidia" in driver for driver in drivers)
    )


def _without_nvidia(others: Mapping[str, int]) -> list[PartFinding]:
    """Return the findings of a node with these devices, none of NVIDIA."""
    if not others:
        return [PartFinding(part, PartState.NOT_NEEDED, "no GPU is known") for part in Part]
    listed = join_words(sorted(others))
    result = []
    for part in Part:
        if part is Part.PLUGIN:
            result.append(PartFinding(part, PartState.FOUND, f"the kubelet offers {_amounts(others)}"))
        else:
            detail = f"its devices ({listed}) are not of NVIDIA and use tools of their vendor"
            result.append(PartFinding(part, PartState.NOT_NEEDED, detail))
    return result


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in sorted(amounts.items()))


def _version(labels: Mapping[str, str]) -> str:
    """Return the version of the driver by the labels of feature discovery; empty if unknown."""
    for key in _VERSIONS:
        if labels.get(key):
            return labels[key]
    return ".".join(filter(None, (labels.get(key, "") for key in _OLD_VERSION)))


# -- nodes of a node agent ------------------------------------------------------------------------


def _of_agent(node: Object) -> list[PartFinding]:
    """Return the findings of a node with an agent of Windlass."""
    labels = node["metadata"].get("labels") or {}
    devices = _devices(node)
    records = node_annotation.read(node["metadata"].get("annotations") or {}).cards
    simulated = labels.get(annotation_names.SIMULATED) == "true" or _version(labels) == SIMULATED_DRIVER
    built_in = PartState.BUILT_IN
    return [
        _agent_driver(labels, simulated=simulated),
        PartFinding(
            Part.TOOLKIT, built_in, "the node agent gives processes their GPUs (CUDA_VISIBLE_DEVICES)"
        ),
        PartFinding(Part.PLUGIN, built_in, f"the node agent offers {_amounts(devices) or 'no devices'}"),
        _agent_exporter(has_gpus=bool(devices or records), simulated=simulated),
        PartFinding(Part.DISCOVERY, built_in, _discovered(labels)),
        _agent_mig(records, labels, simulated=simulated),
    ]


def _agent_driver(labels: Mapping[str, str], *, simulated: bool) -> PartFinding:
    if simulated:
        return PartFinding(Part.DRIVER, PartState.BUILT_IN, "simulated GPUs need no driver")
    if version := _version(labels):
        return PartFinding(Part.DRIVER, PartState.FOUND, f"version {version}")
    remedy = "install the NVIDIA driver (nvidia-smi must list the GPUs), then windlass down && windlass up"
    return PartFinding(Part.DRIVER, PartState.MISSING, "no NVIDIA driver responds", remedy)


def _agent_exporter(*, has_gpus: bool, simulated: bool) -> PartFinding:
    if not has_gpus:
        return PartFinding(Part.EXPORTER, PartState.NOT_NEEDED, "there is no GPU to measure")
    if simulated:
        return PartFinding(Part.EXPORTER, PartState.NOT_NEEDED, "simulated GPUs have no measurements")
    detail = "the node agent measures GPUs, but exports no DCGM metrics"
    return PartFinding(Part.EXPORTER, PartState.MISSING, detail, "dcgm-exporter --address :9400")


def _discovered(labels: Mapping[str, str]) -> str:
    product = labels.get(f"{NVIDIA}.product", "")
    products = [product] if product else sorted(v for k, v in labels.items() if k.endswith(".product"))
    return f"the node agent sets labels of {join_words(products)}" if products else "there is no GPU to label"


def _agent_mig(
    records: Sequence[node_annotation.DeviceRecord], labels: Mapping[str, str], *, simulated: bool
) -> PartFinding:
    if not any(record.mig for record in records):
        capable = labels.get("nvidia.com/mig.capable") == "true"
        if not capable or simulated:
            return PartFinding(Part.MIG_MANAGER, PartState.NOT_NEEDED, "no GPU is in MIG mode")
        detail = "no GPU is in MIG mode; an administrator switches it on: sudo nvidia-smi -i INDEX -mig 1"
        return PartFinding(Part.MIG_MANAGER, PartState.BUILT_IN, detail)
    if any(record.dynamic for record in records):
        detail = "the node agent creates MIG instances as pods request them"
    else:
        detail = "the node agent allocates the existing MIG instances"
    return PartFinding(Part.MIG_MANAGER, PartState.BUILT_IN, detail)


# -- nodes of a cluster ---------------------------------------------------------------------------


def _of_cluster(
    part: Part,
    labels: Mapping[str, str],
    devices: Mapping[str, int],
    pods: Sequence[Object] | None,
    drivers: Collection[str],
) -> PartFinding:
    own = [pod for pod in pods or () if _labels_of(pod) & _WORKLOADS[part]]
    evidence = _evidence(part, labels, devices, drivers)
    if part is Part.MIG_MANAGER and not own and labels.get("nvidia.com/mig.capable") != "true":
        return PartFinding(part, PartState.NOT_NEEDED, "no label says that a GPU supports MIG")
    failing = [pod for pod in own if not _is_ready(pod)]
    if own and len(failing) == len(own) and not evidence:
        metadata = failing[0]["metadata"]
        remedy = f"kubectl -n {metadata['namespace']} describe pod {metadata['name']}"
        return PartFinding(part, PartState.MISSING, f"pod {_pod_key(failing[0])} is not ready", remedy)
    if own and not evidence:
        evidence = f"pods of {_workload_name(own[0], part)} run"
    if evidence:
        return PartFinding(part, PartState.FOUND, evidence)
    return _missing(part, labels, may_see_pods=pods is not None)


def _evidence(
    part: Part, labels: Mapping[str, str], devices: Mapping[str, int], drivers: Collection[str]
) -> str:
    """Return how labels and resources of the node show the part; empty if they do not."""
    offered = {name: count for name, count in devices.items() if name.startswith("nvidia.com/")}
    gpu_drivers = sorted(driver for driver in drivers if "nvidia" in driver)
    if part is Part.DRIVER:
        if version := _version(labels):
            return f"version {version}"
        works = bool(devices or gpu_drivers)
        return "version unknown (feature discovery reports it), but the GPUs are offered" if works else ""
    if part is Part.TOOLKIT:
        return "containers of the device plugin see the GPUs" if devices else ""
    if part is Part.PLUGIN:
        if offered:
            return f"the kubelet offers {_amounts(offered)}"
        return f"DRA driver {', '.join(gpu_drivers)} lists devices" if gpu_drivers else ""
    if part is Part.DISCOVERY:
        product = labels.get(f"{NVIDIA}.product", "")
        return f"the labels say {product}" if product else ""
    if part is Part.MIG_MANAGER:
        state = labels.get("nvidia.com/mig.config.state", "")
        return f"nvidia.com/mig.config.state is {state}" if state else ""
    return ""


def _missing(part: Part, labels: Mapping[str, str], *, may_see_pods: bool) -> PartFinding:
    key = _OPERATOR_LABELS[part]
    detail = "neither labels nor resources show it"
    detail += ", and no pod of it runs there" if may_see_pods else "; you may not list pods"
    if labels.get(key) == "false":
        detail = f"the GPU operator is told to leave it out (label {key}=false)"
        return PartFinding(part, PartState.MISSING, detail, f"kubectl label node NODE {key}=true --overwrite")
    if not may_see_pods:
        return PartFinding(part, PartState.MISSING, detail, "kubectl auth can-i list pods -A")
    remedy = f"{_INSTALL} --set {_OPERATOR_VALUES[part]}=true"
    return PartFinding(part, PartState.MISSING, detail, remedy)


def _labels_of(pod: Object) -> set[str]:
    labels = pod["metadata"].get("labels") or {}
    return {labels[key] for key in _POD_LABELS if key in labels}


def _workload_name(pod: Object, part: Part) -> str:
    return min(_labels_of(pod) & _WORKLOADS[part])


def _pod_key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _is_ready(pod: Object) -> bool:
    ready = condition(pod, "Ready")
    return ready is not None and ready.get("status") == "True"
