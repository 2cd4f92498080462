"""Where groups wait, and how much room would help them."""
