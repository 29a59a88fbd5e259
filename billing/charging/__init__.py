"""What we charge: price books and usage in, invoice lines out. Pure."""
