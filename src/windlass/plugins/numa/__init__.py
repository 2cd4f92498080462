"""NUMA zones: what a kubelet's Topology Manager would do with a pod, foreseen."""
