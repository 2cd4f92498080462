"""What is said to people of a history that was made a trace: how much was recorded, and what was left out."""

from __future__ import annotations

from windlass.cli.text import plural
from windlass.kits.timestamps import rfc3339
from windlass.sim.traces.recording import Recording


def words(recording: Recording, unfinished: bool = False) -> list[str]:
    """Of the whole. ``unfinished``: what has not ended was asked for, too."""
    said = [plural(len(recording.jobs), "job")]
    if recording.jobs:
        said[0] += f" since {rfc3339(recording.first)}"
    if recording.unfinished:
        said.append(f"{recording.unfinished} of them not ended: with the run time that is expected")
    return said + doubts(recording, unfinished)


def doubts(recording: Recording, unfinished: bool = False) -> list[str]:
    """What may be wrong with it and what is not in it; nothing for a history that is all there."""
    said: list[str] = []
    if recording.made_anew:
        said.append(
            f"{recording.made_anew} of them with pods younger than their group, as after a suspension: of earlier pods"
            " nothing is known, so their run times may be too short"
        )
    unended = ((recording.running, "run"), (recording.waiting, "wait"))
    left = [f"{n} that {verb}{'s' if n == 1 else ''}" for n, verb in unended if n]
    if left:
        one = recording.running + recording.waiting == 1
        why = "nobody knows how long" if unfinished else f"{'it has' if one else 'they have'} not ended"
        said.append(f"left out: {' and '.join(left)}, since {why}")
    if recording.never_ran:
        said.append(f"left out: {recording.never_ran} that ended without having run")
    if recording.earlier:
        said.append(f"left out: {recording.earlier} that came earlier")
    return said
