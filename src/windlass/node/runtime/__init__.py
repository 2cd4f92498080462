"""Processes of containers: runner, shim, container init, logs, system calls."""
