"""Cells with sites in several regions: who keeps a site, and how a cell is taken over."""
