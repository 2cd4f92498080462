"""Recommenders of replica counts: each returns a number and its arithmetic in words.

Everything here is pure but :mod:`windlass.scaling.plugin`, which runs a class that a user
wrote. Reading metrics and changing objects is the work of the controllers.
"""
