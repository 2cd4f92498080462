"""Why nobody is asked to go for a group, as far as policies say so outright."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.engine.groups.entries import GroupEntry, nominated
from windlass.engine.groups.next_step import whole_step
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.flavors import pinned_by
from windlass.spi.victims import Preemption, PreemptionDenied


def denials(plugins: PluginSet, actions: Iterable[str], group: GroupEntry, now: float) -> dict[str, str]:
    """Action → why the group may not claim room under its name. Empty for a group that does not wait for a
    step, or waits for room that is promised to it."""
    step, queue = group.step, group.queue
    if step is None or queue is None or group.group is None or nominated(group):
        return {}
    view = whole_step(group, step)
    request = pinned_by(step, view.request, queue.tree.flavors)
    found: dict[str, str] = {}
    for action in actions:
        preemption = Preemption(action, group.group, request, view.tasks, queue.path, step.extra, now)
        for plugin in plugins.claims:
            answer = plugin.claims(preemption)
            if isinstance(answer, PreemptionDenied):
                if answer.detail:
                    found[action] = answer.detail
                break
    return found
