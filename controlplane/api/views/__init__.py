"""Views, one file per resource."""
