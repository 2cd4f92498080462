"""Progress endpoint of a cluster (Kubeflow's KEP-2779), and the access of pods to it."""
