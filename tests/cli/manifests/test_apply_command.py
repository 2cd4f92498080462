"""``windlass apply``: create, change, and refuse as a whole."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import msgspec
import pytest
from fakecluster import FakeCluster

from windlass.api import errors
from windlass.api.errors import FieldError
from windlass.api.resources import CONFIG_MAPS, QUEUES
from windlass.api.wire import field_review

QUEUE = """\
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata:
  name: team
spec:
  weight: 2
"""
JOB = """\
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: train
  namespace: lab
spec:
  queue: team
  tasks: []
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: lab\n"


@pytest.fixture
def manifest(tmp_path: Path):
    def write(text: str, name: str = "m.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def writes(cluster: FakeCluster) -> list[str]:
    return [f"{verb} {what}" for verb, what, _ in cluster.requests]


def test_what_is_absent_is_created_with_its_manifest_in_an_annotation(windlass, cluster, manifest):
    done = windlass("apply", "-f", manifest(QUEUE))
    assert (done.code, done.out) == (0, "queue.scheduling.volcano.sh/team created\n")
    made = cluster.objects[(QUEUES, "", "team")]
    kept = msgspec.json.decode(
        made["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    )
    assert kept["spec"] == {"weight": 2}


def test_a_second_time_nothing_is_written(windlass, cluster, manifest):
    path = manifest(QUEUE)
    windlass("apply", "-f", path)
    before = len(cluster.requests)
    assert windlass("apply", "-f", path).out == "queue.scheduling.volcano.sh/team unchanged\n"
    assert len(cluster.requests) == before


def test_what_the_manifest_dropped_goes_and_what_others_set_stays(windlass, cluster, manifest):
    windlass("apply", "-f", manifest(QUEUE))
    cluster.objects[(QUEUES, "", "team")]["spec"]["reclaimable"] = False
    done = windlass("apply", "-f", manifest(QUEUE.replace("  weight: 2", "  priority: 5")))
    assert done.out == "queue.scheduling.volcano.sh/team configured\n"
    assert cluster.objects[(QUEUES, "", "team")]["spec"] == {"priority": 5, "reclaimable": False}


def test_warnings_of_the_server_are_told_once_each(windlass, cluster, manifest):
    cluster.warnings["team"] = ["alias: a -> b", "alias: a -> b"]
    done = windlass("apply", "-f", manifest(QUEUE))
    assert done.err == "Warning: alias: a -> b\n"
    assert done.code == 0


@pytest.mark.parametrize("text", ["alias: a -> b", "default: c -> d", 'unknown field "spec.x"'])
def test_strict_refuses_before_anything_is_written(windlass, cluster, manifest, text):
    cluster.warnings["train"] = [text]
    path = manifest(f"{NAMESPACE}---\n{QUEUE}---\n{JOB}")
    done = windlass("apply", "--strict", "-f", path)
    assert done.code == 2
    assert done.err.startswith(
        "error[WL-STRICT-422]: --strict rejects 1 of 3 object(s); nothing was written\n"
    )
    assert f"why: {path}:13 Job/train: {text}" in done.err
    assert "try: " in done.err
    assert all("(dry run)" in line for line in writes(cluster))


def test_strict_takes_advice(windlass, cluster, manifest):
    cluster.warnings["team"] = ["advice: think of it"]
    done = windlass("apply", "--strict", "-f", manifest(QUEUE))
    assert (done.code, done.out) == (0, "queue.scheduling.volcano.sh/team created\n")


def test_strict_rehearses_with_what_exists_in_place_of_what_comes(windlass, cluster, manifest):
    windlass("apply", "--strict", "-f", manifest(f"{NAMESPACE}---\n{QUEUE}---\n{JOB}"))
    rehearsed = [
        body for verb, what, body in cluster.requests if verb == "CREATE (dry run)" and what == "jobs"
    ]
    assert rehearsed[0]["metadata"]["namespace"] == "default"
    assert rehearsed[0]["spec"]["queue"] == "default"
    (real,) = [body for verb, what, body in cluster.requests if verb == "CREATE" and what == "jobs"]
    assert (real["metadata"]["namespace"], real["spec"]["queue"]) == ("lab", "team")


def test_duplicate_keys_are_told_and_refused_when_strict(windlass, manifest):
    path = manifest(QUEUE + "  weight: 3\n")
    assert 'Warning: duplicate field "spec.weight"\n' in windlass("apply", "-f", path).err
    assert windlass("apply", "--strict", "-f", path).code == 2


@pytest.mark.parametrize("flag", [["--dry-run"], ["--dry-run=server"], ["--dry-run", "server"]], ids=" ".join)
def test_a_dry_run_of_the_server_writes_nothing(windlass, cluster, manifest, flag):
    done = windlass("apply", *flag, "-f", manifest(QUEUE))
    assert done.out == "queue.scheduling.volcano.sh/team created (server dry run)\n"
    assert (QUEUES, "", "team") not in cluster.objects
    assert writes(cluster) == ["CREATE (dry run) queues"]


def test_a_dry_run_of_none_is_none(windlass, cluster, manifest):
    done = windlass("apply", "--dry-run=none", "-f", manifest(QUEUE))
    assert done.out == "queue.scheduling.volcano.sh/team created\n"
    assert (QUEUES, "", "team") in cluster.objects
    assert "not one of 'none', 'server', 'client'" in windlass("apply", "--dry-run=all", "-f", "x").err


def test_a_dry_run_of_the_client_asks_no_server(windlass, cluster, manifest):
    cluster.down = True
    done = windlass("apply", "--dry-run=client", "-f", manifest(f"{NAMESPACE}---\n{QUEUE}---\n{JOB}"))
    assert done.out == (
        "namespace/lab valid (dry run)\n"
        "queue.scheduling.volcano.sh/team valid (dry run)\n"
        "job.batch.volcano.sh/train valid (dry run)\n"
    )
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (
            QUEUE.replace("weight: 2", "weight: heavy"),
            6,
            'spec.weight must be a whole number, and "heavy" is a string',
        ),
        (QUEUE.replace("name: team", "name: My_Team"), 4, "why: metadata.name: Invalid value"),
        (QUEUE.replace("kind: Queue", "kind: Quue"), 1, "did you mean kind: Queue?"),
    ],
)
def test_a_dry_run_of_the_client_refuses_what_is_wrong_by_itself(
    windlass, cluster, manifest, text, line, words
):
    cluster.down = True
    path = manifest(text)
    done = windlass("apply", "--dry-run=client", "-f", path)
    assert done.code != 0
    assert f"{path}:{line}: " in done.err
    assert words in done.err


def test_a_dry_run_of_the_client_knows_the_fields(windlass, cluster, manifest):
    cluster.down = True
    path = manifest(QUEUE + "  wieght: 3\n  weight: 3\n")
    done = windlass("apply", "--dry-run=client", "-f", path)
    assert done.err == 'Warning: unknown field "spec.wieght"\nWarning: duplicate field "spec.weight"\n'
    strict = windlass("apply", "--dry-run=client", "--strict", "-f", path)
    assert strict.code == 2
    assert 'unknown field "spec.wieght"' in strict.err
    assert 'duplicate field "spec.weight"' in strict.err


def test_a_refused_field_is_told_with_its_line(windlass, cluster, manifest):
    fault = FieldError.invalid("spec.weight", 0, "must be greater than 0")
    cluster.refuse["team"] = errors.invalid(QUEUES, "team", [fault])
    path = manifest(QUEUE)
    done = windlass("apply", "-f", path)
    assert done.code == 2
    assert done.err == (
        f'error[WL-QUEUE-422]: {path}:6: queue "team" is not valid\n'
        "why: spec.weight: Invalid value: 0: must be greater than 0\n"
        "try: correct spec.weight\n"
    )


def test_of_several_documents_the_good_ones_are_applied(windlass, cluster, manifest):
    cluster.refuse["lab"] = errors.conflict(QUEUES, "lab")
    done = windlass("apply", "-f", manifest(f"{NAMESPACE}---\n{QUEUE}"))
    assert "queue.scheduling.volcano.sh/team created" in done.out
    assert "error[WL-" in done.err
    assert done.code == 5


def test_a_server_that_is_away_ends_it_at_once(windlass, cluster, manifest):
    cluster.down = True
    done = windlass("apply", "-f", manifest(f"{NAMESPACE}---\n{QUEUE}"))
    assert done.code == 7
    assert done.err.count("error[") == 1


def test_a_kind_that_is_not_served(windlass, manifest):
    done = windlass("apply", "-f", manifest("apiVersion: v1\nkind: Queue\nmetadata: {name: x}\n"))
    assert done.code == 3
    assert "kind Queue of v1 is not served" in done.err
    assert "other groups have another kind Queue: scheduling.run.ai, scheduling.volcano.sh\n" in done.err
    assert "did you mean" not in done.err


@pytest.mark.parametrize(
    ("version", "kind", "remedies"),
    [
        ("batch/v2", "Cluster", []),
        ("sparkoperator.k8s.io/v1beta2", "SparkApplication", []),
        ("networking.k8s.io/v1", "Ingress", []),
        ("batch.volcano.sh/v1alpha1", "JobFlow", ["did you mean kind: Job?"]),
        ("batch.volcano.sh/v2", "Job", ["did you mean apiVersion: batch.volcano.sh/v1alpha1?"]),
        ("batch.vulcano.sh/v1alpha1", "Job", ["did you mean apiVersion: batch.volcano.sh/v1alpha1?"]),
        ("scheduling.volcano.sh/v1beta1", "PodGroups", ["did you mean kind: PodGroup?"]),
        ("v1", "ConfigMaps", ["did you mean kind: ConfigMap?"]),
    ],
)
def test_remedies_for_an_unknown_kind_stay_in_its_group(windlass, manifest, version, kind, remedies):
    done = windlass("apply", "-f", manifest(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n"))
    assert done.code == 3
    told = [line.removeprefix("try: ") for line in done.err.splitlines() if line.startswith("try:")]
    assert told[:1] == remedies or (not remedies and told == ["kubectl api-resources"])
    assert told[-1] == "kubectl api-resources"


def test_a_kind_in_small_letters(windlass, manifest):
    done = windlass("apply", "-f", manifest("apiVersion: v1\nkind: pod\nmetadata: {name: x}\n"))
    assert done.code == 3
    assert "kind pod of v1 is not served" in done.err
    assert done.err.rstrip().endswith("try: did you mean kind: Pod?")


def test_namespaces_must_agree(windlass, manifest):
    done = windlass("apply", "-n", "other", "-f", manifest(JOB))
    assert done.code == 2
    assert "WL-MANIFEST-422" in done.err


def test_json_output(windlass, manifest):
    record = json.loads(windlass("apply", "-f", manifest(QUEUE), "-o", "json").out)
    assert record["metadata"]["name"] == "team"


def test_built_in_kinds_get_a_strategic_patch(windlass, cluster, manifest):
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, finalizers: [a, b]}\ndata: {x: '1'}\n"
    windlass("apply", "-f", manifest(text))
    windlass("apply", "-f", manifest(text.replace("[a, b]", "[a]")))
    patch = next(body for verb, what, body in cluster.requests if what == "configmaps/c" and verb == "PATCH")
    assert patch["metadata"]["$deleteFromPrimitiveList/finalizers"] == ["b"]
    assert (CONFIG_MAPS, "default", "c") in cluster.objects


_POD = """apiVersion: v1
kind: Pod
metadata:
  name: p
spec:
  containers:
    - name: m
      image: x
      {field}
"""
_VCJOB = """apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: j
  {metadata}
spec:
  minAvailable: {minimum}
  tasks:
    - name: a
      replicas: 3
      template:
        spec:
          containers:
            - name: m
              image: x
              {field}
"""


@pytest.mark.parametrize(
    ("text", "line", "told", "correction"),
    [
        (
            _POD.format(field="command: [true]"),
            9,
            "spec.containers[0].command[0] must be a string, and true is a boolean",
            'put it in quotes: - "true"',
        ),
        (
            _POD.format(field="env: [{name: A, value: 5}]"),
            9,
            "spec.containers[0].env[0].value must be a string, and 5 is a number",
            'put it in quotes: value: "5"',
        ),
        (
            _POD.format(field="command: sleep 5"),
            9,
            'spec.containers[0].command must be a list, and "sleep 5" is a string',
            'write a list: command: ["sleep 5"]',
        ),
        (
            _POD.format(field='ports: [{containerPort: "80"}]'),
            9,
            'spec.containers[0].ports[0].containerPort must be a whole number, and "80" is a string',
            "leave out the quotes: containerPort: 80",
        ),
        (
            _POD.format(field='tty: "yes"'),
            9,
            'spec.containers[0].tty must be true or false, and "yes" is a string',
            "kubectl explain pod.spec.containers.tty",
        ),
        (
            _VCJOB.format(minimum='"3"', metadata="labels: {}", field="tty: true"),
            7,
            'spec.minAvailable must be a whole number, and "3" is a string',
            "leave out the quotes: minAvailable: 3",
        ),
        (
            _VCJOB.format(minimum="3", metadata="labels: {version: 1}", field="tty: true"),
            5,
            "metadata.labels.version must be a string, and 1 is a number",
            'put it in quotes: version: "1"',
        ),
        (
            _VCJOB.format(minimum="3", metadata="labels: {}", field="args: [5]"),
            16,
            "spec.tasks[0].template.spec.containers[0].args[0] must be a string, and 5 is a number",
            'put it in quotes: - "5"',
        ),
    ],
)
@pytest.mark.parametrize("flags", [("--dry-run=client",), ()])
def test_value_of_a_wrong_type_is_named_with_its_line(
    windlass, cluster, manifest, text, line, told, correction, flags
):
    def check(_: FakeCluster, resource, obj) -> None:
        report = field_review.review(resource, copy.deepcopy(obj))
        field_review.enforce(resource, report, "Warn")

    cluster.on_create.append(check)
    path = manifest(text)
    done = windlass("apply", *flags, "-f", path)
    assert done.code == 2
    assert f"error[WL-MANIFEST-422]: {path}:{line}: " in done.err
    assert f"why: line {line}: {told}\n" in done.err
    assert f"try: {correction}\n" in done.err.replace(" --api-version=batch.volcano.sh/v1alpha1", "")
