"""The nodes as columns, and views of them."""
