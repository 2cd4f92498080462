"""Labels and annotations that Windlass reads or writes, by their wire names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Value = TypeVar("_Value", str, str | None)

# Windlass' own.
DEVICES = "windlass.dev/devices"
"""On a bound pod: the device indices on its node, ``"0,3"``; written with the binding."""
DEVICE_SHARES = "windlass.dev/device-shares"
"""On a bound pod: its shares of devices, ``"0:500/10240"`` is half the compute and 10 GiB of device 0; 0: no claim."""
DEVICE_SLICES = "windlass.dev/device-slices"
"""On a bound pod: its MIG slices, ``"0:1g.10gb@6"`` is that profile at start 6 of device 0."""
NODE_DEVICES = "windlass.dev/node-devices"
"""On a node: its devices one by one, as the agent found them (JSON: index, UUID, model, memory, MIG, health …)."""
MIG_MODE = "windlass.dev/mig"
"""Label on a node: ``dynamic`` where its agent carves devices in MIG mode as the scheduler decides; ``either`` where it
also switches the mode of free devices."""
EXPLANATION = "windlass.dev/explanation"
"""On a waiting PodGroup (or a pod without one): the Explanation record as JSON."""
RESERVATION = "windlass.dev/reservation"
"""On a PodGroup: where its members go and with which devices (JSON), written before the first of them is bound. After a
crash, the next scheduler completes the gang from it."""
EVICTION = "windlass.dev/eviction"
"""On a PodGroup: pods that are evicted together, the reason and the start time (JSON), written before the first
eviction. After a crash, the next scheduler completes the eviction from it."""
EVICTED_FOR = "windlass.dev/evicted-for"
"""On a PodGroup: the last eviction of its pods, the group that received the capacity, and why (JSON)."""
EVICTIONS = "windlass.dev/evictions"
"""On a PodGroup, or a pod without one: the groups that were evicted for it, those that were spared, and why (JSON)."""
QUEUED_SINCE = "windlass.dev/queued-since"
"""On a PodGroup or pod that was created again after its node had a notice: since when it counts in the order of its
queue (RFC 3339)."""
REQUEUED = "windlass.dev/requeued"
"""On a pod that is evicted and will be created again: the reason, ``SpotInterruption`` or ``NodeDegraded``."""
SPOT_NOTICE = "windlass.dev/spot-notice"
"""On a node: its spot machine ends at this time (RFC 3339), or soon (any other text). Its pods are evicted, and start
elsewhere. Taints by which clouds announce that have the same effect."""
DEGRADED = "windlass.dev/degraded"
"""On a node: it is slow, and why. Pods of high priority are evicted, and start elsewhere. A condition ``NodeDegraded``
or ``Degraded`` of the node has the same effect."""
QUEUE_SHARE = "windlass.dev/share"
"""On a queue: its fair share, what it holds and asks for, and why the share is what it is, as JSON."""
SIMULATED = "windlass.dev/simulated"
"""Label on a node without a machine behind it: ``"true"``; its pods run for a declared time."""
RUN_SECONDS = "windlass.dev/run-seconds"
"""On a pod for a simulated node: how long it runs; absent means until deleted. Several numbers, separated by commas,
are for its first run and for those after restarts in place."""
EXIT_CODE = "windlass.dev/exit-code"
"""On a pod for a simulated node: the exit code after that time; default 0. ``1,0``: the first run fails, and the next
one succeeds."""
UMASK = "windlass.dev/umask"
"""On a pod in single-node mode: umask of its processes, an octal number; default 0022."""
LOCAL_PROVISIONER = "windlass.dev/local-path"
"""Provisioner of a StorageClass in single-node mode: a directory of the machine for each claim."""
SDK_SESSION = "windlass.dev/sdk-session"
"""Label of jobs that a Python program submitted with ``windlass.submit``: the program's session."""
WRITTEN_AS = "windlass.dev/written-as"
"""On an MPIJob: the version in which it was written (``v1`` or ``v2beta1``), which decides how it works."""
REMOTE_SHELL = "windlass.dev/remote-shell"
"""On a pod in single-node mode: ``exec`` puts an ``ssh`` on its PATH that enters other pods through the node
agent, if they serve no SSH themselves."""
JOB_RECORD = "windlass.dev/job-record"
"""On a job of a kind that Windlass runs: restarts by cause and the cause of a failure, as JSON."""
PROGRESS = "windlass.dev/progress"
"""On a job: the last report of its program (JSON: percent, seconds left, metrics), in the form of a TrainJob's
``status.trainerStatus``."""
JOB_ATTEMPTS = "windlass.dev/job-attempts"
"""On a job: its attempts with their times in the queue, running and lost, and why each ended, as JSON."""
CHECKPOINT_PATH = "windlass.dev/checkpoint-path"
"""On a pod, or on a job for its pods: file or directory of its checkpoints. Its node watches the newest file there and
reports whether a checkpoint landed after SIGTERM."""
CHECKPOINT_HOOK = "windlass.dev/checkpoint-hook"
"""On a pod, or on a job for its pods: command, or ``http://:PORT/PATH``, that its node runs to save a checkpoint before
it sends SIGTERM."""
CHECKPOINT_REPORT = "windlass.dev/checkpoint-report"
"""On a pod, by its node: when SIGTERM was sent, and when its newest checkpoint landed, as JSON."""
LWS_GATE = "windlass.dev/leaderworkerset"
"""Scheduling gate of a pod of a LeaderWorkerSet in a cluster, until its labels and annotations are written."""
LWS_LEADER_ADDRESS = "windlass.dev/lws-leader-address"
"""On a pod of a LeaderWorkerSet in a cluster: value of its variable ``LWS_LEADER_ADDRESS``."""
LWS_TPU_HOSTNAMES = "windlass.dev/lws-tpu-hostnames"
"""On such a pod with TPUs: value of its variable ``TPU_WORKER_HOSTNAMES``."""
LWS_TPU_WORKER = "windlass.dev/lws-tpu-worker"
"""On such a pod with TPUs: value of its variable ``TPU_WORKER_ID``."""
RESTART_IN_PLACE = "windlass.dev/restart-in-place"
"""On a pod of a JobSet with ``restartStrategy: InPlaceRestart``: name of the JobSet. An agent of Windlass restarts the
pod's containers together with those of the JobSet's other pods."""
RENDEZVOUS = "windlass.dev/rendezvous"
"""On the pod of an elastic job that holds the c10d rendezvous of ``torchrun``: its port, and the run id after a slash
if the job has one (``23456/run-7``). On an elastic job: ``off`` leaves the rendezvous to ``torchrun`` alone."""
RENDEZVOUS_OFF = "off"
"""Value of that annotation on a job."""
WORLD = "windlass.dev/world"
"""On the same pod: indices of the workers that have a node (``0-3,6``). The rendezvous closes with exactly these."""
PROGRESS_PATH = "windlass.dev/progress-path"
"""On a pod in single-node mode: path of the endpoint to which its program reports progress, if it is not that of the
job that controls it."""
TEMPLATE_HASH = "windlass.dev/template-hash"
"""On a JobSet of a TrainJob: hash of the spec that the TrainJob gave it."""
PLACEHOLDER = "windlass.dev/placeholder"
"""On a pod: the containers that ran a placeholder because nothing said what to run."""
BOX = "windlass.dev/box"
"""Label on the node of a box, ``"true"``: its agent runs pods as processes of the machine."""
ISOLATION = "windlass.dev/isolation"
"""On a box's node: which namespaces pods have of their own (``net, uts, ipc, mnt, pid``), or ``none``."""
LIMITS = "windlass.dev/limits"
"""On a box's node: how CPU and memory limits are enforced, by cgroups or by affinity and watching."""
OUTBOUND = "windlass.dev/outbound"
"""On a box's node: how pods reach what is outside (``nat``, ``slirp4netns``, ``machine``, ``none``), and why so."""
DEVICES_NOTE = "windlass.dev/devices-note"
"""On a box's node: what is to be known about its devices, such as why none were found."""
DEVICE_USE = "windlass.dev/device-use"
"""On the node of a single-node installation: the measured memory in MiB of each pod on each GPU, by index (JSON)."""
SIMULATED_USE = "windlass.dev/simulated-gpu-use"
"""On a pod on a simulated GPU: the memory that it is shown to use there (``3Gi``; default 0)."""
MPS_DAEMON = "windlass.dev/mps-daemon"
"""On the node of a single-node installation: its MPS control daemon (JSON): whether it runs, its two directories,
whether the agent manages it."""
BAD_DEVICE_SECONDS = "windlass.dev/unhealthy-device-seconds"
"""On a pod: how many seconds it stays on a device that went bad (default 30) before it is evicted, or ``forever``."""
CLEAR_BAD_DEVICES = "windlass.dev/clear-devices"
"""On the node of a single-node installation: devices declared healthy by an administrator, with the time, for
example ``0,3@2026-01-01T00:00:00Z``. Entries are separated by ``;``. The node agent removes entries it has applied."""
NETWORK_PRESET = "windlass.dev/network-preset"
"""On a pod or pod template: its network preset. ``rdma`` adds variables of NCCL and prefers nodes of one RDMA island.
The embedded server applies it to new pods, ``windlass submit --network`` to the job that it creates."""
HOST_PORTS = "windlass.dev/host-ports"
"""On the template of a Volcano Job on the host network: ``distinct`` gives each replica ports of its own,
counted up from those of the template. Containers find them in ``HOST_PORT`` and ``HOST_PORT_<NAME>``."""
HOST_PORTS_DISTINCT = "distinct"
"""Value of that annotation."""
RDMA_CAPABLE = "feature.node.kubernetes.io/rdma.capable"
"""Label of Node Feature Discovery on a node with RDMA. Nodes with one value form an RDMA island. The value ``false``
means a node without RDMA."""
MOVABLE = "windlass.dev/movable"
"""On a PodGroup: ``"true"`` agrees to its pods being stopped and started elsewhere to make room (consolidation)."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""On a pod: ``"false"`` keeps the cluster autoscaler from draining its node, and Windlass from moving the pod to make
room (consolidation). It does not stop reclaim or preempt."""
NODES_REQUESTED = "autoscaling.x-k8s.io/consume-provisioning-request"
"""On a pod: the ProvisioningRequest by which its nodes are asked for, all or none. It then calls for none itself."""
PROVISIONING_CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name"
"""On a pod: the class of that ProvisioningRequest, written with it."""
PROVISIONING_CLASS = "windlass.dev/provisioning-class"
"""On a queue: the class of the ProvisioningRequests by which its gangs, and those of the queues below it, ask for nodes
(``best-effort-atomic-scale-up.autoscaling.x-k8s.io``), or ``none``. It wins over ``scheduler.provisioningClass``."""
PROVISIONING_PARAMETER = "provreq.kueue.x-k8s.io/"
"""Prefix of annotations with parameters for the class of a ProvisioningRequest, as in Kueue:
``provreq.kueue.x-k8s.io/ValidUntilSeconds: "3600"``. Read from the queue that names the class, and from the PodGroup,
which takes precedence."""
PROVISIONING_FOR = "windlass.dev/provisioning-for"
"""On a ProvisioningRequest that Windlass has made: which pods it counts, as a digest."""
ATTEMPT = "windlass.dev/attempt"
"""On a ProvisioningRequest that Windlass has made: of how many for the same pods it is the last."""
CHECKPOINTED = "windlass.dev/checkpointed-at"
"""On a PodGroup: when its work was last saved (RFC 3339); what it has done since is what an eviction would lose."""
CHECKPOINT_EVERY = "windlass.dev/checkpoint-every"
"""On a PodGroup, or a pod without one: how often its work is saved (``30m``); ``0s``: whenever it is stopped.
Used by time-sharing: a group with neither this nor a last checkpoint time loses all work of its current run."""
RESTART_COST = "windlass.dev/restart-cost"
"""On a PodGroup, or a pod without one: what a start after a stop takes before work goes on (``2m``). A suspension
has to be worth it."""
TIME_SHARE = "windlass.dev/time-share"
"""On a PodGroup, a pod without one, or a queue: ``"true"`` agrees to be suspended for others of its queue that agreed,
too, and to suspend them. A declared checkpoint stands for a yes; ``"false"`` takes it back."""
ATTAINED = "windlass.dev/attained"
"""On a PodGroup that shares time, by the scheduler: for how long it has had its room in all (``3h2m1s``), up to
``windlass.dev/attained-at``. A scheduler that begins reads it; what cannot be true is told and ignored."""
ATTAINED_AT = "windlass.dev/attained-at"
"""On the same PodGroup, with it: up to which moment (RFC 3339). What ran later is counted from the pods."""
SUSPENSIONS = "windlass.dev/suspensions"
"""On the same PodGroup, with it: how often it was suspended for others."""
ATTAINED_SINCE = "windlass.dev/attained-since"
"""On the same PodGroup, after a Volcano Job was restarted and its PodGroup recreated: creation time of the first
PodGroup (RFC 3339). The Job's status keeps the four values from one PodGroup to the next."""
MODEL = "windlass.dev/model"
"""On a PodGroup, or a pod without one: the AI model that its work loads. The plugin ``model-grouping`` lets work on one
model go in a row, so that devices load it once."""
RUN_ESTIMATE = "windlass.dev/run-estimate"
"""On a PodGroup, or a pod without one: how long it runs once it has started (``90m``), by its owner's word. A Volcano
Job's ``runningEstimate`` is written here. Backfill and estimated starts rest on it."""

