"""Reasons of plugins that deny a group any eviction."""

from __future__ import annotations

from collections.abc import Iterable

from windlass.engine.groups.entries import GroupEntry, nominated
from windlass.engine.groups.next_step import whole_step_view
from windlass.engine.plugin_set import PluginSet
from windlass.engine.queues.flavors import with_required_flavors
from windlass.spi.victims import Preemption, PreemptionDenied


def denials(plugins: PluginSet, actions: Iterable[str], group: GroupEntry, now: float) -> dict[str, str]:
    """Return action → reason why the group may not evict in its name.

    Empty for a group that does not wait, or waits for nominated capacity only.
    """
    step, queue = group.step, group.queue
    if step is None or queue is None or group.group is None or nominated(group):
        return {}
    view = whole_step_view(group, step)
    request = with_required_flavors(step, view.request, queue.tree.flavors)
    found: dict[str, str] = {}
    for action in actions:
        preemption = Preemption(action, group.group, request, view.tasks, queue.path, step.extra, now)
        for plugin in plugins.preemption_policies:
            answer = plugin.preemption_terms(preemption)
            if isinstance(answer, PreemptionDenied):
                if answer.detail:
                    found[action] = answer.detail
                break
    return found
