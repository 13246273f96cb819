"""Closed forms and exact checks of what is known about how circuits are learned."""
