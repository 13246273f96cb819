"""Drawings of results: data first, then a picture of that same data."""
