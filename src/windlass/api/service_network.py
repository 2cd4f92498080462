"""Addresses of Services on the embedded server."""

from __future__ import annotations

SERVICE_NETWORK = "10.96.0.0/16"
"""Network from which Services get their cluster addresses."""
KUBERNETES_SERVICE = "default/kubernetes"
KUBERNETES_ADDRESS = "10.96.0.1"
"""Cluster address of the Service ``kubernetes``, the API server itself."""
API_NAMESPACE, API_SERVICE, API_PORT = "kube-system", "windlass-api", 443
"""Service by which pods reach the embedded server."""
API_HOSTS = (
    f"{API_SERVICE}.{API_NAMESPACE}",
    f"{API_SERVICE}.{API_NAMESPACE}.svc",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
"""Names of both Services in the server's certificate."""
