"""The ``windlass`` command line, one module per command."""
