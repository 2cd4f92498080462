"""Translation between API objects and the engine: pure, without I/O.

:class:`~windlass.model.cluster.cluster_model.ClusterModel` takes typed views (``api.views``) and gives deltas;
:func:`~windlass.model.cluster.snapshot.from_objects` does the same for a plain dump. What an object says
wrongly becomes a ``Misconfigured`` explanation at its field, never an exception.
"""
