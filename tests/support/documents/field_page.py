"""Page of the published manifests: a table of outcomes, with the reason of each that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from field_index import differences
from field_outcomes import FieldManifest, FieldObject

PAGE = Path(__file__).resolve().parents[3] / "docs" / "operations" / "field-manifests.md"

_PLACEHOLDER = "a placeholder that its user replaces first. The original controller refuses it, too"
REFUSED: Mapping[tuple[str, str], tuple[str, str]] = {
    ("jobset/06-tunix-tpu-template", "JobSet"): (
        "spec.replicatedJobs[0].template.spec.completions, "
        "spec.replicatedJobs[0].template.spec.parallelism, "
        "spec.replicatedJobs[0].template.spec.template.spec.containers[0].ports[0].containerPort",
        f"`${{PARALLELISM}}` and others: {_PLACEHOLDER}",
    ),
    ("kubeflow/13-fsdp-llama3-8b", "PyTorchJob"): (
        "spec.pytorchReplicaSpecs.Worker.replicas",
        f"`$NUM_NODES`: {_PLACEHOLDER}",
    ),
    ("kubernetes/03-vit-statefulset", "StatefulSet"): (
        "spec.template.spec.serviceAccountName",
        f"`<GCSFUSE_KSA>`: {_PLACEHOLDER}",
    ),
    ("ray/07-raycluster-verl-envsubst", "RayCluster"): (
        "spec.workerGroupSpecs[0].replicas",
        f"`PLACEHOLDER_NUM_NODES`: {_PLACEHOLDER}",
    ),
    ("trainer/08-trainjob-slurm-kueue", "TrainJob"): (
        "spec.runtimeRef",
        "runtime `torch-slurm` was not published with it. Trainer refuses a TrainJob without its runtime, too",
    ),
    ("volcano/08-invalid-minavailable", "Job"): (
        "spec.minAvailable",
        "published as invalid: 5 of 4 pods. Volcano refuses it, too",
    ),
    ("volcano/19-podgroup-with-status", "PodGroup"): (
        "metadata.resourceVersion",
        "output of `kubectl get`: an object that is created has no version. Kubernetes refuses it, too",
    ),
}
"""File and kind of a refused object → the fields, and the reason."""

UNKNOWN: Mapping[tuple[str, str], tuple[str, str]] = {
    ("kubeflow/19-tfjob-churn", "TFJob"): (
        "spec.cleanPodPolicy",
        "unknown field `spec.cleanPodPolicy`, of older versions. The training operator drops it, too; "
        "`apply --strict` refuses it",
    ),
}
"""File and kind of an object with unknown fields → the fields, and the reason."""

NOT_SERVED: Mapping[str, str] = {
    "autoscaling.karmada.io": "Windlass operates one cluster",
    "autoscaling": "there is no autoscaler of replicas",
    "batch.paddlepaddle.org": "kind of PaddlePaddle's own operator. Use PaddleJob of `kubeflow.org`",
    "keda.sh": "there is no autoscaler of replicas",
    "kueue.x-k8s.io": "queues are those of Windlass. The label `kueue.x-k8s.io/queue-name` of jobs is read",
    "policy.karmada.io": "Windlass operates one cluster",
    "rbac.authorization.k8s.io": "single-node mode has one administrator and no RBAC",
    "resource.nvidia.com": "NVIDIA's DRA driver operates it. Its own definition can be applied",
}
"""API group of kinds that are not served in single-node mode → the reason."""

_ELASTIC = (
    "the gang is `minReplicas`, so that the job starts earlier. Upstream waits for all replicas; "
    "KAI Scheduler starts with `minReplicas`, too"
)
DEVIATIONS: Mapping[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("kubeflow/02-pytorch-elastic-imagenet", "PyTorchJob"): (("gang [1] instead of [2]",), _ELASTIC),
    ("kubeflow/14-hyperpod-imagenet-team-a", "PyTorchJob"): (("gang [1] instead of [3]",), _ELASTIC),
    ("kubeflow/22-nvbandwidth-computedomain", "MPIJob"): (
        ("gang [4] instead of [5]",),
        "`launcherCreationPolicy: WaitForWorkersReady`: the gang is the workers, because the launcher does "
        "not exist when they start",
    ),
    ("trainer/06-trainjob-mpi-sft", "TrainJob"): (
        ("without PET_MASTER_ADDR, PET_MASTER_PORT, PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE",),
        "no difference to Trainer: the runtime has `mlPolicy.mpi`, so the launcher gets a host file instead "
        "of torchrun's variables",
    ),
}
"""File and kind of an object that differs from what its source leads to → the differences, and the reason."""

NOTES: Mapping[tuple[str, str], str] = {
    **{
        (f"kubeflow/{name}", "PyTorchJob"): "`elasticPolicy.metrics` has no effect: no autoscaler is made"
        for name in (
            "02-pytorch-elastic-imagenet",
            "14-hyperpod-imagenet-team-a",
            "21-do-eks-imagenet-etcd",
        )
    },
    ("ray/03-raycluster-autoscaler-v2", "RayCluster"): (
        "Ray's autoscaler runs in the pod of the head and adds workers when tasks wait"
    ),
    ("trainer/05-runtime-flux", "ClusterTrainingRuntime"): "`mlPolicy.flux` has no effect, with a warning",
    **{
        (f"volcano/{name}", "Job"): f"queue `{queue}` must exist, as in Volcano"
        for name, queue in (
            ("15-vcjob-nccl-nebius", "test-queue"),
            ("16-vcjob-llama-finetune", "test-queue"),
            ("17-vcjob-do-eks", "test"),
        )
    },
    ("kueue/07-gke-job-team-a", "Job"): "published as suspended. The pods wait in their queue instead",
}
"""Further differences of behaviour, which the numbers do not show."""

HEAD = """# Which published manifests run as they are?

