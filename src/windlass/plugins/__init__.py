"""The built-in policies, each through ``spi`` exactly as a third party's would be."""
