"""Normalisation of alias spellings that a server without Windlass' admission stored."""
