"""A guest of the live faults whose pods somebody makes: Volcano Jobs, which Windlass' controllers carry out."""

from __future__ import annotations

from typing import Any

from base_load import pod
from extra_workloads import Guest, Stage

from windlass.api.resources import VOLCANO_JOBS

Json = dict[str, Any]


class Jobs(Guest):
    """Jobs that begin anew when they lose a pod, and have to end well whatever is done to them."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, "jobs")
        for number in range(2):
            name, members = f"{self.name}-{number}", stage.rng.randint(2, 5)
            self.minima[name] = members
            self.acts.append((stage.moment(), lambda n=name: self._submit(n)))  # type: ignore[misc]

    def _submit(self, name: str) -> None:
        made = pod(name, 0, 1)
        template = {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}
        job = {
            "metadata": {"name": name},
            "spec": {
                "minAvailable": self.minima[name],
                "schedulerName": "windlass",
                "maxRetry": 20,
                "policies": [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}],
                "tasks": [{"name": "rank", "replicas": self.minima[name], "template": template}],
            },
        }
        self.stage.client.make(VOLCANO_JOBS, job, self.stage.namespace)

    def problems(self) -> list[str]:
        found = self.stage.eyes.once("list", VOLCANO_JOBS, self.stage.namespace)
        if found is None:
            return ["nobody tells how the jobs stand"]
        stands = {one["metadata"]["name"]: _phase(one) for one in found.items}
        return [f"jobs stand {stands}"] if set(stands.values()) != {"Completed"} or len(stands) != 2 else []

    def clear(self) -> None:
        for number in range(2):
            self.stage.client.surely("delete", VOLCANO_JOBS, f"{self.name}-{number}", self.stage.namespace)


def _phase(job: Json) -> str:
    return ((job.get("status") or {}).get("state") or {}).get("phase", "")
