"""Stock kubectl, command by command, on the embedded server and on a real one."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
from clusters import Cluster, config_map, pod
from kubectl import Kubectl, find
from server_deviations import deviates

pytestmark = pytest.mark.kubectl
VOLCANO = "scheduling.volcano.sh/v1beta1"


@pytest.fixture
def ns(cluster: Cluster) -> str:
    return cluster.new_namespace("k")


@pytest.fixture
def kubectl(cluster: Cluster, ns: str, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    binary = find()
    if binary is None:
        pytest.skip("kubectl is not on the PATH")
    home = tmp_path_factory.getbasetemp() / f"kubectl-{cluster.name}"
    home.mkdir(exist_ok=True)
    return Kubectl(binary, cluster.kubeconfig, ns, home)


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": VOLCANO,
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, **spec},
    }


def queue(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": VOLCANO, "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1, **spec}}


def job(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["true"]}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "minAvailable": 2,
            "schedulerName": "nobody",
            "tasks": [{"name": "worker", "replicas": 2, "template": template}],
        },
    }


class TestApply:
    @pytest.mark.parametrize(
        ("version", "kind"),
        [("example.com/v1", "Foo"), ("v1", "Fooo"), ("scheduling.volcano.sh/v1beta1", "JobFlow")],
    )
    @pytest.mark.parametrize("command", [("apply",), ("create",), ("apply", "--server-side")])
    def test_kind_that_is_not_served(
        self, kubectl: Kubectl, version: str, kind: str, command: tuple[str, ...]
    ) -> None:
        manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}}
        told = kubectl.fail(*command, "-f", "-", stdin=manifest)
        assert f'no matches for kind "{kind}" in version "{version}"' in told
        assert "ensure CRDs are installed first" in told

    @pytest.mark.parametrize(
        ("manifest", "named", "change"),
        [
            (config_map("a", {"k": "1"}), "configmap/a", {"data": {"k": "2"}}),
            (pod("p"), "pod/p", {"metadata": {"name": "p", "labels": {"x": "1"}}}),
            (group("g"), "podgroup.scheduling.volcano.sh/g", {"spec": {"minMember": 2}}),
        ],
    )
    def test_created_unchanged_configured(
        self, kubectl: Kubectl, manifest: dict[str, Any], named: str, change: dict[str, Any]
    ) -> None:
        assert kubectl.run("apply", "-f", "-", stdin=manifest) == f"{named} created\n"
        assert kubectl.run("apply", "-f", "-", stdin=manifest) == f"{named} unchanged\n"
        assert kubectl.run("apply", "-f", "-", stdin={**manifest, **change}) == f"{named} configured\n"

    def test_a_job_and_its_removal(self, kubectl: Kubectl) -> None:
        assert kubectl.run("apply", "-f", "-", stdin=job("j")) == "job.batch.volcano.sh/j created\n"
        # "configured": kubectl knows no merge keys of a custom kind, so the server's defaults look like a change
        again = kubectl.run("apply", "-f", "-", stdin=job("j"))
        assert again in ("job.batch.volcano.sh/j unchanged\n", "job.batch.volcano.sh/j configured\n")
        assert "deleted" in kubectl.run("delete", "-f", "-", stdin=job("j"))

    def test_what_is_no_longer_in_the_manifest_is_removed(self, kubectl: Kubectl) -> None:
        kubectl.run("apply", "-f", "-", stdin=config_map("a", {"k": "1", "l": "2"}))
        kubectl.run("apply", "-f", "-", stdin=config_map("a", {"k": "1"}))
        assert kubectl.json("get", "configmap", "a")["data"] == {"k": "1"}

    def test_several_documents(self, kubectl: Kubectl) -> None:
        out = kubectl.run("apply", "-f", "-", stdin=[config_map("a"), config_map("b")])
        assert out.splitlines() == ["configmap/a created", "configmap/b created"]

    def test_an_unknown_field(self, kubectl: Kubectl) -> None:
        manifest = pod("p", spec={"nonsense": 1})
        error = kubectl.fail("apply", "-f", "-", stdin=manifest)
        assert 'strict decoding error: unknown field "spec.nonsense"' in error
        _, warned = kubectl.both("apply", "--validate=warn", "-f", "-", stdin=manifest)
        assert 'Warning: unknown field "spec.nonsense"' in warned

    def test_dry_run_and_diff(self, kubectl: Kubectl) -> None:
        kubectl.run("apply", "-f", "-", stdin=config_map("a", {"k": "1"}))
        changed = config_map("a", {"k": "2"})
        assert "(server dry run)" in kubectl.run("apply", "--dry-run=server", "-f", "-", stdin=changed)
        assert kubectl.json("get", "configmap", "a")["data"] == {"k": "1"}

    def test_server_side(self, cluster: Cluster, kubectl: Kubectl) -> None:
        manifest = config_map("a", {"k": "1"})
        if deviates(cluster, "server-side apply"):
            error = kubectl.fail("apply", "--server-side", "-f", "-", stdin=manifest)
            assert "unknown format" in error or "UnsupportedMediaType" in error
            return
        assert "serverside-applied" in kubectl.run("apply", "--server-side", "-f", "-", stdin=manifest)


class TestCreate:
    def test_from_a_file(self, kubectl: Kubectl, tmp_path: Path) -> None:
        file = tmp_path / "g.yaml"
        file.write_text(
            f"apiVersion: {VOLCANO}\nkind: PodGroup\nmetadata: {{name: g}}\nspec: {{minMember: 3}}\n"
        )
        assert kubectl.run("create", "-f", str(file)) == "podgroup.scheduling.volcano.sh/g created\n"
        error = kubectl.fail("create", "-f", str(file))
        assert "Error from server (AlreadyExists): error when creating" in error
        assert 'podgroups.scheduling.volcano.sh "g" already exists' in error

    def test_generated_names(self, kubectl: Kubectl) -> None:
        out = kubectl.run("create", "-f", "-", stdin=config_map(generateName="base-"))
        assert out.startswith("configmap/base-")

    def test_protobuf_bodies(self, kubectl: Kubectl, ns: str) -> None:
        assert kubectl.run("create", "ns", f"{ns}-x") == f"namespace/{ns}-x created\n"
        kubectl.run("create", "configmap", "c", "--from-literal=k=v ü")
        assert kubectl.json("get", "cm", "c")["data"] == {"k": "v ü"}
        kubectl.run("create", "secret", "generic", "s", "--from-literal=password=hush")
        secret = kubectl.json("get", "secret", "s")
        assert base64.b64decode(secret["data"]["password"]) == b"hush"
        kubectl.run("create", "priorityclass", f"{ns}-high", "--value=7000", "--description=words")
        assert kubectl.json("get", "priorityclass", f"{ns}-high")["value"] == 7000
        kubectl.run("create", "quota", "q", "--hard=requests.nvidia.com/gpu=4,pods=10")
        assert kubectl.json("get", "quota", "q")["spec"]["hard"] == {
            "requests.nvidia.com/gpu": "4",
            "pods": "10",
        }
        kubectl.run("delete", "priorityclass", f"{ns}-high")

    def test_run(self, kubectl: Kubectl) -> None:
        overrides = '{"spec":{"schedulerName":"nobody"}}'
        out = kubectl.run("run", "p", "--image=busybox", f"--overrides={overrides}")
        assert out == "pod/p created\n"

    def test_replace(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=config_map("a", {"k": "1"}))
        kubectl.run("replace", "-f", "-", stdin=config_map("a", {"k": "2"}))
        assert kubectl.json("get", "cm", "a")["data"] == {"k": "2"}

    def test_errors_are_readable(self, kubectl: Kubectl) -> None:
        error = kubectl.fail("get", "pod", "none")
        assert error == 'Error from server (NotFound): pods "none" not found\n'
        error = kubectl.fail("create", "-f", "-", stdin=pod("p", spec={"containers": []}))
        assert 'The Pod "p" is invalid' in error
        assert "spec.containers" in error
        error = kubectl.fail("get", "unicorns")
        assert 'the server doesn\'t have a resource type "unicorns"' in error


class TestGet:
    @pytest.fixture(autouse=True)
    def three(self, kubectl: Kubectl) -> None:
        pods = [pod(name, metadata={"labels": {"app": "x" if name != "c" else "y"}}) for name in "abc"]
        kubectl.run("create", "-f", "-", stdin=pods)

    def test_table(self, kubectl: Kubectl) -> None:
        table = kubectl.table("get", "pods")
        assert table[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
        assert [row[:4] for row in table[1:]] == [[name, "0/1", "Pending", "0"] for name in "abc"]

    def test_wide(self, kubectl: Kubectl) -> None:
        table = kubectl.table("get", "pods", "-o", "wide")
        assert table[0][5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
        assert table[1][5:] == ["<none>"] * 4

    def test_selectors(self, kubectl: Kubectl, ns: str) -> None:
        assert kubectl.run("get", "pods", "-l", "app=x", "-o", "name") == "pod/a\npod/b\n"
        out = kubectl.run("get", "po", "--field-selector=metadata.name=b", "--no-headers")
        assert out.split()[0] == "b"
        out = kubectl.run("get", "pods", "-A", f"--field-selector=metadata.namespace={ns}", "-o", "name")
        assert len(out.splitlines()) == 3

    def test_outputs(self, kubectl: Kubectl, ns: str) -> None:
        assert kubectl.run("get", "pods", "-o", "jsonpath={.items[*].metadata.name}") == "a b c"
        assert kubectl.json("get", "pods")["kind"] == "List"
        assert "\nkind: Pod\n" in kubectl.run("get", "pod", "a", "-o", "yaml")
        columns = "-o=custom-columns=N:.metadata.name,NS:.metadata.namespace"
        assert kubectl.run("get", "pod", "a", columns).split() == ["N", "NS", "a", ns]
        assert kubectl.run("get", "pods", "--show-labels").count("app=x") == 2
        assert kubectl.run("get", "pods", "--sort-by=.metadata.name", "-o", "name").split() == [
            "pod/a",
            "pod/b",
            "pod/c",
        ]

    def test_chunks(self, kubectl: Kubectl) -> None:
        out = kubectl.run("get", "pods", "--chunk-size=2", "--no-headers")
        assert [line.split()[0] for line in out.splitlines()] == ["a", "b", "c"]

    def test_watch(self, kubectl: Kubectl) -> None:
        with kubectl.follow("get", "pods", "-w") as following:
            seen = [following.line().split()[0] for _ in range(4)]
            assert seen == ["NAME", "a", "b", "c"]
            kubectl.run("create", "-f", "-", stdin=pod("d"))
            assert following.line().split()[:3] == ["d", "0/1", "Pending"]
            patch = '{"status":{"phase":"Running"}}'
            kubectl.run("patch", "pod", "d", "--subresource=status", "--type=merge", "-p", patch)
            assert following.line().split()[:3] == ["d", "0/1", "Running"]

    def test_watch_as_json(self, kubectl: Kubectl) -> None:
        arguments = ("get", "pods", "--watch-only", "-o", "jsonpath={.metadata.name}={.status.phase}{'\\n'}")
        with kubectl.follow(*arguments) as following:
            for number in range(60):  # the first may come before the watch is open
                kubectl.run("create", "-f", "-", stdin=pod(f"w{number}"))
                line = following.line(1)
                if line:
                    break
            assert line in {f"w{n}=Pending" for n in range(number + 1)}

    def test_all(self, kubectl: Kubectl) -> None:
        assert "pod/a" in kubectl.run("get", "all")

    def test_empty(self, kubectl: Kubectl, ns: str) -> None:
        out, error = kubectl.both("get", "podgroups")
        assert (out, error) == ("", f"No resources found in {ns} namespace.\n")


class TestDescribe:
    def test_pod(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=pod("p"))
        out = kubectl.run("describe", "pod", "p")
        for line in (r"Name: +p", r"Status: +Pending", r"QoS Class: +BestEffort", r" +Image: +busybox"):
            assert re.search(f"^{line}$", out, re.MULTILINE)
        assert "Events:" in out

    def test_node(self, kubectl: Kubectl, ns: str) -> None:
        name = f"node-{ns}"
        kubectl.run(
            "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        )
        status = '{"status":{"allocatable":{"cpu":"8","nvidia.com/gpu":"4"},"capacity":{"cpu":"8"}}}'
        kubectl.run("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
        out = kubectl.run("describe", "node", name)
        assert "nvidia.com/gpu:  4" in out
        assert "Allocated resources:" in out
        kubectl.run("delete", "node", name)

    @pytest.mark.parametrize("kind", ["podgroup", "vcjob", "queue"])
    def test_custom_kinds(self, kubectl: Kubectl, ns: str, kind: str) -> None:
        manifest = {"podgroup": group("x"), "vcjob": job("x"), "queue": queue(f"q-{ns}")}[kind]
        kubectl.run("create", "-f", "-", stdin=manifest)
        name = manifest["metadata"]["name"]
        out = kubectl.run("describe", kind, name)
        assert out.startswith(f"Name:         {name}\n")
        assert "Spec:" in out
        kubectl.run("delete", kind, name)

    def test_events(self, cluster: Cluster, kubectl: Kubectl, ns: str) -> None:
        kubectl.run("create", "-f", "-", stdin=pod("p"))
        uid = kubectl.json("get", "pod", "p")["metadata"]["uid"]
        event = {
            "metadata": {"name": "p.1"},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "namespace": ns,
                "uid": uid,
            },
            "reason": "FailedScheduling",
            "message": "4 nodes: insufficient GPUs",
            "type": "Warning",
            "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:10Z",
            "source": {"component": "windlass-scheduler"},
        }
        cluster.post(f"/api/v1/namespaces/{ns}/events", event).ok(201)
        described = kubectl.run("describe", "pod", "p")
        assert "4 nodes: insufficient GPUs" in described
        assert "(x3 over" in described
        table = kubectl.table("get", "events")
        assert table[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        assert table[1][1:] == ["Warning", "FailedScheduling", "pod/p", "4 nodes: insufficient GPUs"]
        out = kubectl.run("events", "--for", "pod/p")
        assert "FailedScheduling" in out


class TestDelete:
    def test_and_wait(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=pod("p"))
        assert kubectl.run("delete", "pod", "p") in (
            'pod "p" deleted\n',
            f'pod "p" deleted from {kubectl.namespace} namespace\n',
        )
        assert "NotFound" in kubectl.fail("get", "pod", "p")
        assert kubectl.run("delete", "pod", "p", "--ignore-not-found") == ""

    def test_by_label_and_all(self, kubectl: Kubectl) -> None:
        manifests = [config_map(name, labels={"x": name}) for name in "abc"]
        kubectl.run("create", "-f", "-", stdin=manifests)
        assert 'configmap "a"' in kubectl.run("delete", "cm", "-l", "x=a")
        out = kubectl.run("delete", "cm", "-l", "x in (b,c)")
        assert len(out.splitlines()) == 2

    def test_without_waiting_and_by_force(self, kubectl: Kubectl) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{kubectl.namespace}"}}
        kubectl.run("create", "-f", "-", stdin=node)
        kubectl.run("create", "-f", "-", stdin=pod("p", spec={"nodeName": f"node-{kubectl.namespace}"}))
        kubectl.run("delete", "pod", "p", "--wait=false")
        assert kubectl.json("get", "pod", "p")["metadata"]["deletionTimestamp"]
        kubectl.both("delete", "pod", "p", "--force", "--grace-period=0")
        assert "NotFound" in kubectl.fail("get", "pod", "p")

    def test_a_namespace(self, kubectl: Kubectl, ns: str) -> None:
        kubectl.run("create", "ns", f"{ns}-gone")
        kubectl.run("delete", "ns", f"{ns}-gone")
        assert "NotFound" in kubectl.fail("get", "ns", f"{ns}-gone")


class TestWait:
    def test_for_a_condition_a_field_and_deletion(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=pod("p"))
        assert "timed out" in kubectl.fail("wait", "pod/p", "--for=condition=Ready", "--timeout=1s")
        status = '{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}'
        kubectl.run("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", status)
        assert (
            kubectl.run("wait", "pod/p", "--for=condition=Ready", "--timeout=60s") == "pod/p condition met\n"
        )
        kubectl.run("wait", "pod/p", "--for=jsonpath={.status.phase}=Running", "--timeout=60s")
        kubectl.run("delete", "pod", "p", "--wait=false")
        kubectl.run("wait", "pod/p", "--for=delete", "--timeout=60s")

    def test_for_a_custom_kind(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=group("g"))
        with kubectl.follow(
            "wait", "podgroup/g", "--for=jsonpath={.spec.minMember}=4", "--timeout=60s"
        ) as done:
            kubectl.run("patch", "podgroup", "g", "--type=merge", "-p", '{"spec":{"minMember":4}}')
            assert done.line() == "podgroup.scheduling.volcano.sh/g condition met"


class TestChange:
    @pytest.mark.parametrize(
        ("kind", "patch"),
        [
            ("strategic", '{"metadata":{"labels":{"x":"1"}}}'),
            ("merge", '{"metadata":{"labels":{"x":"1"}}}'),
            ("json", '[{"op":"add","path":"/metadata/labels","value":{"x":"1"}}]'),
        ],
    )
    def test_patch(self, kubectl: Kubectl, kind: str, patch: str) -> None:
        kubectl.run("create", "-f", "-", stdin=config_map("a"))
        assert kubectl.run("patch", "cm", "a", f"--type={kind}", "-p", patch) == "configmap/a patched\n"
        assert kubectl.json("get", "cm", "a")["metadata"]["labels"] == {"x": "1"}

    def test_label_and_annotate(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=[pod("p"), group("g")])
        for name in ("pod/p", "podgroup/g"):
            kubectl.run("label", name, "team=a", "tier=gold")
            kubectl.run("annotate", name, "note=some words")
            metadata = kubectl.json("get", name)["metadata"]
            assert metadata["labels"] == {"team": "a", "tier": "gold"}
            assert metadata["annotations"]["note"] == "some words"
            assert "already has a value" in kubectl.fail("label", name, "team=b")
            kubectl.run("label", name, "team=b", "tier-", "--overwrite")
            assert kubectl.json("get", name)["metadata"]["labels"] == {"team": "b"}

    def test_cordon_and_taint(self, kubectl: Kubectl, ns: str) -> None:
        name = f"node-{ns}"
        kubectl.run(
            "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        )
        assert kubectl.run("cordon", name) == f"node/{name} cordoned\n"
        assert "SchedulingDisabled" in kubectl.table("get", "node", name)[1][1]
        assert kubectl.run("uncordon", name) == f"node/{name} uncordoned\n"
        kubectl.run("taint", "node", name, "gpu=broken:NoSchedule")
        taints = kubectl.json("get", "node", name)["spec"]["taints"]
        assert {"key": "gpu", "value": "broken", "effect": "NoSchedule"} in taints
        kubectl.run("taint", "node", name, "gpu-")
        kubectl.run("delete", "node", name)

    def test_the_status_of_a_custom_kind(self, kubectl: Kubectl) -> None:
        kubectl.run("create", "-f", "-", stdin=group("g"))
        patch = '{"status":{"phase":"Running"}}'
        kubectl.run("patch", "podgroup", "g", "--subresource=status", "--type=merge", "-p", patch)
        assert kubectl.run("get", "pg", "g", "-o", "jsonpath={.status.phase}") == "Running"


class TestDiscovery:
    def test_api_resources(self, kubectl: Kubectl) -> None:
        table = kubectl.table("api-resources")
        assert table[0] == ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]
        rows = {(row[0], row[2]): row for row in table[1:]}
        assert rows["pods", "v1"][1:] == ["po", "v1", "true", "Pod"]
        queues = rows["queues", VOLCANO]
        assert queues[3:] == ["false", "Queue"]
        assert "q" in queues[1].split(",")
        jobs = next(row for row in table if row[0] == "jobs" and row[2].startswith("batch.volcano.sh/"))
        assert "vcjob" in jobs[1].split(",")
        assert kubectl.run("api-resources", "--api-group=scheduling.volcano.sh", "-o", "name").split() == [
            "podgroups.scheduling.volcano.sh",
            "queues.scheduling.volcano.sh",
        ]

    def test_api_versions(self, kubectl: Kubectl) -> None:
        versions = kubectl.run("api-versions").split()
        assert {"v1", VOLCANO, "batch.volcano.sh/v1alpha1", "coordination.k8s.io/v1"} <= set(versions)

    def test_explain(self, kubectl: Kubectl) -> None:
        out = kubectl.run("explain", "pod.spec.containers")
        assert "KIND:       Pod" in out
        assert "image\t<string>" in out
        assert "resources\t<ResourceRequirements>" in out
        out = kubectl.run("explain", "podgroup.spec")
        assert "GROUP:      scheduling.volcano.sh" in out
        assert "minMember\t<integer>" in out
        out = kubectl.run("explain", "vcjob.spec.tasks")
        assert "replicas\t<integer>" in out
        assert "does not exist" in kubectl.fail("explain", "pod.spec.nonsense")

    def test_version(self, kubectl: Kubectl) -> None:
        assert "Server Version: v1." in kubectl.run("version")

    def test_can_i(self, kubectl: Kubectl) -> None:
        assert kubectl.run("auth", "can-i", "create", "pods") == "yes\n"
