"""Metrics under the names of other schedulers.

Each module stands for one of them. It has ``FAMILIES``, from which the reference page
is written, ``LEFT_OUT`` with the reasons why, and ``export``. A metric of which nothing
is known here is left out: no value is made up.
"""
