"""Groups, tasks, sub-groups, next tasks, and the entries of queues and pending classes.

Groups, queues and pending classes refer to one another, so they are in one package.
Packages below see a task only as :class:`~windlass.engine.nodes.table.RowTask`.
"""
