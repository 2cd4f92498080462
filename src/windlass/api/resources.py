"""Kinds of objects and their paths on the wire.

``Resource`` is the one description of a kind that every room uses: the client builds paths from
it, the server routes by it, the command line finds it by any of its names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windlass.api.structural.definition import Definition

_STATUS = ("status",)
_SCALED = ("status", "scale")


@dataclass(frozen=True, slots=True)
class Resource:
    """A served kind: group, version, plural, scope and names."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    custom: bool = False
    """True for a kind of a CustomResourceDefinition (no strategic merge, kind in list items)."""
    verbs: tuple[str, ...] = (
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    )
    singular_name: str = ""
    """Empty: the kind in lower case."""
    list_name: str = ""
    """Kind of lists. Empty: the kind and ``List``."""
    definition: Definition | None = field(default=None, repr=False)
    """Declaration of a kind of a user's CustomResourceDefinition; ``None`` for built-in kinds."""
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Kinds are keys of many tables that every request looks into.
        object.__setattr__(self, "_hash", hash((self.group, self.version, self.plural)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.singular_name or self.kind.lower()

    @property
    def list_kind(self) -> str:
        return self.list_name or f"{self.kind}List"

    @property
    def qualified(self) -> str:
        """``pods``, ``queues.scheduling.volcano.sh``: the name in messages and in RBAC."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection or the object. ``namespace`` None on a namespaced kind means all."""
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


PODS = Resource(
    "",
    "v1",
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    subresources=(
        "status",
        "binding",
        "log",
        "eviction",
        "exec",
        "attach",
        "portforward",
        "ephemeralcontainers",
    ),
)
NODES = Resource("", "v1", "nodes", "Node", False, ("no",), subresources=_STATUS)
NAMESPACES = Resource(
    "",
    "v1",
    "namespaces",
    "Namespace",
    False,
    ("ns",),
    subresources=("status", "finalize"),
    verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
)
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",))
SECRETS = Resource("", "v1", "secrets", "Secret")
SERVICES = Resource(
    "", "v1", "services", "Service", short_names=("svc",), categories=("all",), subresources=_STATUS
)
ENDPOINTS = Resource("", "v1", "endpoints", "Endpoints", short_names=("ep",))
SERVICE_ACCOUNTS = Resource(
    "", "v1", "serviceaccounts", "ServiceAccount", short_names=("sa",), subresources=("token",)
)
PERSISTENT_VOLUMES = Resource(
    "", "v1", "persistentvolumes", "PersistentVolume", False, ("pv",), subresources=_STATUS
)
PERSISTENT_VOLUME_CLAIMS = Resource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=_STATUS
)
RESOURCE_QUOTAS = Resource(
    "", "v1", "resourcequotas", "ResourceQuota", short_names=("quota",), subresources=_STATUS
)
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange", short_names=("limits",))
EVENTS_V1 = Resource("events.k8s.io", "v1", "events", "Event", short_names=("ev",))
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_NAMESPACE = "kube-node-lease"
"""Namespace of the leases that nodes renew."""
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, ("pc",))
POD_DISRUPTION_BUDGETS = Resource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short_names=("pdb",), subresources=_STATUS
)
DEPLOYMENTS = Resource(
    "apps", "v1", "deployments", "Deployment", True, ("deploy",), ("all",), subresources=_SCALED
)
REPLICA_SETS = Resource(
    "apps", "v1", "replicasets", "ReplicaSet", True, ("rs",), ("all",), subresources=_SCALED
)
STATEFUL_SETS = Resource(
    "apps", "v1", "statefulsets", "StatefulSet", True, ("sts",), ("all",), subresources=_SCALED
)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", True, ("ds",), ("all",), subresources=_STATUS)
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
SCALES = Resource("autoscaling", "v1", "scales", "Scale", verbs=())
"""Body of the subresource ``scale``; never stored."""
ENDPOINT_SLICES = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")

DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", subresources=_STATUS)
RESOURCE_CLAIM_TEMPLATES = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"
)
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", False)

STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False, ("sc",))
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", False)
"""Read where a cluster has it; a box has no CSI drivers, so it is not in :data:`ALL`."""
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", False)
"""As :data:`CSI_NODES`."""
STORAGE_CAPACITIES = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity")
"""As :data:`CSI_NODES`."""

NODE_METRICS = Resource("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", False)
"""Current usage of nodes, if the cluster measures it."""

