"""Run-time models that learn online from completed work. They do no I/O and read no clock.

Scheduler and simulator use :class:`~windlass.predict.model.RunTimeModel`: ``observe``
completed runs, ``predict`` new ones. :class:`~windlass.predict.history.History` is the
model of the product.
"""
