"""A region is cut off on purpose, for a while, and what became of it is counted."""
