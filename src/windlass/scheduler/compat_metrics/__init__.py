"""Metrics under the names that other schedulers use.

Each module is one of the others: ``FAMILIES``, which the reference page is written from, ``LEFT_OUT`` with the reason
why, and ``tell``. What nobody here knows has no name here: a figure is never made up.
"""
