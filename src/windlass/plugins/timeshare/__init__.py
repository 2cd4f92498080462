"""Policies of time-sharing: who of the groups that opted in runs now (:mod:`windlass.spi.timeshare`).

:mod:`~windlass.plugins.timeshare.gittins` is what runs when nothing is configured: it needs to know no run
times. :mod:`~windlass.plugins.timeshare.classic` holds what it is compared with.
"""
