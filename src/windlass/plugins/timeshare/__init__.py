"""Time-sharing policies: the order in which groups that opted in run
(:mod:`windlass.spi.timeshare`).

:mod:`~windlass.plugins.timeshare.gittins` is the default: it needs no known run times.
:mod:`~windlass.plugins.timeshare.classic` holds the policies that it is compared with.
"""
