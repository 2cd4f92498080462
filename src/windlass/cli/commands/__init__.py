"""One module per command, each with ``command``. ``cli.main`` imports them on use."""