HOST_IMAGE = "windlass.dev/host"
"""The image of a container that is meant to run in this machine's own environment, as ``windlass run`` asks."""

ADOPTED = "windlass.dev/adopted"
"""On a queue of Volcano, KAI or Kueue: ``"true"`` hands it over to Windlass while the other one still runs."""
ADOPTED_REPLICAS = "windlass.dev/adopted-replicas"
"""On what ``windlass install --adopt --finish`` has scaled to nothing (a Deployment of Volcano, KAI's ``Config``): how
many instances it had; empty where nothing was said."""
ADOPTED_STOP_POLICY = "windlass.dev/adopted-stop-policy"
"""On a ClusterQueue of Kueue that was handed over: the ``stopPolicy`` that it had."""
ADOPTED_SUFFIX = ".adopted.windlass.dev"
"""At the end of ``spec.queue`` of a PodGroup that was handed over: Volcano knows no such queue, and passes it over."""
NODE_POOL_KAI = "kai.scheduler/node-pool"
"""Label of KAI on a PodGroup, a queue or a node: the shard that serves it; without it, the one for what has none."""
ADOPTED_POOL = "adopted.windlass.dev"
"""Value of that label on a PodGroup that was handed over: no shard of KAI serves it."""

# Groups and queues, of Volcano and KAI.
GROUP_NAME = "scheduling.k8s.io/group-name"
"""On a pod: its PodGroup. A pod without it is a group of one; pods of scheduler ``volcano`` get a PodGroup made."""
MIN_MEMBER_PATH = "windlass.dev/min-member-path"
"""On a CustomResourceDefinition: where its objects state how many of their pods start together, such as
``1 + .spec.groups[*].workers``. The pods of one object are one gang."""
PRIORITY_CLASS_PATH = "windlass.dev/priority-class-path"
"""On a CustomResourceDefinition: where its objects name the PriorityClass of their gang."""
QUEUE_PATH = "windlass.dev/queue-path"
"""On a CustomResourceDefinition: where its objects name the queue of their gang."""
TOPOLOGY_TIER_PATH = "windlass.dev/topology-tier-path"
"""On a CustomResourceDefinition: where its objects state the highest tier of a HyperNode that their gang may span."""
GROUPED_BY = "windlass.dev/grouped-by"
"""On an automatic PodGroup: the owner of its pods, its size, and where the size was read."""
GROUPING_RULE = "windlass.dev/grouping-rule"
"""On an automatic PodGroup: the rule by which it was made (JSON): of the table, declared by a CustomResourceDefinition,
or the default; with the kind and name of the owner, and where the size was read."""
GROUP_NAME_VOLCANO = "scheduling.volcano.sh/group-name"
"""On a pod: Volcano's other name for its PodGroup; read when ``scheduling.k8s.io/group-name`` is not there."""
QUEUE_NAME_VOLCANO = "scheduling.volcano.sh/queue-name"
"""On a pod without a PodGroup: its queue. On a namespace: the queue of jobs and pods in it that name none."""
QUEUE_NAME_LABEL = "volcano.sh/queue-name"
"""On pods of a Volcano Job: the job's queue. On a pod without a PodGroup it is read last, after the others."""
QUEUE_NAME_KAI = "kai.scheduler/queue"
"""Label of KAI on a pod without a PodGroup: its queue."""
GROUP_NAME_KAI = "pod-group-name"
"""On a pod: its PodGroup of KAI (``scheduling.run.ai``)."""
GROUP_NAME_COSCHEDULING = "scheduling.x-k8s.io/pod-group"
"""Label of the coscheduling plug-in on a pod: its PodGroup (``scheduling.x-k8s.io``)."""
BATCH_MIN_MEMBER_KAI = "kai.scheduler/batch-min-member"
"""On pods of a batch Job for KAI without a PodGroup: how many of the Job's pods start together."""
SUBGROUP_KAI = "kai.scheduler/subgroup-name"
"""Label of KAI on a pod: the part of its PodGroup that it belongs to."""
TASK_PRIORITY_KAI = "kai.scheduler/task-priority"
"""Label of KAI on a pod: its place among the pods of its group, higher first; default 0."""
STALE_SINCE_KAI = "kai.scheduler/stale-podgroup-timestamp"
"""On a PodGroup of KAI: since when it has held less than its minimum."""
LAST_START_KAI = "kai.scheduler/last-start-timestamp"
"""On a PodGroup of KAI: when it last reached its minimum; minimum run times count from then."""
LAST_EVICTION_KAI = "kai.scheduler/last-eviction-timestamp"
"""On a PodGroup of KAI: when a pod of it was last evicted; a preemption delay counts from then."""
PREEMPTION_DELAY_KAI = "kai.scheduler/preemption-delay"
"""On a PodGroup or pod of KAI: how long it waits before others are evicted for it (``30s``)."""
STALENESS_GRACE = "windlass.dev/staleness-grace-period"
"""On a PodGroup of Volcano's API: how long the gang may hold less than its minimum (``5m``; absent: for ever)."""
STALENESS_GRACE_KAI = "kai.scheduler/staleness-grace-period"
"""On a PodGroup or pod of KAI: how long a gang may hold less than its minimum (``60s``; negative: for ever)."""
WAITING_TIME = "volcano.sh/sla-waiting-time"
"""On a PodGroup or Job: how long it may wait before Volcano's ``sla`` policy lets it in (``1h``)."""
WAITING_TIME_BARE = "sla-waiting-time"
"""The same, as Volcano's pages write it; read where the other is absent or no duration."""
NODE_GROUP_LIMITS = "volcano.sh/nodegroup-resource-limits"
"""On a queue: what it may hold on the nodes of a group (Volcano's ``nodegroup``), ``{"group": {"cpu": "8"}}``."""
REVOCABLE_ZONE = "volcano.sh/revocable-zone"
"""On a pod: ``*`` lets it use nodes of revocable zones (Volcano's ``tdm``); where it is absent, so does
``volcano.sh/preemptable: "true"``. Label on a node: its revocable zone."""
NODE_NUMA_ZONES = "windlass.dev/numa"
"""On a Node: its NUMA zones, as the agent found them (JSON), and the policy by which it serves pods from them."""
NUMA_PLACEMENT = "windlass.dev/numa-placement"
"""On a bound pod: the NUMA zones that it is served from, with amounts (JSON); written with the binding."""
NUMA_OBSERVED_KAI = "kai.scheduler/numa-placement-observed"
"""On a pod: the NUMA zones that KAI's exporter has seen it served from; counts more than what was foreseen."""
NUMA_POLICY_VOLCANO = "volcano.sh/numa-topology-policy"
"""On a pod: the Topology Manager policy that its node must follow; a Volcano Job's ``topologyPolicy`` comes here."""
SCORING_STRATEGY = "volcano.sh/resource-strategy-scoring-type"
"""On a pod: how Volcano's ``resource-strategy-fit`` scores nodes for it, ``MostAllocated`` or ``LeastAllocated``."""
SCORING_WEIGHTS = "volcano.sh/resource-strategy-weight"
"""On a pod with ``volcano.sh/resource-strategy-scoring-type``: the weights of resources, ``{"cpu": 1}``."""
PREEMPTABLE = "volcano.sh/preemptable"
"""On a pod, PodGroup, Job or PriorityClass (annotation, or else label): ``"false"`` keeps other groups from evicting
its pods; default ``true``. A statement of the pod or its group takes precedence over that of its PriorityClass."""

