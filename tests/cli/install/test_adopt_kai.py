"""What is found of KAI before it is taken over from: objects as its chart and its operator write them (v0.17)."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import yaml
from kaiobjects import kai_group, kai_pod, kai_queue

from windlass.api.errors import WindlassError, not_found
from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS, KAI_POD_GROUPS, KAI_QUEUES, NODES, PODS, Resource
from windlass.app.options import parser, remote_options
from windlass.cli.install import adopt, installed_settings
from windlass.cli.install import objects as install_objects
from windlass.cli.install.adopt_common import NOTE, Report
from windlass.cli.install.adopt_kai import CONFIGS, SHARDS, preflight
from windlass.cli.install.objects import InstallOptions
from windlass.client.blocking import BlockingClient
from windlass.client.responses import ListResult
from windlass.model import scheduler_config
from windlass.model.cluster.engine_factory import make_engine

Json = dict[str, Any]
SHARD = """\
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: default}
spec: {partitionLabelValue: "", goMemLimitRatio: 0.9}
"""
POLICY = """\
actions: allocate, consolidation, reclaim, preempt, stalegangeviction
tiers:
- plugins:
  - {name: predicates}
  - {name: proportion}
  - {name: minruntime}
  - {name: gpupack}
  - {name: nodeplacement, arguments: {cpu: binpack, gpu: binpack}}
  - {name: gpusharingorder}
"""
SPREAD = """\
actions: allocate, reclaim, preempt, stalegangeviction
tiers:
- plugins:
  - {name: proportion, arguments: {kValue: "0.5"}}
  - {name: gpuspread}
  - {name: nodeplacement, arguments: {cpu: spread, gpu: spread}}
