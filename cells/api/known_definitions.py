"""What starts and signals ask of registered definitions, which never change."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from cells.domain.workflow.definition import WaitForSignal
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.workflow_ports import WorkflowStore

_KEPT = 20_000


class Known(NamedTuple):
    """Of one version. `signals` is None where this code cannot read it."""

    version: int
    region_policy: str
    signals: frozenset[str] | None


class KnownDefinitions:
    """Versions that were asked for, kept in memory."""

    def __init__(self, store: WorkflowStore):
        self._store = store
        self._known: dict[tuple[uuid.UUID, str, int], Known] = {}

    async def find(self, tenant_id: uuid.UUID, name: str, version: int | None) -> Known | None:
        """A tenant's version, or its newest; None where there is none."""
        if version is not None and (known := self._known.get((tenant_id, name, version))) is not None:
            return known
        row = await self._store.get_definition(tenant_id, name, version)
        if row is None:
            return None
        key = tenant_id, name, row.version
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = _known(name, row.version, row.source)
        return self._known[key]


def _known(name: str, version: int, source: str) -> Known:
    try:
        definition = parse_definition(source, name=name, version=version)
    except DefinitionError:
        # It was registered by code that read it.
        return Known(version, "HOME_ASYNC", None)
    signals = frozenset(step.do.name for step in definition.walk() if isinstance(step.do, WaitForSignal))
    return Known(version, definition.region_policy, signals)