# How near to one another pods are to be.
ALLOCATED_HYPERNODE = "volcano.sh/job-allocated-hypernode"
"""On a PodGroup with ``networkTopology``: the HyperNode that its pods are in. Written when they are placed; a gang
that is started again is tried there first."""
TOPOLOGY_KAI = "kai.scheduler/topology"
"""On pods for KAI without a PodGroup of their own: the Topology that the next two annotations refer to."""
TOPOLOGY_REQUIRED_KAI = "kai.scheduler/topology-required-placement"
"""On the same pods: the level in one domain of which all pods of the gang have to be."""
TOPOLOGY_PREFERRED_KAI = "kai.scheduler/topology-preferred-placement"
"""On the same pods: the level in one domain of which they are if possible."""
SEGMENT_SIZE_KAI = "kai.scheduler/segment-size"
"""On indexed pods of a gang: so many neighbours by index form a segment, which is placed together."""
SEGMENT_REQUIRED_KAI = "kai.scheduler/segment-topology-required-placement"
"""On the same pods: the level in one domain of which each segment has to be."""
SEGMENT_PREFERRED_KAI = "kai.scheduler/segment-topology-preferred-placement"
"""On the same pods: the level in one domain of which each segment is if possible."""
GROUP_NAME_KUEUE = "kueue.x-k8s.io/pod-group-name"
"""Label or annotation of Kueue on a pod: its plain pod group. With the next one all of them start together."""
GROUP_COUNT_KUEUE = "kueue.x-k8s.io/pod-group-total-count"
"""On the same pods: how many they are."""
GROUP_FAST_KUEUE = "kueue.x-k8s.io/pod-group-fast-admission"
"""``"true"`` on the same pods: they need not all be there before the first starts, and start one by one."""
GROUP_SERVING_KUEUE = "kueue.x-k8s.io/pod-group-serving"
"""``"true"`` on the same pods, as Kueue writes it for a StatefulSet or a LeaderWorkerSet, which may make the next pod
only when one is ready: they start one by one."""
PODSET_REQUIRED = "kueue.x-k8s.io/podset-required-topology"
"""On the pods of a gang: a label of nodes (a rack, ``nvidia.com/gpu.clique``); all pods are on nodes of one value."""
PODSET_PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
"""On the pods of a gang: a label of nodes; all pods are on nodes of one value of it if that is possible."""
PODSET_UNCONSTRAINED = "kueue.x-k8s.io/podset-unconstrained-topology"
"""On the pods of a gang: ``"true"`` says that they may be anywhere."""
PODSET_SLICE_REQUIRED = "kueue.x-k8s.io/podset-slice-required-topology"
"""On the pods of a gang: a label of nodes; each slice of them is on nodes of one value."""
PODSET_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
"""On the same pods: how many neighbours by index form a slice."""

