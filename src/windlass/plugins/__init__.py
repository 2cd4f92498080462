"""Built-in policies; they use ``spi`` exactly as third-party plugins do."""
