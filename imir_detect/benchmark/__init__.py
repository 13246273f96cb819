"""Circuit-discovery methods scored on models whose circuits are known."""
