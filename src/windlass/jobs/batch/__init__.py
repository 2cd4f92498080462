"""``batch/v1`` Jobs with the semantics of Kubernetes 1.36. Pure."""
