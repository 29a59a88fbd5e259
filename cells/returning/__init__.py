"""A lost region came back: what its people had decided there is done again, once."""
