"""Run-time models, learned online from work that has ended. Pure: no I/O, no clock.

:class:`~windlass.predict.model.RunTimeModel` is what the scheduler and the simulator talk to: ``observe`` what
ran, ``predict`` what comes. :class:`~windlass.predict.history.History` is the model of the product.
"""
