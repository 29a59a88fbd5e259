"""Who may act: one row per cell, one per tenant, and the counter epochs come from."""

from controlplane.ownership.store import CellOwnership, OwnershipStore, Superseded, TenantOwnership

__all__ = ["CellOwnership", "OwnershipStore", "Superseded", "TenantOwnership"]
