"""What starts and signals ask of registered definitions, which never change."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from cells.domain.workflow.definition import WaitForSignal
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.workflow_ports import DefinitionRow, WorkflowStore

_KEPT = 20_000
_PAGE = 100


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
        return None if row is None else self._keep(tenant_id, row)

    async def ever_waits_for(self, tenant_id: uuid.UUID, name: str, signal: str) -> bool:
        """Whether a step of any version waits for a signal: executions may be migrated to each. True, too,
        where one cannot be read."""
        after: tuple[str, int] | None = None
        while rows := await self._store.list_definitions(tenant_id, name=name, after=after, limit=_PAGE):
            for row in rows:
                signals = self._keep(tenant_id, row).signals
                if signals is None or signal in signals:
                    return True
            after = rows[-1].name, rows[-1].version
        return False

    def _keep(self, tenant_id: uuid.UUID, row: DefinitionRow) -> Known:
        key = tenant_id, row.name, row.version
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = _known(row.name, row.version, row.source)
        return self._known[key]


def _known(name: str, version: int, source: str) -> Known:
    try:
        definition = parse_definition(source, name=name, version=version)
    except DefinitionError:
        # It was registered by code that read it.
        return Known(version, "HOME_ASYNC", None)
    signals = frozenset(step.do.name for step in definition.walk() if isinstance(step.do, WaitForSignal))
    return Known(version, definition.region_policy, signals)
