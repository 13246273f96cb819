"""Stage 2: selections, paths and the frame they make."""
