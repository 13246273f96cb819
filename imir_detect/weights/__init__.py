"""Stage 1: a TransformerLens model as plain tensors; the only stage that knows the library."""
