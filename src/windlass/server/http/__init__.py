"""HTTP: ASGI application, uvicorn protocol, listeners."""
