"""Sandboxes of pods: namespaces, pod network, egress, hosts files."""
