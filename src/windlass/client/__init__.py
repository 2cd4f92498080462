"""One client for the embedded and the remote wire."""
