"""Output formats: JSON, YAML, JSONPath, server tables, progress."""
