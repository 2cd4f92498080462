"""Pictures and pages of simulations: outcomes are reduced to a few thousand numbers, drawn, and put on one page."""
