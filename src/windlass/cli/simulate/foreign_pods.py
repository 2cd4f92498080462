"""Pods of other schedulers that hold cards in a cluster played forward: nobody plays them, so they never end."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.cli.text import plural
from windlass.sim.whatif.play_forward import RUNS, ForwardState
from windlass.spi.objects import Task
from windlass.spi.quantities import is_device


@dataclass(frozen=True, slots=True)
class ForeignPods:
    """``gone``: how many of ``pods`` are on nodes that a change takes away, and in nobody's way then."""

    pods: int
    gpus: float
    gone: int

    def words(self) -> str:
        """For people; empty where there are none."""
        if not self.pods:
            return ""
        said = f"{plural(self.pods, 'pod')} of other schedulers hold{'s' if self.pods == 1 else ''} "
        said += f"{self.gpus:g} GPU{'' if self.gpus == 1 else 's'} and never end{'s' if self.pods == 1 else ''} here"
        if self.gone == 1:
            said += "; 1 of them goes with its node, and comes nowhere else"
        elif self.gone:
            said += f"; {self.gone} of them go with their nodes, and come nowhere else"
        return said + "\n"


def foreign_pods(before: ForwardState, after: ForwardState) -> ForeignPods:
    """Those of ``before`` that have cards and no group."""
    found = {task.key: cards for task in before.tasks.values() if (cards := _cards(before, task))}
    gone = sum(1 for key in found if key not in after.tasks)
    return ForeignPods(len(found), sum(found.values()), gone)


def _cards(state: ForwardState, task: Task) -> float:
    if task.state not in RUNS or task.group in state.groups:
        return 0.0
    return sum(units for name, units in task.needs.request if is_device(name)) / 1000
