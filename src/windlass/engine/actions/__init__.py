"""The actions of a cycle, one file each. See :mod:`windlass.engine.actions.context`."""