{accepted} of {total} objects in {files} published manifests are accepted as they are. Of the
others {refused} are refused with the field, and {absent} are of kinds that single-node mode does
not serve.

The manifests come from public repositories: examples of the projects that define these
kinds, and files of their users. A placeholder in a manifest stays as it is. Each file is
decoded, validated and admitted as by the embedded API server, with the namespaces and
queues that it names, and the controllers create its pods. A test repeats this and
compares it with this page, and with an index of the pods, gangs and environment that the
original controllers document. Those controllers themselves were not run.

- **Outcome**: `windlass apply --dry-run -f FILE` prints the warnings, which tell what is
  filled in or has no effect.
- **Pods**: number of each role. A role is named as in the manifest.
- **Gang**: `minMember` of each PodGroup that the controller of the kind creates. A dash
  means none. Annotations may still join the pods ([owner gangs](../guides/owner-gangs.md)).
- **Deviation**: what differs from the original controller, or why a manifest is not
  accepted. An empty cell means that pods, gang and environment are those of the index.
- An asterisk marks files in which names or addresses were replaced before the test.

| manifest | kind | outcome | pods | gang | deviation |
|---|---|---|---|---|---|
"""


def kind_of(found: FieldObject) -> str:
    return found.kind.rpartition(" ")[2]


def reason(manifest: FieldManifest, found: FieldObject) -> str:
    """Return the words of the last column."""
    key = (manifest.name, kind_of(found))
    if not found.served:
        return NOT_SERVED[found.kind.partition("/")[0]]
    if found.fields:
        return REFUSED[key][1]
    parts = [UNKNOWN[key][1]] if found.unknown else []
    if differences(found):
        parts.append(DEVIATIONS[key][1])
    parts += [NOTES[key]] if key in NOTES else []
    return ". ".join(parts)


def page(manifests: Iterable[FieldManifest]) -> str:
    """Return the text of the page."""
    manifests = list(manifests)
    found = [one for manifest in manifests for one in manifest.objects]
    refused = sum(1 for one in found if one.fields)
    absent = sum(1 for one in found if not one.served)
    head = HEAD.format(
        total=len(found),
        files=len(manifests),
        refused=refused,
        absent=absent,
        accepted=len(found) - refused - absent,
    )
    return head + "".join(row + "\n" for manifest in manifests for row in _rows(manifest))


def _rows(manifest: FieldManifest) -> list[str]:
    link = f"https://github.com/{manifest.repository}/blob/{manifest.commit}/{manifest.path}"
    first = f"[{manifest.name}]({link})" + ("\\*" if manifest.edited else "")
    rows = Counter(
        " | ".join(
            (
                f"{kind_of(found)} (`{found.kind.rpartition(' ')[0]}`)",
                found.outcome,
                _pods(found),
                _gang(found),
                reason(manifest, found),
            )
        )
        for found in manifest.objects
    )
    lines = []
    for row, count in rows.items():
        lines.append(f"| {first} | {f'{count} × ' if count > 1 else ''}{row} |")
        first = ""
    return lines


def _pods(found: FieldObject) -> str:
    if found.pods is None:
        return ""
    return ", ".join(
        str(count) if role == "pod" else f"{role} {count}" for role, count in found.pods.roles.items()
    )


def _gang(found: FieldObject) -> str:
    if found.pods is None or not found.pods.total:
        return ""
    counts = Counter(found.pods.gangs)
    return ", ".join(f"{times} × {size}" if times > 1 else str(size) for size, times in counts.items()) or "–"
