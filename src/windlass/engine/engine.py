"""The engine as others use it: the scheduler, and its state as a document."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.engine.core import Core
from windlass.engine.dump import dump, load_into, read


class Engine(Core):
    """The pure scheduler: ``apply`` deltas, ``cycle``, ``explain``; ``dump`` and ``load``.

    ``plugins``: policies in order of precedence, fresh instances for each engine
    (``windlass.plugins.defaults.default_plugins()``). Not thread-safe.
    """

    def dump(self) -> bytes:
        """The state between two calls, as JSON."""
        return dump(self)

    @staticmethod
    def load(data: bytes, plugins: Sequence[object]) -> Engine:
        """An engine in a dumped state, which decides and reports as the original would.

        ``plugins``: fresh instances of the policies that it ran with. Raises
        :class:`~windlass.engine.dump.DumpError` if the bytes are not a dump of this format.
        """
        document = read(data)
        engine = Engine(document.config, plugins)
        load_into(engine, document)
        return engine
