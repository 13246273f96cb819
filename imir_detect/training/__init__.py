"""Training of small models on a task."""
