"""HTTP: ASGI application, listeners."""
