"""A tenant that is erased: nothing of it stays in this cell but that it was."""
