"""What Clockhouse holds of a tenant, handed over whole."""
