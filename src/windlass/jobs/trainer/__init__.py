"""Kubeflow Trainer: from a TrainJob and its runtime to a JobSet. Pure."""
