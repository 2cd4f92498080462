"""Jobs as the flags of a command describe them."""
