"""The Kubernetes API of the embedded control plane."""
