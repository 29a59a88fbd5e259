"""Who may act: one row per cell, one per tenant, and the counter epochs come from."""

from controlplane.ownership.store import (
    CellOwnership,
    OwnershipStore,
    PromotionRecord,
    Superseded,
    TenantOwnership,
)

__all__ = ["CellOwnership", "OwnershipStore", "PromotionRecord", "Superseded", "TenantOwnership"]
