"""Telling people that a target is broken, or works again."""

from __future__ import annotations

from collections.abc import Callable

from cells.limits import TargetKey, TargetShare
from cells.observability.logs import logger
from cells.ports import Fence, NotOwner, Retryable, Store

log = logger(__name__)

BROKEN, RECOVERED = "target.broken", "target.recovered"
_KEPT = 1000


class LimitEvents:
    """Keeps what happened until the store has taken it."""

    def __init__(self, store: Store, host_id: Callable[[], int]):
        self._store = store
        self._host_id = host_id
        self._untold: list[tuple[TargetKey, str, dict[str, object]]] = []

    def happened(self, key: TargetKey, share: TargetShare) -> None:
        """The breaker of a target moved."""
        told: dict[str, object] = {"limit": int(share.limit), "parked": share.parked}
        if share.broke:
            told["probed_at_ms"] = share.until_ms
        self._untold.append((key, BROKEN if share.broke else RECOVERED, told))
        del self._untold[:-_KEPT]

    async def tell(self) -> None:
        """Write what was not told yet; what cannot be written now is tried again."""
        while self._untold:
            (tenant_id, target_id), type_, told = self._untold[0]
            try:
                placement = await self._store.get_tenant(tenant_id)
                if placement is not None:
                    await self._store.add_event(
                        Fence(tenant_id=tenant_id, epoch=placement.ownership_epoch),
                        type_=type_,
                        subject=target_id,
                        actor=None,
                        data=told,
                        host_id=self._host_id(),
                    )
            except NotOwner:
                log.debug("a tenant that is not here needs not hear of its target", target=target_id)
            except Retryable as fault:
                log.debug("an event waits for the store", type=type_, fault=str(fault)[:200])
                return
            del self._untold[0]
