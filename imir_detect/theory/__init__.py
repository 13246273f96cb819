"""The theory of the paper as functions that predict, measure and give a tidy table."""
