"""Who owns a cell that has sites in several regions, and until when: leases that fence themselves."""
