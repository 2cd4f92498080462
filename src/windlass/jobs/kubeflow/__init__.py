"""Job kinds of ``kubeflow.org/v1`` as in the training operator 1.9, read into job definitions."""
