"""Names and defaults of Ray's kinds (``ray.io/v1``), as in KubeRay 1.5."""

from __future__ import annotations

CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
IDENTIFIER = "ray.io/identifier"
IS_RAY_NODE = "ray.io/is-ray-node"
ORIGINATED_FROM = "ray.io/originated-from-cr-name"
ORIGINATED_KIND = "ray.io/originated-from-crd"
OVERWRITE_COMMAND = "ray.io/overwrite-container-cmd"
SUBMISSION_ID = "ray.io/ray-job-submission-id"
HEAD, WORKER = "head", "worker"
HEAD_GROUP = "headgroup"
AUTOSCALER = "autoscaler"
"""Name of the container with Ray's autoscaler."""
SERVE_LABEL = "ray.io/serve"
"""Label of pods that may get requests of a RayService: ``true`` or ``false``."""
SPEC_HASH = "ray.io/hash-without-replicas-and-workers-to-delete"
"""Annotation of a RayService's clusters: hash of the cluster's spec, without what scaling changes."""
GROUP_COUNT = "ray.io/num-worker-groups"
INITIALIZING_TIMEOUT = "ray.io/initializing-timeout"
"""Annotation of a RayService: how long (``5m``, or seconds) it may take until it serves."""
CRON_JOB_NAME = "ray.io/cronjob-name"
CRON_JOB_TIME = "ray.io/cronjob-scheduled-timestamp"
MULTIKUEUE = "kueue.x-k8s.io/multikueue"
OPERATOR = "ray.io/kuberay-operator"
"""Value of ``managedBy`` for KubeRay, or for Windlass in its place."""
NEW_CLUSTER, NO_UPGRADE, INCREMENTAL_UPGRADE = "NewCluster", "None", "NewClusterWithIncrementalUpgrade"

GCS_PORT, DASHBOARD_PORT, CLIENT_PORT, METRICS_PORT, SERVE_PORT = 6379, 8265, 10001, 8080, 8000
AGENT_PORT = 52365
HEAD_PORTS = {
    "gcs-server": GCS_PORT,
    "dashboard": DASHBOARD_PORT,
    "client": CLIENT_PORT,
    "metrics": METRICS_PORT,
    "serve": SERVE_PORT,
}
"""Ports of the head's Service where the head's container declares none."""

K8S_JOB_MODE, HTTP_MODE, INTERACTIVE_MODE, SIDECAR_MODE = (
    "K8sJobMode",
    "HTTPMode",
    "InteractiveMode",
    "SidecarMode",
)


def head_service_name(cluster: str) -> str:
    """Return the name of the Service of the head."""
    return f"{cluster}-head-svc"[-63:].lstrip("-")


def serve_service_name(owner: str) -> str:
    """Return the name of the Service for requests of a RayService or RayCluster."""
    return f"{owner}-serve-svc"


def is_serving_port(name: str) -> bool:
    """Return whether a port of the head takes requests."""
    return name == "serve" or name.startswith("serve-")
