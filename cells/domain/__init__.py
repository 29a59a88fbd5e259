"""Pure rules of the data plane: no I/O, no clock, no randomness of its own."""
