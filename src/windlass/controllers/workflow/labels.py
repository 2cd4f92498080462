"""Labels and annotations of Argo on workflows and their pods, and those of Windlass."""

from __future__ import annotations

WORKFLOW = "workflows.argoproj.io/workflow"
COMPLETED = "workflows.argoproj.io/completed"
PHASE = "workflows.argoproj.io/phase"
NODE_ID = "workflows.argoproj.io/node-id"
NODE_NAME = "workflows.argoproj.io/node-name"
CRON_WORKFLOW = "workflows.argoproj.io/cron-workflow"
SCHEDULED_TIME = "workflows.argoproj.io/scheduled-time"
SCRIPT = "workflows.windlass.dev/script"
"""Annotation of a pod with the source of its script."""
COMMAND = "workflows.windlass.dev/command"
"""Annotation of a workflow: request of the command line, as JSON."""
MAIN = "main"
"""Container of a pod that does the work."""
OUTPUTS = "workflows.windlass.dev/outputs"
"""Annotation of a pod with outputs: their declaration, as JSON."""
