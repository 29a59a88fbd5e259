"""Who is being erased just now. Billing's settings name `is_going`."""

from __future__ import annotations

import uuid

from controlplane.custody.models import Erasure, ErasureState


def is_going(tenant_id: uuid.UUID) -> bool:
    """Whether a tenant is being erased, so that nothing of it may be written down anywhere else."""
    return Erasure.objects.filter(tenant_id=tenant_id, state=ErasureState.RUNNING).exists()