QUEUES = Resource(
    "scheduling.volcano.sh",
    "v1beta1",
    "queues",
    "Queue",
    False,
    ("q", "queue-v1beta1"),
    ("volcano",),
    _STATUS,
    custom=True,
)
POD_GROUPS = Resource(
    "scheduling.volcano.sh",
    "v1beta1",
    "podgroups",
    "PodGroup",
    True,
    ("pg", "podgroup-v1beta1"),
    ("volcano",),
    _STATUS,
    custom=True,
)
VOLCANO_JOBS = Resource(
    "batch.volcano.sh",
    "v1alpha1",
    "jobs",
    "Job",
    True,
    ("vcjob", "vj", "vjob"),
    ("all", "volcano"),
    _STATUS,
    custom=True,
)
VOLCANO_JOBS_V1BETA1 = Resource(
    "batch.volcano.sh",
    "v1beta1",
    "jobs",
    "Job",
    True,
    ("vcjob", "vj", "vjob"),
    ("all", "volcano"),
    _STATUS,
    custom=True,
)
VOLCANO_CRON_JOBS = Resource(
    "batch.volcano.sh",
    "v1alpha1",
    "cronjobs",
    "CronJob",
    True,
    ("cronvcjob", "cronvj"),
    ("volcano",),
    _STATUS,
    custom=True,
)
JOB_FLOWS = Resource(
    "flow.volcano.sh", "v1alpha1", "jobflows", "JobFlow", True, ("jf",), ("volcano",), _STATUS, custom=True
)
JOB_TEMPLATES = Resource(
    "flow.volcano.sh",
    "v1alpha1",
    "jobtemplates",
    "JobTemplate",
    True,
    ("jt",),
    ("volcano",),
    _STATUS,
    custom=True,
)
COMMANDS = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command", True, custom=True)

PYTORCH_JOBS = Resource(
    "kubeflow.org", "v1", "pytorchjobs", "PyTorchJob", True, (), ("all",), _SCALED, custom=True
)
TF_JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob", True, (), ("all",), _SCALED, custom=True)
XGBOOST_JOBS = Resource(
    "kubeflow.org", "v1", "xgboostjobs", "XGBoostJob", True, (), ("all",), _SCALED, custom=True
)
PADDLE_JOBS = Resource(
    "kubeflow.org", "v1", "paddlejobs", "PaddleJob", True, (), ("all",), _SCALED, custom=True
)
MPI_JOBS = Resource("kubeflow.org", "v1", "mpijobs", "MPIJob", True, (), ("all",), _SCALED, custom=True)
MPI_JOBS_V2BETA1 = Resource(
    "kubeflow.org", "v2beta1", "mpijobs", "MPIJob", True, (), ("all",), _SCALED, custom=True
)
JAX_JOBS = Resource("kubeflow.org", "v1", "jaxjobs", "JAXJob", True, (), ("all",), _STATUS, custom=True)

LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    "LeaderWorkerSet",
    True,
    ("lws",),
    (),
    _SCALED,
    custom=True,
)
JOB_SETS = Resource(
    "jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", True, (), ("all",), _STATUS, custom=True
)

TRAIN_JOBS = Resource(
    "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob", True, (), ("all",), _STATUS, custom=True
)
TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime", True, custom=True
)
CLUSTER_TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org",
    "v1alpha1",
    "clustertrainingruntimes",
    "ClusterTrainingRuntime",
    False,
    custom=True,
)
RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster", True, (), ("all",), _STATUS, custom=True)
AIGC_JOBS = Resource(
    "kurator.dev", "v1alpha1", "aigcjobs", "AIGCJob", True, ("aigc",), ("all",), _STATUS, custom=True
)
RAY_JOBS = Resource("ray.io", "v1", "rayjobs", "RayJob", True, (), ("all",), _STATUS, custom=True)
RAY_SERVICES = Resource("ray.io", "v1", "rayservices", "RayService", True, (), ("all",), _STATUS, custom=True)
RAY_CRON_JOBS = Resource(
    "ray.io", "v1", "raycronjobs", "RayCronJob", True, (), ("all",), _STATUS, custom=True
)
WORKFLOWS = Resource("argoproj.io", "v1alpha1", "workflows", "Workflow", True, ("wf",), ("all",), custom=True)
WORKFLOW_TEMPLATES = Resource(
    "argoproj.io", "v1alpha1", "workflowtemplates", "WorkflowTemplate", True, ("wftmpl",), custom=True
)
CLUSTER_WORKFLOW_TEMPLATES = Resource(
    "argoproj.io",
    "v1alpha1",
    "clusterworkflowtemplates",
    "ClusterWorkflowTemplate",
    False,
    ("clusterwftmpl", "cwft"),
    custom=True,
)
CRON_WORKFLOWS = Resource(
    "argoproj.io", "v1alpha1", "cronworkflows", "CronWorkflow", True, ("cwf", "cronwf"), custom=True
)
AIGC_WORKFLOWS = Resource(
    "kurator.dev", "v1alpha1", "aigcworkflows", "AIGCWorkflow", True, ("aigcwf",), ("all",), custom=True
)
MODEL_CACHES = Resource(
    "kurator.dev", "v1alpha1", "modelcaches", "ModelCache", False, ("mcache",), (), _STATUS, custom=True
)

HYPERNODES = Resource(
    "topology.volcano.sh",
    "v1alpha1",
    "hypernodes",
    "HyperNode",
    False,
    ("hn",),
    ("volcano",),
    _STATUS,
    custom=True,
)

