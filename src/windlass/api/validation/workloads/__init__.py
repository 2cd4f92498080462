"""Validation of Kubernetes' own workloads and Services."""