"""
"""Where ``placementStrategy`` is ``spread``: no consolidation."""


@dataclass
class KaiCluster:
    """Lists and finds; nothing can be written."""

    stored: dict[Resource, list[Json]] = field(default_factory=dict)

    def list(self, resource: Resource, *, labels: str = "") -> ListResult[Json]:
        if resource not in self.stored:
            raise not_found(resource, "")
        items = [copy.deepcopy(obj) for obj in self.stored[resource]]
        items = [obj for obj in items if not labels or labels in (obj["metadata"].get("labels") or {})]
        return ListResult(items, "1")

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        found = (obj for obj in self.stored.get(resource, ()) if obj["metadata"]["name"] == name)
        return next((obj for obj in found if obj["metadata"].get("namespace") == namespace), None)

    def report(self) -> Report:
        return preflight(cast(BlockingClient, self))


def grouper(wanted: int = 1, ready: int = 1) -> Json:
    """The Deployment of the pod grouper, as the operator makes it."""
    template = {"spec": {"containers": [{"image": "kai/pod-grouper:v0.17.0", "args": []}]}}
    return {
        "metadata": {"name": "pod-grouper", "namespace": "kai-scheduler"},
        "spec": {"replicas": wanted, "template": template},
        "status": {"readyReplicas": ready},
    }


@pytest.fixture
def cluster() -> KaiCluster:
    where = {"name": "kai-scheduler-default", "namespace": "kai-scheduler"}
    template = {"spec": {"containers": [{"image": "kai/scheduler:v0.17.0", "args": []}]}}
    deployment = {"metadata": where, "spec": {"replicas": 1, "template": template}}
    groups = [kai_group("a", 2, "research"), kai_group("b", 1, "research"), kai_group("c", 1, "prod")]
    sharer = kai_pod("b-0", "b")
    sharer["metadata"]["annotations"]["gpu-fraction"] = "0.5"
    return KaiCluster(
        {
            CONFIGS: [{"metadata": {"name": "kai-config"}, "spec": {"namespace": "kai-scheduler"}}],
            SHARDS: [yaml.safe_load(SHARD)],
            DEPLOYMENTS: [{**deployment, "status": {"readyReplicas": 1}}, grouper()],
            CONFIG_MAPS: [{"metadata": where, "data": {"config.yaml": POLICY}}],
            NODES: [{"metadata": {"name": "n1"}}],
            KAI_QUEUES: [kai_queue("org"), kai_queue("research", "org"), kai_queue("prod", "org")],
            KAI_POD_GROUPS: groups,
            PODS: [kai_pod("a-0", "a"), kai_pod("a-1", "a", node="n1"), sharer],
        }
    )


def test_what_its_chart_installs_can_be_taken_over(cluster: KaiCluster) -> None:
    report = cluster.report()
    assert report.stops == []
    assert (report.names, str(report.peer)) == (("kai-scheduler",), "kai")
    rows = {row.name: (row.gangs, row.staying, row.waiting, row.running, row.inner) for row in report.queues}
    assert rows == {
        "org": (0, 0, 0, 0, True),
        "prod": (1, 0, 0, 0, False),
        "research": (2, 1, 2, 1, False),
    }
    assert report.below(["org"]) == ["prod", "research"]
    parsed = scheduler_config.parse(report.configuration)
    assert parsed.notes == ()
    make_engine(parsed.config, pytest.fail)
    assert {"consolidation", "reclaim", "preempt", "stalegangeviction"} <= set(parsed.config.actions)
    adopt.check(report, ["research"], finish=False)
    with pytest.raises(WindlassError, match="cannot be adopted") as refused:
        adopt.check(report, ["org"], finish=True)
    assert refused.value.evidence == (
        "1 gangs that stay with KAI: its binder reserves the GPUs that they share"
    )


def test_work_is_placed_as_there(cluster: KaiCluster) -> None:
    cluster.stored[CONFIG_MAPS][0]["data"]["config.yaml"] = SPREAD
    cluster.stored[SHARDS][0]["spec"]["usageDBConfig"] = {"clientType": "prometheus"}
    report = cluster.report()
    config = scheduler_config.parse(report.configuration).config
    assert "consolidation" not in config.actions
    assert [plugin.name for plugin in config.plugins] == ["gpuspread", "nodeplacement"]
    notes = " ".join(finding.text for finding in report.findings if finding.level == NOTE)
    assert "arguments of proportion are ignored: {'kValue': '0.5'}" in notes
    assert "usageDBConfig is ignored" in notes


def test_another_name_is_served_and_waited_for(cluster: KaiCluster) -> None:
    cluster.stored[CONFIGS][0]["spec"]["global"] = {"schedulerName": "batch"}
    for resource in (DEPLOYMENTS, CONFIG_MAPS):
        cluster.stored[resource][0]["metadata"]["name"] = "batch-default"  # the operator's others keep theirs
    report = cluster.report()
    assert report.stops == []
    beside = adopt.options_next_to(InstallOptions(), report)
    assert (beside.scheduler_names, beside.beside) == (("windlass", "batch"), ("kai:batch",))
    alone = adopt.options_alone(beside, report)
    assert (alone.beside, alone.grouped) == ((), ("batch",))


def test_what_is_installed_says_who_is_beside_and_who_groups(cluster: KaiCluster) -> None:
    report = cluster.report()
    beside = adopt.options_next_to(InstallOptions(image="windlass:1"), report)
    for wishes in (beside, adopt.options_alone(beside, report)):
        objects = install_objects.objects(wishes)
        cluster.stored[DEPLOYMENTS] = [obj for obj in objects if obj["kind"] == "Deployment"]
        cluster.stored[CONFIG_MAPS] = [obj for obj in objects if obj["kind"] == "ConfigMap"]
        cluster.stored[install_objects.SECRETS] = []
        found = installed_settings.as_installed(cast(BlockingClient, cluster), install_objects.NAMESPACE)
        assert (found.scheduler_names, found.beside, found.grouped, found.configuration) == (
            wishes.scheduler_names,
            wishes.beside,
            wishes.grouped,
            wishes.configuration,
        )
        for deployment in cluster.stored[DEPLOYMENTS]:
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            told = [word for word in container["args"] if not word.startswith("--settings=")]
            options = remote_options(parser().parse_args(told))
            assert [str(peer) for peer in options.beside] == list(wishes.beside)
            if options.role == "scheduler" and wishes.grouped:
                assert options.wait_for_group == ("volcano", "kai-scheduler")


def test_a_scheduler_that_is_not_known_is_refused_at_the_start() -> None:
    with pytest.raises(WindlassError, match="must be one of volcano, kai"):
        remote_options(parser().parse_args(["scheduler", "--beside=yunikorn"]))


def _no_config(cluster: KaiCluster) -> None:
    del cluster.stored[CONFIGS]


def _two_shards(cluster: KaiCluster) -> None:
    other = {"metadata": {"name": "a100"}, "spec": {"partitionLabelValue": "a100"}}
    cluster.stored[SHARDS].append(other)


def _a_shard_of_its_own(cluster: KaiCluster) -> None:
    cluster.stored[SHARDS][0]["spec"]["partitionLabelValue"] = "a100"


def _another_label(cluster: KaiCluster) -> None:
    cluster.stored[CONFIGS][0]["spec"]["global"] = {"nodePoolLabelKey": "pool"}


def _restricted_nodes(cluster: KaiCluster) -> None:
    cluster.stored[SHARDS][0]["spec"]["args"] = {"restrict-node-scheduling": "true"}


def _nodes_of_other_pools(cluster: KaiCluster) -> None:
    cluster.stored[NODES][0]["metadata"]["labels"] = {"kai.scheduler/node-pool": "a100"}


def _one_name_twice(cluster: KaiCluster) -> None:
    twin = kai_group("a", 1, "prod")
    twin["metadata"]["namespace"] = "elsewhere"
    cluster.stored[KAI_POD_GROUPS].append(twin)


def _no_scheduler(cluster: KaiCluster) -> None:
    cluster.stored[DEPLOYMENTS].clear()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_no_config, "kai-config does not exist"),
        (_two_shards, "default (all others), a100 (a100): Windlass uses all nodes"),
        (_a_shard_of_its_own, "default (a100): Windlass uses all nodes"),
        (_another_label, "nodePoolLabelKey is pool"),
        (_restricted_nodes, "restrict-node-scheduling"),
        (_nodes_of_other_pools, "1 nodes have the label kai.scheduler/node-pool"),
        (_one_name_twice, "a in several namespaces"),
        (_no_scheduler, "this Deployment does not exist"),
    ],
)
def test_what_cannot_be_taken_over_is_refused(cluster: KaiCluster, change: Any, words: str) -> None:
    change(cluster)
    report = cluster.report()
    assert words in report.stops[0].text
    with pytest.raises(WindlassError) as refused:
        adopt.check(report, [], finish=False)
    assert (refused.value.code, words in refused.value.evidence) == ("WL-ADOPT-409", True)


@pytest.mark.parametrize(
    ("there", "off", "words"),
    [
        (None, False, "this Deployment does not exist:"),
        (None, True, "this Deployment does not exist (kai-config disables it):"),
        (grouper(0, 0), False, "0 of 0 ready"),
        (grouper(1, 0), False, "0 of 1 ready"),
    ],
)
def test_it_is_not_stopped_while_nobody_groups_pods(
    cluster: KaiCluster, there: Json | None, off: bool, words: str
) -> None:
    """Queues may be taken over: its scheduler is still there for whatever has no PodGroup."""
    cluster.stored[DEPLOYMENTS][1:] = [there] if there is not None else []
    cluster.stored[PODS] = cluster.stored[PODS][:-1]  # nobody shares a card
    if off:
        cluster.stored[CONFIGS][0]["spec"]["podGrouper"] = {"service": {"enabled": False}}
    report = cluster.report()
    assert report.stops == []
    adopt.check(report, ["org"], finish=False)
    with pytest.raises(WindlassError) as refused:
        adopt.check(report, ["org"], finish=True)
    assert refused.value.evidence.startswith("kai-scheduler/pod-grouper: ")
    assert words in refused.value.evidence
    assert "kubectl -n kai-scheduler get deployment pod-grouper" in refused.value.evidence


def test_where_there_is_nothing_to_take_over_that_is_said_first(cluster: KaiCluster) -> None:
    """Not that one of its queues is not there."""
    _no_config(cluster)
    with pytest.raises(WindlassError) as refused:
        adopt.check(cluster.report(), ["nobodys"], finish=False)
    assert refused.value.code == "WL-ADOPT-409"


def test_windlass_stands_beside_one_at_a_time() -> None:
    options = InstallOptions(beside=("volcano",))
    adopt.check_alone(options, "volcano")
    for kind in ("", "kai"):
        with pytest.raises(WindlassError, match="is installed next to volcano"):
            adopt.check_alone(options, kind)
