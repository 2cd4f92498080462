"""Translation between API objects and the engine's nouns."""
