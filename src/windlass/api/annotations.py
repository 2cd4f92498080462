"""Labels and annotations that Windlass reads or writes, by their wire names."""

from __future__ import annotations

# Windlass' own.
DEVICES = "windlass.dev/devices"
"""On a bound pod: the device indices on its node, ``"0,3"``; written with the binding."""
EXPLANATION = "windlass.dev/explanation"
"""On a waiting PodGroup (or a pod without one): the Explanation record as JSON."""
SIMULATED = "windlass.dev/simulated"
"""Label on a node without a machine behind it: ``"true"``; its pods run for a declared time."""
RUN_SECONDS = "windlass.dev/run-seconds"
"""On a pod for a simulated node: how long it runs; absent means until deleted."""
EXIT_CODE = "windlass.dev/exit-code"
"""On a pod for a simulated node: the exit code after that time; default 0."""
PLACEHOLDER = "windlass.dev/placeholder"
"""On a pod: the containers that ran a placeholder because nothing said what to run."""

HOST_IMAGE = "windlass.dev/host"
"""The image of a container that is meant to run in this machine's own environment, as ``windlass run`` asks."""

# Groups and queues, of Volcano and KAI.
GROUP_NAME = "scheduling.k8s.io/group-name"
GROUP_NAME_VOLCANO = "scheduling.volcano.sh/group-name"
QUEUE_NAME_VOLCANO = "scheduling.volcano.sh/queue-name"
QUEUE_NAME_LABEL = "volcano.sh/queue-name"
QUEUE_NAME_KAI = "kai.scheduler/queue"
PREEMPTABLE = "volcano.sh/preemptable"

# Pods of a Volcano Job (labels and annotations).
TASK_INDEX = "volcano.sh/task-index"
TASK_SPEC = "volcano.sh/task-spec"
JOB_NAME = "volcano.sh/job-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
JOB_VERSION = "volcano.sh/job-version"
JOB_RETRY_COUNT = "volcano.sh/job-retry-count"
TEMPLATE_UID = "volcano.sh/template-uid"
PARTITION_ID = "volcano.sh/partition-id"

SCHEDULER_NAMES = ("windlass", "volcano", "kai-scheduler")
"""``schedulerName``s that Windlass serves everywhere; embedded mode adds ``default-scheduler``."""
