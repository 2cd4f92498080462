"""Reconciler of the job kinds of ``kubeflow.org/v1``."""
