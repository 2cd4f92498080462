"""What is wrong with the tree of queues: no webhook of a real cluster keeps anybody from deleting a queue in which
work runs, or one that has queues below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from windlass.cli.queues import Share, above
from windlass.cli.words import plural


def gaps(shares: Sequence[Share], nowhere: Mapping[str, Share]) -> Iterator[str]:
    """A sentence for each. ``nowhere``: what is held and waits in queues that do not exist, by their names."""
    known = {share.key: share for share in shares}
    for share in shares:
        if share.parent and share.parent not in known:
            yield (
                f"queue {share.name}: the queue above it, {share.parent_name}, does not exist; nothing new starts in "
                f"it: windlass queue create {share.parent_name}"
            )
        elif any(one is share for one in above(share, known)):
            yield f"queue {share.name}: the queue above it, {share.parent_name}, is below it as well"
    for name, share in sorted(nowhere.items()):
        runs = (
            f"running {plural(share.running, 'job')} with {share.gpus('allocated')} GPUs"
            if share.running
            else ""
        )
        waits = f"waiting {plural(share.pending, 'job')}" if share.pending else ""
        held = ", ".join(filter(None, (runs, waits)))
        yield f"queue {name} does not exist; jobs name it ({held}): windlass queue create {name}"
