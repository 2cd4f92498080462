"""The service around the engine: informers feed it, its decisions are carried out and shown."""