# Pods of a Volcano Job (labels and annotations).
TASK_INDEX = "volcano.sh/task-index"
"""On a pod of a Volcano Job (label and annotation): its number within its task, from 0."""
TASK_SPEC = "volcano.sh/task-spec"
"""On a pod of a Volcano Job (label and annotation): the name of its task."""
JOB_NAME = "volcano.sh/job-name"
"""On a pod of a Volcano Job (label and annotation): the job's name."""
JOB_NAMESPACE = "volcano.sh/job-namespace"
"""Label on a pod of a Volcano Job: the job's namespace."""
JOB_VERSION = "volcano.sh/job-version"
"""On a pod of a Volcano Job and on its PodGroup: the job's version, raised whenever all its pods are replaced."""
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
"""On a pod of a Volcano Job: how often the job had been restarted when the pod was made."""
TEMPLATE_UID = "volcano.sh/template-uid"
"""On a pod of a Volcano Job: ``<job>-<task>``, the template that it was made from."""
PARTITION_ID = "volcano.sh/partition-id"
"""Label on a pod of a task with a ``partitionPolicy``: the number of its partition."""

# Parts of accelerator devices, and devices of a kind: annotations of a pod. What each means:
# docs/guides/share-a-gpu.md.
DEVICE_MEMORY = "windlass.dev/gpu-memory"
"""On a pod: this much memory of one device (``10Gi``), shared with other pods, or on a MIG slice of that size."""
DEVICE_COMPUTE = "windlass.dev/gpu-compute"
"""On a pod: this many percent of one device's compute (``30``), shared with other pods."""
DEVICE_COUNT = "windlass.dev/gpu-count"
"""On a pod with ``windlass.dev/gpu-memory`` or ``windlass.dev/gpu-compute``: of how many different devices; default
1."""
DEVICE_CONTAINER = "windlass.dev/gpu-container"
"""On a pod with ``windlass.dev/gpu-memory`` or ``…/gpu-compute``: the container that gets it; default the first."""
DEVICE_SHARING = "windlass.dev/gpu-sharing"
"""On a pod with ``windlass.dev/gpu-memory``: ``shares`` (no MIG slice), ``slices`` (nothing else), or ``any``."""
DEVICE_MODEL = "windlass.dev/gpu-model"
"""On a pod: its devices are of any of these models (``H100,A100-80G``: a part of the model's name, or words
of it, in any case)."""
DEVICE_MODEL_NOT = "windlass.dev/gpu-model-not"
"""On a pod: its devices are of none of these models."""
DEVICE_MIN_MEMORY = "windlass.dev/gpu-min-memory"
"""On a pod: its devices have at least this much memory in all (``40Gi``)."""
DEVICE_MIN_COMPUTE = "windlass.dev/gpu-min-capability"
"""On a pod: the least CUDA compute capability of its devices (``8.0``)."""
FRACTION_KAI = "gpu-fraction"
"""On a pod (KAI): the part of a device that it gets, ``0.5``; of its memory and its compute alike."""
MEMORY_KAI = "gpu-memory"
"""On a pod (KAI): MiB of one device's memory; instead of ``gpu-fraction``."""
FRACTION_COUNT_KAI = "gpu-fraction-num-devices"
"""On a pod (KAI): that part of each of so many different devices; default 1."""
FRACTION_CONTAINER_KAI = "gpu-fraction-container-name"
"""On a pod (KAI): the container that gets it; default the first."""
RECEIVED_KAI = "received-resource-type"
"""On a bound pod of KAI's queues: ``Fraction`` for a part of a device, ``Regular`` for whole ones."""
USE_TYPE_HAMI = "nvidia.com/use-gputype"
"""On a pod (Volcano vGPU, HAMi): its devices are of any of these models."""
NOT_TYPE_HAMI = "nvidia.com/nouse-gputype"
"""On a pod (Volcano vGPU, HAMi): its devices are of none of these models."""
USE_UUID_HAMI = "nvidia.com/use-gpuuuid"
"""On a pod (HAMi): its devices are among these, by UUID."""
NOT_UUID_HAMI = "nvidia.com/nouse-gpuuuid"
"""On a pod (HAMi): its devices are none of these; wins over the list of those to use."""
USE_UUID_VOLCANO = "volcano.sh/vgpu-use-gpuuuid"
"""On a pod (Volcano vGPU): its devices are among these, by UUID."""
NOT_UUID_VOLCANO = "volcano.sh/vgpu-nouse-gpuuuid"
"""On a pod (Volcano vGPU): its devices are none of these; wins over the list of those to use."""
VGPU_MODE_VOLCANO = "volcano.sh/vgpu-mode"
"""On a pod (Volcano vGPU): ``hami-core`` for a share of a device, ``mig`` for a slice; absent: either."""
VGPU_MODE_HAMI = "nvidia.com/vgpu-mode"
"""On a pod (HAMi): ``hami-core`` or ``mps`` for a share of a device, ``mig`` for a slice; absent: either."""
VGPU_SPREAD_VOLCANO = "volcano.sh/vgpu-podgroup-policy"
"""On a pod (Volcano vGPU): ``spread`` keeps two pods of one group off the same device."""
TASKS_TOGETHER = "volcano.sh/task-topology-affinity"
"""On a Job or PodGroup: roles that want to be on one node (Volcano's ``task-topology``), ``ps,worker;ps,chief``."""
TASKS_EXCLUSIVE = "volcano.sh/task-topology-anti-affinity"
"""On a Job or PodGroup: roles that want to be on different nodes, ``ps;worker,chief``; one role alone: its pods."""
TASKS_ORDER = "volcano.sh/task-topology-task-order"
"""On a Job or PodGroup: which roles are placed first, ``ps,worker,chief``."""
DEVICE_SHARING_LABEL = "windlass.dev/device-sharing-label"
"""On a pod with part of a device: labels seen by the other pods on it (``inference``), separated by commas."""
DEVICE_SHARING_EXCLUDE = "windlass.dev/device-sharing-exclude"
"""On a pod with part of a device: it is on no device with a pod of these roles (``training,batch``)."""
DEVICE_POLICY_HAMI = "hami.io/gpu-scheduler-policy"
"""On a pod (HAMi): ``binpack`` takes the fullest device that fits, ``spread`` the emptiest."""
ALLOCATED_HAMI = "hami.io/vgpu-devices-allocated"
"""On a bound pod (HAMi): its devices by UUID, init containers first; written with the binding, or by HAMi's
scheduler."""
REGISTER_HAMI = "hami.io/node-nvidia-register"
"""On a node: the devices that HAMi's device plug-in has registered, as JSON or, by older ones, as text."""
LOCK_HAMI = "hami.io/mutex.lock"
"""On a node of HAMi: the pod that the device plugin serves next, ``TIME,NAMESPACE,NAME``; the plugin removes it."""
VGPU_REGISTER_VOLCANO = "volcano.sh/node-vgpu-register"
"""On a node: its devices as Volcano's vGPU device plug-in registers them (UUID, slots, MiB, type, health, mode)."""
RESERVES = "windlass.dev/reserves-device"
"""On a pod in namespace ``windlass-reservations``: index of the device of its node that it reserves for the pods that
share it."""
VISIBLE_DEVICES = "windlass.dev/visible-devices"
"""On a bound pod that shares devices which a device plug-in hands out whole: which they are, for its containers'
``NVIDIA_VISIBLE_DEVICES``; written with the binding."""
GPU_GROUP_KAI = "runai-gpu-group"
"""Label of KAI on a pod that shares a device, and on the pod that holds the device for it: which device is meant."""
DEVICE_RESERVATION = "windlass.dev/device-reservation"
"""On the scheduler's pods if reservation pods hold shared devices: a change of the value restarts the scheduler."""
LEADER = "windlass.dev/leader"
"""Label on the pod of the scheduler that decides, while it does: the service of the bind guard selects it."""
VGPU_IDS_VOLCANO = "volcano.sh/vgpu-ids-new"
"""On a bound pod (Volcano vGPU): its devices by UUID, as the device plug-in reads them; written with the binding."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""On any object: the manifest that was applied last (JSON), as kubectl and ``windlass apply`` write it."""
MIRROR = "kubernetes.io/config.mirror"
"""On a pod that shows a process which the node started by itself: nothing schedules or evicts it, and deleting it only
makes the node create it again."""
PROCESS = "windlass.dev/process"
"""On a mirror pod of a box: the process of the control plane that it shows (``server``, ``control`` or ``node``)."""

