"""DaemonSet: one pod on each node that fits."""
