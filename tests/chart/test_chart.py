"""The Helm chart, as it lies there and as helm renders it."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from windlass.api import views
from windlass.api.annotations import DEVICE_RESERVATION
from windlass.api.errors import WindlassError
from windlass.app import settings
from windlass.app.options import parser, remote_options
from windlass.app.scheduler_extras import reservation_pod_options
from windlass.cli.install import bind_guard, objects
from windlass.controllers.priorityclasses.controller import SHIPPED
from windlass.model.devices.reserved_devices import NAMESPACE
from windlass.model.scheduler_config import parse
from windlass.scheduler.commit.reservation_pod import reservation_pod
from windlass.scheduler.options import ReservationPodOptions

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "chart"))
import render  # noqa: E402

Json = dict[str, Any]
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
NODE = views.decode_node(b'{"metadata":{"name":"n1","uid":"u1"}}')
needs_helm = pytest.mark.skipif(
    render.helm() is None, reason="no helm: build it with tools/kubernetes/build.sh"
)


def of_kind(objects: list[Json], kind: str) -> dict[str, Json]:
    return {obj["metadata"]["name"]: obj for obj in objects if obj["kind"] == kind}


def shipped() -> list[Json]:
    """Return the objects that ``windlass install`` applies."""
    return list(yaml.safe_load_all(render.INSTALL.read_text()))


def test_the_chart_has_the_crds_that_windlass_prints() -> None:
    assert render.stale(render.crd_files()) == [], "run: make chart"


@pytest.mark.real
@needs_helm
def test_install_applies_what_the_chart_renders() -> None:
    assert render.stale(render.wanted_texts()) == [], "run: make chart"


@pytest.mark.real
@needs_helm
def test_helm_has_nothing_to_say() -> None:
    done = subprocess.run(
        [str(render.helm()), "lint", "--strict", str(render.CHART)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout


@pytest.mark.real
@needs_helm
@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("scheduler.replica=2", "'replica' not allowed"),
        ("scheduler.replicas=0", "/scheduler/replicas"),
        ("scheduler.names={default-scheduler}", "/scheduler/names/0"),
        ("metrics.port=80", "/metrics/port"),
        ("image.digest=sha256:abc", "/image/digest"),
        ("gpuSharing.deviceNames=index", "/gpuSharing/deviceNames"),
        ("settings.scheduler.reservationImage=x", "'reservationImage' not allowed"),
        ("settings.log.level=loud", "/settings/log/level"),
        ("settings.controllers.workers=0", "/settings/controllers/workers"),
        ("settings.scheduler.gangSecond=3", "'gangSecond' not allowed"),
        ("settings.scheduler.names={x}", "'names' not allowed"),  # the value is scheduler.names
        ("scheduler.configuration.action=allocate", "'action' not allowed"),
        ("scheduler.configuration.actions=alocate", "/scheduler/configuration/actions"),
        ("scheduler.configuration.actions=5", "/scheduler/configuration/actions"),
        ("scheduler.resources.requests.cpu=much", "/scheduler/resources/requests/cpu"),
        ("controllers.tolerations[0].opertor=Exists", "'opertor' not allowed"),
        ("traces.env[0].nam=A", "/traces/env/0"),
        ("priorityClassName=Very_High", "/priorityClassName"),
        ("podLabels.a=b c", "/podLabels/a"),
        ("podAnnotations.a=1", "/podAnnotations/a"),
        ("rbac.queueReaders={}", "/rbac/queueReaders/0"),
        ("bindGuard.enabled=true,metrics.port=9443", "two listeners cannot share a port"),
        ("settings.leaderElection.leaseSeconds=5", "leaseSeconds 5, renewSeconds 10, retrySeconds 2"),
    ],
)
def test_wrong_values_are_refused(setting: str, words: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        render.template("--set", setting)
    assert words in caught.value.stderr


@pytest.mark.real
@needs_helm
def test_switches() -> None:
    switched = render.template(
        *("--set", "rbac.create=false,podDisruptionBudget.create=false,networkPolicy.create=false"),
        *("--set", "priorityClasses.create=false,serviceMonitor.create=true,serviceMonitor.labels.team=a"),
        *("--set", "image.digest=sha256:" + "a" * 64 + ",imagePullSecrets={pull}"),
        *("--set-json", 'scheduler.configuration={"actions": "allocate"}'),
    )
    kinds = {obj["kind"] for obj in switched}
    assert kinds == {"ServiceAccount", "ConfigMap", "Deployment", "Service", "ServiceMonitor"}
    (monitor,) = of_kind(switched, "ServiceMonitor").values()
    assert monitor["metadata"]["labels"]["team"] == "a"
    for deployment in of_kind(switched, "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        assert spec["imagePullSecrets"] == [{"name": "pull"}]
        assert spec["containers"][0]["image"] == "windlass@sha256:" + "a" * 64
    config = of_kind(switched, "ConfigMap")["windlass-scheduler"]
    assert parse(config["data"]["windlass.conf"]).config.actions == ("allocate",)


@pytest.mark.real
@needs_helm
def test_pods_have_the_labels_and_notes_that_they_are_given() -> None:
    objects = render.template(
        *("--set", "podLabels.team=ml,podAnnotations.scrape=yes,bindGuard.enabled=true"),
        *("--set", "settings.leaderElection.leaseSeconds=6,settings.leaderElection.renewSeconds=4"),
    )
    for name, deployment in of_kind(objects, "Deployment").items():
        metadata = deployment["spec"]["template"]["metadata"]
        assert metadata["labels"].items() >= deployment["spec"]["selector"]["matchLabels"].items()
        assert metadata["labels"]["team"] == "ml"
        guarded = {"windlass.dev/bind-guard"} if name == "windlass-scheduler" else set()
        assert metadata["annotations"].keys() == {"scrape"} | guarded


@pytest.mark.real
@needs_helm
def test_queues_are_seen_by_whom_the_administrator_names() -> None:
    assert "windlass-queues" not in of_kind(render.template(), "ClusterRoleBinding")
    objects = render.template("--set", "rbac.queueReaders={system:authenticated}", namespace="other")
    binding = of_kind(objects, "ClusterRoleBinding")["other:windlass-queues"]
    assert binding["subjects"] == [
        {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
    ]
    role = of_kind(objects, "ClusterRole")[binding["roleRef"]["name"]]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}


@pytest.mark.real
@needs_helm
def test_settings_are_a_file_that_both_processes_read() -> None:
    given = {"controllers": {"workers": 8}, "log": {"level": "debug"}, "leaderElection": {"retrySeconds": 1}}
    objects = render.template("--set-json", f"settings={json.dumps(given)}")
    text = of_kind(objects, "ConfigMap")["windlass-settings"]["data"]["settings.yaml"]
    assert settings.read(text, "settings.yaml") == {
        "controllers.workers": 8,
        "controllers.progressBind": ":10443",
        "log.level": "debug",
        "log.format": "json",
        "leaderElection.retrySeconds": 1.0,
    }
    for deployment in of_kind(objects, "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert "--settings=/etc/windlass-settings/settings.yaml" in container["args"]
        assert {"name": "settings", "configMap": {"name": "windlass-settings"}} in spec["volumes"]
        (mount,) = [one for one in container["volumeMounts"] if one["name"] == "settings"]
        assert mount["mountPath"] == "/etc/windlass-settings"


@pytest.mark.real
@needs_helm
def test_one_process_has_the_rights_of_both() -> None:
    objects = render.template(*("--set", "oneProcess=true,traces.endpoint=http://collector:4318"))
    assert of_kind(objects, "Deployment").keys() == {"windlass-scheduler"}
    assert "windlass-controllers" not in of_kind(objects, "Service")
    (container,) = of_kind(objects, "Deployment")["windlass-scheduler"]["spec"]["template"]["spec"][
        "containers"
    ]
    assert {"--with-controllers=true", "--otlp-endpoint=http://collector:4318"} <= set(container["args"])
    both = of_kind(render.template("--set", "traces.endpoint=http://collector:4318"), "Deployment")
    for deployment in both.values():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert "--otlp-endpoint=http://collector:4318" in container["args"]
    bound = {
        name: binding["subjects"][0]["name"]
        for name, binding in of_kind(objects, "ClusterRoleBinding").items()
    }
    assert set(bound.values()) == {"windlass-scheduler"}
    assert len(bound) == 2
    rules = of_kind(objects, "Role")["windlass-scheduler"]["rules"]
    leases = {
        name for rule in rules if "leases" in rule["resources"] for name in rule.get("resourceNames", ())
    }
    assert leases == {"windlass-scheduler", "windlass-controllers"}


@pytest.mark.real
@needs_helm
def test_two_releases_do_not_meet() -> None:
    one = {(o["kind"], o["metadata"]["name"]) for o in render.template() if "namespace" not in o["metadata"]}
    other = render.template("--set", "priorityClasses.create=false", namespace="second")
    two = {(o["kind"], o["metadata"]["name"]) for o in other if "namespace" not in o["metadata"]}
    assert two
    assert not one & two
    assert "metrics.k8s.io" not in str(other)
    assert "metrics.k8s.io" in str(render.template("--set", "rbac.metricsServer=true"))


@pytest.mark.real
@needs_helm
@pytest.mark.parametrize("wanted", ["true", "false"])
def test_nodes_are_locked_for_hami_only_where_that_is_wanted(wanted: str) -> None:
    roles = of_kind(render.template("--set", f"rbac.hamiNodes={wanted}"), "ClusterRole")
    rules = [rule for rule in roles["windlass-scheduler"]["rules"] if "nodes" in rule["resources"]]
    verbs = {verb for rule in rules if "" in rule["apiGroups"] for verb in rule["verbs"]}
    assert verbs == {"list", "watch", *(["patch"] if wanted == "true" else [])}


@pytest.mark.real
@needs_helm
@pytest.mark.parametrize("wanted", [True, False])
def test_who_wants_nobody_to_ask_for_nodes_takes_that_right_away(wanted: bool) -> None:
    more = [] if wanted else ["--set", "rbac.provisioningRequests=false"]
    roles = of_kind(render.template(*more), "ClusterRole")
    named = {name for rule in roles["windlass-scheduler"]["rules"] for name in rule["resources"]}
    assert ({"provisioningrequests", "podtemplates"} <= named) is wanted


@pytest.mark.real
@needs_helm
def test_what_the_user_says_means_the_same_to_install_and_to_the_chart(tmp_path: Path) -> None:
    options = objects.InstallOptions(
        namespace="second",
        image="registry.test/windlass:9",
        replicas=1,
        scheduler_names=("windlass", "volcano"),
        configuration="actions: allocate\n",
        crds=False,
    )
    ours = {objects.title(obj): obj for obj in objects.objects(options) if obj["kind"] != "Namespace"}
    helms = render.template(
        *("--set-string", "image.repository=registry.test/windlass,image.tag=9"),
        *("--set", "scheduler.replicas=1,controllers.replicas=1,scheduler.names={windlass,volcano}"),
        *("--set", "scheduler.configuration.actions=allocate"),
        namespace="second",
    )
    assert ours == {objects.title(obj): obj for obj in map(render.plain, helms)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (objects.InstallOptions(image="two words"), "is not a valid image reference"),
        (
            objects.InstallOptions(scheduler_names=("default-scheduler",)),
            "the cluster's own scheduler serves these pods",
        ),
        (objects.InstallOptions(scheduler_names=("windlass", "Not a name")), "is not a valid name"),
    ],
)
def test_install_refuses_what_the_charts_schema_refuses(options: objects.InstallOptions, words: str) -> None:
    with pytest.raises(WindlassError, match=words) as caught:
        objects.objects(options)
    assert caught.value.code == "WL-USE-400"


@pytest.mark.real
@needs_helm
def test_the_bind_guard_of_install_is_that_of_the_chart() -> None:
    """In another namespace, too; but for the certificate and the token, which each makes for itself."""
    proof = bind_guard.new_credentials("second", NOW)
    options = objects.InstallOptions(namespace="second", crds=False, proof=proof)
    ours = {objects.title(obj): obj for obj in objects.objects(options) if obj["kind"] != "Namespace"}
    path = f"/bind/{proof.token}"
    for hook in ours[
        "validatingwebhookconfiguration.admissionregistration.k8s.io/windlass-bind-guard.second"
    ]["webhooks"]:
        assert hook["clientConfig"]["service"]["path"] == path
        assert hook["clientConfig"]["caBundle"] == proof.data["ca.crt"]
    assert ours["secret/windlass-bind-guard"]["data"] == proof.data
    helms = render.template("--set", "bindGuard.enabled=true", namespace="second")
    theirs = {objects.title(obj): render.without_proof(render.plain(obj)) for obj in helms}
    assert {name: render.without_proof(obj) for name, obj in ours.items()} == theirs


def test_nothing_of_the_bind_guard_is_there_unless_it_is_asked_for() -> None:
    assert "bind-guard" not in render.INSTALL.read_text()
    names = {obj["kind"] for obj in objects.guard_objects("n")}
    assert names == {"Secret", "Service", "ValidatingWebhookConfiguration"}


def test_the_certificate_is_for_the_service_and_for_ten_years() -> None:
    proof = bind_guard.new_credentials("windlass-system", NOW)
    assert bind_guard.stored_credentials({"data": proof.data}) == proof
    assert bind_guard.stored_credentials({"data": {**proof.data, "token": ""}}) is None
    assert bind_guard.stored_credentials(None) is None
    assert bind_guard.is_valid_long(proof, NOW)
    assert not bind_guard.is_valid_long(proof, NOW + datetime.timedelta(days=9.5 * 365))
    authority = x509.load_pem_x509_certificate(proof.authority.encode())
    leaf = x509.load_pem_x509_certificate(proof.certificate.encode())
    leaf.verify_directly_issued_by(authority)
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["windlass-bind-guard.windlass-system.svc"]


def test_the_schema_knows_the_settings_of_the_processes() -> None:
    assert render.stale({render.SCHEMA: render.schema_text()}) == [], "run: make chart"
    assert {field.path for field in settings.FIELDS} >= render.BY_FLAGS


def test_every_value_is_in_the_schema_and_has_words() -> None:
    values = yaml.safe_load((render.CHART / "values.yaml").read_text())
    schema = json.loads((render.CHART / "values.schema.json").read_text())
    named = {key: set(part.get("properties", ())) for key, part in schema["properties"].items()}
    named.pop("global")  # helm's own
    assert named.keys() == values.keys()
    for key, value in values.items():
        if isinstance(value, dict) and key != "settings":  # none of them is said by the chart
            assert named[key] == value.keys(), key


def test_the_processes_understand_their_arguments(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(of_kind(shipped(), "ConfigMap")["windlass-settings"]["data"]["settings.yaml"])
    deployments = of_kind(shipped(), "Deployment")
    assert set(deployments) == {"windlass-scheduler", "windlass-controllers"}
    for name, deployment in deployments.items():
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        words = [w.replace("/etc/windlass-settings/settings.yaml", str(file)) for w in container["args"]]
        options = remote_options(parser().parse_args(words))
        assert options.leader_elect
        assert (options.log_format, options.log_level) == ("json", "info")
        assert options.metrics == ":8080"
        assert options.role == name.removeprefix("windlass-").removesuffix("s") or options.role == "scheduler"
    mounted = of_kind(shipped(), "ConfigMap")["windlass-scheduler"]["data"]["windlass.conf"]
    assert parse(mounted).config.actions == ()  # the default policy


def test_the_pods_are_locked_down() -> None:
    for deployment in of_kind(shipped(), "Deployment").values():
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_priority_classes_are_those_of_a_box() -> None:
    found = {
        name: (obj["value"], obj["description"]) for name, obj in of_kind(shipped(), "PriorityClass").items()
    }
    system = ("system-cluster-critical", "system-node-critical")  # a cluster has them
    assert found == {name: fact for name, fact in SHIPPED.items() if name not in system}


def test_no_rule_is_wide() -> None:
    for kind in ("ClusterRole", "Role"):
        for role in of_kind(shipped(), kind).values():
            for rule in role["rules"]:
                if rule["resources"] == ["secrets"]:  # key pairs of jobs, by name
                    assert role["metadata"]["name"] == "windlass-controllers"
                    assert rule["verbs"] == ["get", "create", "delete"]
                    continue
                words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
                assert not words & {"*", "secrets", "escalate", "bind", "impersonate", "nodes/proxy"}, rule


@pytest.mark.real
@needs_helm
def test_shared_cards_are_held_as_the_values_say() -> None:
    assert not [obj for obj in shipped() if "reservations" in json.dumps(obj["metadata"])]
    sharing = "gpuSharing.enabled=true,gpuSharing.deviceNames=cdi,gpuSharing.runtimeClassName="
    objects = render.template("--set", sharing, "--set", "imagePullSecrets={pull}", "--set", "image.tag=v7")
    text = of_kind(objects, "ConfigMap")["windlass-settings"]["data"]["settings.yaml"]
    values = {**settings.defaults(), **settings.read(text, "settings.yaml")}
    assert reservation_pod_options(values) == ReservationPodOptions(
        "windlass:v7", pull_secrets=("pull",), runtime_class="", seconds=60.0, cdi=True
    )
    assert reservation_pod_options(settings.defaults()) is None
    kinds = {obj["kind"] for obj in objects}
    assert "MutatingAdmissionPolicy" in kinds
    without = render.template("--set", "gpuSharing.enabled=true,gpuSharing.injectEnvironment=false")
    assert "MutatingAdmissionPolicy" not in {obj["kind"] for obj in without}
    (space,) = of_kind(objects, "Namespace").values()
    assert space["metadata"]["name"] == NAMESPACE
    marked = {
        name for name, obj in of_kind(objects, "Deployment").items() if DEVICE_RESERVATION in str(obj["spec"])
    }
    assert marked == {
        "windlass-scheduler"
    }  # it is restarted: the image of reservation pods is read at the start only
    made = reservation_pod(NODE, 0, ReservationPodOptions("windlass:v7"))
    (budget,) = [
        obj
        for obj in objects
        if obj["kind"] == "PodDisruptionBudget" and obj["metadata"]["namespace"] == NAMESPACE
    ]
    assert budget["spec"]["selector"]["matchLabels"].items() <= made["metadata"]["labels"].items()
