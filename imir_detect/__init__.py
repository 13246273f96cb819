"""Read from a transformer's weights which circuits it holds."""
