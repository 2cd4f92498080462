"""Phases and types of nodes, in Argo's words."""

from __future__ import annotations

PENDING = "Pending"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
SKIPPED = "Skipped"
FAILED = "Failed"
ERROR = "Error"
OMITTED = "Omitted"

FULFILLED = frozenset({SUCCEEDED, SKIPPED, FAILED, ERROR, OMITTED})
"""Phases of a node that nothing more happens to."""
COMPLETED = frozenset({SUCCEEDED, FAILED, ERROR})
"""Phases of a node that ran to its end."""
UNSUCCESSFUL = frozenset({FAILED, ERROR})

POD = "Pod"
STEPS = "Steps"
STEP_GROUP = "StepGroup"
DAG = "DAG"
TASK_GROUP = "TaskGroup"
RETRY = "Retry"
SKIPPED_NODE = "Skipped"
SUSPEND = "Suspend"

STOP = "Stop"
TERMINATE = "Terminate"
