"""Presentation of objects: tables, discovery, OpenAPI, responses."""
