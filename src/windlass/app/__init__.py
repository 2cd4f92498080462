"""The composition root: makes the processes out of the rooms and supervises them, nothing else.

``python -m windlass.app up`` is the supervisor. It binds the listening sockets, starts three processes
(``server``, ``control``, ``node``), hands them what they need, and starts them again when they die.
"""
