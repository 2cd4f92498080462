"""What a scheduler tells under the names that boards and alerts made for others look for.

Each module is one of the others: ``FAMILIES``, which the reference page is written from, ``LEFT_OUT`` with the reason
why, and ``tell``. What nobody here knows has no name here: a figure is never made up.
"""
