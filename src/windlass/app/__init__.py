"""Composition root: builds the processes from the packages and supervises them.

``python -m windlass.app up`` is the supervisor. It binds the listening sockets, starts
three processes (``server``, ``control``, ``node``), passes them their resources, and
restarts them when they die.
"""
