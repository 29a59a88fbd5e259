"""The local stores of a cell's sites, beside the store that is replicated."""
