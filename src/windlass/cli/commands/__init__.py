"""One file per command; each offers ``command``. Imported on use by ``cli.main``."""