FOR_PODS = (CHECKPOINT_PATH, CHECKPOINT_HOOK)
"""Annotations of a job that its pods get, unless their template has its own."""
OF_JOBS_ALONE = frozenset({LAST_APPLIED, JOB_RECORD, JOB_ATTEMPTS})
"""Annotations of a job that its PodGroup does not get."""
SCHEDULER_NAMES = ("windlass", "volcano", "kai-scheduler")
"""``schedulerName``s that Windlass serves everywhere; embedded mode adds ``default-scheduler``."""

FORMER_NAMES: Mapping[str, str] = {
    NODE_DEVICES: "windlass.dev/cards",
    EVICTION: "windlass.dev/evicting",
    PROVISIONING_FOR: "windlass.dev/asked-for",
    DEVICE_SHARING_LABEL: "windlass.dev/card-role",
    DEVICE_SHARING_EXCLUDE: "windlass.dev/card-avoids",
    LEADER: "windlass.dev/leads",
}
"""Former spelling of own names. This version reads both spellings, the next one only the new."""


def read(annotations: Mapping[str, str], name: str) -> str | None:
    """Return the value of ``name``, or else of its former spelling; ``None`` if both are absent."""
    value = annotations.get(name)
    return annotations.get(FORMER_NAMES[name]) if value is None else value


def both(name: str, value: _Value) -> dict[str, _Value]:
    """Return ``value`` under the new and the former spelling of ``name``.

    A process of the previous version, which may run in the same cluster during an upgrade,
    reads only the former spelling.
    """
    return {name: value, FORMER_NAMES[name]: value}
