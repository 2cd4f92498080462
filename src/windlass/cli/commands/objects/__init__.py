"""Commands for objects of the API."""
