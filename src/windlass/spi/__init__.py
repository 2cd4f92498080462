"""The stable extension surface: Protocols and frozen types that a plugin may import."""