KAI_QUEUES = Resource("scheduling.run.ai", "v2", "queues", "Queue", False, (), ("kai",), _STATUS, custom=True)
KAI_POD_GROUPS = Resource(
    "scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup", True, (), ("kai",), _STATUS, custom=True
)
COSCHEDULING_POD_GROUPS = Resource(
    "scheduling.x-k8s.io",
    "v1alpha1",
    "podgroups",
    "PodGroup",
    True,
    ("pg", "pgs"),
    (),
    _STATUS,
    custom=True,
)
"""Gangs of the coscheduling plug-in of ``kubernetes-sigs/scheduler-plugins``."""
KAI_TOPOLOGIES = Resource(
    "kai.scheduler", "v1alpha1", "topologies", "Topology", False, (), ("kai",), custom=True
)

NUMATOPOLOGIES = Resource(
    "nodeinfo.volcano.sh", "v1alpha1", "numatopologies", "Numatopology", False, ("numatopo",), custom=True
)
NODE_RESOURCE_TOPOLOGIES = Resource(
    "topology.node.k8s.io",
    "v1alpha2",
    "noderesourcetopologies",
    "NodeResourceTopology",
    False,
    ("node-res-topo",),
    custom=True,
)

CUSTOM_RESOURCE_DEFINITIONS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    False,
    ("crd", "crds"),
    ("api-extensions",),
    _STATUS,
)

NATIVE_POD_GROUPS = Resource(
    "scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup", True, subresources=_STATUS
)
"""Kubernetes' own gangs (1.36)."""
WORKLOADS = Resource("scheduling.k8s.io", "v1alpha2", "workloads", "Workload", True)
"""Templates of Kubernetes' own gangs (1.36)."""
PROVISIONING_REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", True, custom=True
)
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job", True, (), ("all",), _STATUS)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", True, ("cj",), ("all",), _STATUS)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate")
"""Template of a node request (:mod:`windlass.model.autoscaling.provisioning`) in clusters with an autoscaler; also
not served here."""

ALIASES: dict[Resource, Resource] = {VOLCANO_JOBS_V1BETA1: VOLCANO_JOBS, MPI_JOBS_V2BETA1: MPI_JOBS}
"""Other versions of the same stored object → the version it is stored in."""

ALL: tuple[Resource, ...] = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    ENDPOINTS,
    SERVICE_ACCOUNTS,
    PERSISTENT_VOLUMES,
    PERSISTENT_VOLUME_CLAIMS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    EVENTS_V1,
    LEASES,
    POD_DISRUPTION_BUDGETS,
    ENDPOINT_SLICES,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
    BATCH_JOBS,
    CRON_JOBS,
    STORAGE_CLASSES,
    QUEUES,
    POD_GROUPS,
    PRIORITY_CLASSES,
    NATIVE_POD_GROUPS,
    WORKLOADS,
    VOLCANO_JOBS,
    VOLCANO_JOBS_V1BETA1,
    VOLCANO_CRON_JOBS,
    JOB_FLOWS,
    JOB_TEMPLATES,
    COMMANDS,
    PYTORCH_JOBS,
    TF_JOBS,
    XGBOOST_JOBS,
    PADDLE_JOBS,
    JAX_JOBS,
    MPI_JOBS,
    MPI_JOBS_V2BETA1,
    JOB_SETS,
    LEADER_WORKER_SETS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    CLUSTER_TRAINING_RUNTIMES,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    RAY_CRON_JOBS,
    WORKFLOWS,
    WORKFLOW_TEMPLATES,
    CLUSTER_WORKFLOW_TEMPLATES,
    CRON_WORKFLOWS,
    AIGC_WORKFLOWS,
    MODEL_CACHES,
    AIGC_JOBS,
    HYPERNODES,
    KAI_QUEUES,
    KAI_POD_GROUPS,
    KAI_TOPOLOGIES,
    COSCHEDULING_POD_GROUPS,
    NUMATOPOLOGIES,
    NODE_RESOURCE_TOPOLOGIES,
    CUSTOM_RESOURCE_DEFINITIONS,
)

_BY_KIND = {(r.api_version, r.kind): r for r in ALL}
_BY_PLURAL = {(r.group, r.version, r.plural): r for r in ALL}


def by_kind(api_version: str, kind: str) -> Resource | None:
    return _BY_KIND.get((api_version, kind))


def by_plural(group: str, version: str, plural: str) -> Resource | None:
    return _BY_PLURAL.get((group, version, plural))


def find(word: str) -> Resource | None:
    """The resource that a person means: plural, singular, short name, or ``plural.group``.

    Where several kinds share a name, the first of :data:`ALL` wins, as kubectl does. ``job`` is the Volcano
    Job, which ``windlass run`` creates; that of Kubernetes is ``job.batch``.
    """
    wanted = word.lower()
    for resource in (VOLCANO_JOBS, *ALL):
        names = {
            resource.plural,
            resource.singular,
            *resource.short_names,
            resource.qualified,
            f"{resource.plural}.{resource.version}.{resource.group}",
            f"{resource.singular}.{resource.group}",
        }
        if wanted in names:
            return resource
    return None
