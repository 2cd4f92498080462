"""The service round the engine: informers feed its deltas, its decisions are committed."""
