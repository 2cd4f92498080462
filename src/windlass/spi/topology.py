"""How near to one another the members of a group have to be.

A *topology* is an ordered list of levels, coarse to fine; each level is a label of nodes, and the nodes of
one value of it are a *domain* of that level. What people call HyperNode tiers, racks, NVLink islands or
zones are all of that shape.
"""

from __future__ import annotations

from dataclasses import dataclass

HYPERNODE = "hypernode.windlass.dev/"
"""What labels begin with that nodes carry inside the engine alone: ``tier-N``, the HyperNode of tier N that the
node is in; and ``path``, all of them, from near to far, as ``1=leaf,2=spine``."""
HYPERNODE_PATH = HYPERNODE + "path"
NODE_NAME = "metadata.name"
"""In place of a level's label: every node is a domain of its own."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a topology. ``label``: of nodes; empty: all nodes are one domain; :data:`NODE_NAME`: each is one.
    ``name``: what people call the level."""

    label: str
    name: str = ""

    @property
    def shown(self) -> str:
        return self.name or self.label or "the whole cluster"


@dataclass(frozen=True, slots=True)
class TopologyNeed:
    """What a group, or a part of one, asks of a topology.

    * ``levels``: coarse to fine. With ``nested`` a domain is told by its values of this level and of all
      coarser ones together; without, by that of this level alone.
    * ``required``: the number of the level in one domain of which all members have to be; -1: of none.
    * ``preferred``: the number of the level that is tried first; then come the coarser ones up to
      ``required``, or all of them and at last the whole cluster. -1: only ``required`` is tried.
    * ``anchor``: the name of a domain that the group was in: tried first among its equals.
    """

    topology: str
    levels: tuple[Level, ...]
    required: int = -1
    preferred: int = -1
    nested: bool = True
    anchor: str = ""

    def tried(self) -> range:
        """The levels in the order in which they are tried: the tightest first."""
        finest = max(self.preferred, self.required)
        return range(finest, max(self.required, 0) - 1, -1) if finest >= 0 else range(0)
