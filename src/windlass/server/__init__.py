"""The Kubernetes wire of the embedded control plane."""
