"""Topology constraints: within which domain the members of a group must be placed.

A *topology* is an ordered list of levels, from coarse to fine. Each level is a label of
nodes. The nodes with one value of the label are a *domain* of the level. HyperNode tiers,
racks, NVLink islands and zones all have this form.
"""

from __future__ import annotations

from dataclasses import dataclass

HYPERNODE = "hypernode.windlass.dev/"
"""Prefix of labels that nodes have inside the engine only.

``tier-N``: the HyperNode of tier N that contains the node. ``path``: all of them, from
the lowest tier up, as ``1=leaf,2=spine``.
"""
HYPERNODE_PATH = HYPERNODE + "path"
NODE_NAME = "metadata.name"
"""Stands for the label of a level on which each node is a domain."""
HOSTNAME = "kubernetes.io/hostname"
"""Label of nodes on which each node is a domain, too."""
LACKS = "false"
"""Value of a label by which a node is in no domain, such as ``rdma.capable=false``."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a topology.

    ``label``: of nodes. Empty: all nodes are one domain. :data:`NODE_NAME`: each node is
    one. ``name``: name of the level for users.
    """

    label: str
    name: str = ""

    @property
    def shown(self) -> str:
        return self.name or self.label or "the whole cluster"


@dataclass(frozen=True, slots=True)
class TopologyNeed:
    """Topology constraint of a group or of a subgroup.

    * ``levels``: from coarse to fine. If ``nested``, the values of this level and of all
      coarser ones together identify a domain. Otherwise the value of this level does.
    * ``required``: index of the level in one domain of which all members must be; -1 for
      none.
    * ``preferred``: index of the level that is tried first, followed by the coarser ones
      up to ``required``. If that is -1, all coarser ones follow, and then the whole
      cluster. -1: only ``required`` is tried.
    * ``anchor``: name of a domain in which the group was. It is tried first among equal
      domains.
    """

    topology: str
    levels: tuple[Level, ...]
    required: int = -1
    preferred: int = -1
    nested: bool = True
    anchor: str = ""

    def tried(self) -> range:
        """Return the levels in the order in which they are tried, the finest first."""
        finest = max(self.preferred, self.required)
        return range(finest, max(self.required, 0) - 1, -1) if finest >= 0 else range(0)
