"""Execution of the nodes of a workflow: steps, tasks, loops, attempts, hooks and leaves. Pure."""
