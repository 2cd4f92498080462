"""NUMA alignment: prediction of the decisions of a kubelet's Topology Manager."""
