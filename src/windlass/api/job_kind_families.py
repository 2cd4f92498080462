"""Names of the families of job kinds that Windlass operates where their own operator does not run.

The folder ``crds`` has one folder for each; ``controllers.job_kinds.families`` says what belongs to it.
"""

from __future__ import annotations

JOB_KIND_FAMILIES = ("kubeflow", "mpi", "volcano", "jobset", "trainer", "ray", "leaderworkerset")
