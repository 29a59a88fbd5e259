"""Decides for executions that are locked, and remembers what it folded: a cache, never the truth."""

from __future__ import annotations

import traceback
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cells.domain.workflow.definition import Definition, StartWorkflow
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution
from cells.domain.workflow.folding import fold
from cells.domain.workflow.heavy import Outcome, Work
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.observability.logs import logger
from cells.workflow_ports import Taken, Turn, WorkflowRow
from cells.workflows.calculators import Calculators
from cells.workflows.turning import TURN_LIMIT, Turning

log = logger(__name__)

#: Executions that are kept folded, and the memory they may take (bytes).
KEPT_EXECUTIONS = 20_000
KEPT_BYTES = 40 << 20
#: What a folded execution takes: itself, and so many times the bytes of its history (as measured).
_EACH, _PER_BYTE = 1_600, 5
#: Events that one round decides; behind those, the rest of its executions decide so many at least.
ROUND_EVENTS, _LEAST_EVENTS = 20_000, 20
#: What cannot be decided or written is looked at again after so long, then after twice that, and so on.
PUT_OFF_MS, PUT_OFF_MOST_MS = 60_000, 900_000
#: Of what went wrong, this much is said where: without the batch that it went wrong in.
_FRAMES = 4
_Key = tuple[int, int]
_BEGAN = (EventType.ACTIVITY_SCHEDULED, EventType.CHILD_STARTED)


@dataclass(slots=True)
class _Folded:
    next_seq: int
    execution: Execution
    orders: dict[int, str]  # steps by the sequence of the event that began them


@dataclass(frozen=True, slots=True)
class _Known:
    """A registered version. `definition` is None where this code cannot read it."""

    definition: Definition | None
    version: int
    waits_newest: tuple[str, ...]  # children of which it starts the newest version
    waits_fixed: tuple[tuple[str, int], ...]


def _memory(execution: Execution) -> int:
    """What it takes when it is kept (bytes)."""
    return _EACH + _PER_BYTE * execution.bytes


class CachedPlanner:
    """`workflow_ports.Planner`. Belongs to one engine: nobody else may use it at the same time. Without
    calculators heavy values are made in here, as far as they may be."""

    def __init__(self, calculators: Calculators | None = None) -> None:
        self._calculators = calculators
        self._folded: OrderedDict[_Key, _Folded] = OrderedDict()
        self._bytes = 0
        self._definitions: dict[tuple[int, str, int], _Known] = {}
        self._newest: dict[tuple[int, str], int] = {}
        self._absent: set[tuple[int, str, int]] = set()
        self._left = ROUND_EVENTS
        self._put_off: dict[_Key, tuple[int, int]] = {}  # for how long, until when (ms)
        #: Histories read, executions put off.
        self.misses = self.put_offs = 0

    def begin(self) -> None:
        """A new round: what was the newest version, or missing, may be so no longer."""
        self._newest.clear()
        self._absent.clear()
        self._left = ROUND_EVENTS
        if len(self._definitions) > 5_000:
            self._definitions.clear()
        if len(self._put_off) > KEPT_EXECUTIONS:
            self._put_off.clear()

    def knows(self, row: WorkflowRow) -> bool:
        """See `workflow_ports.Planner.knows`."""
        found = self._folded.get((row.tenant_id.int, row.run_id.int))
        return found is not None and found.next_seq == row.next_seq

    def wanted(self, taken: Taken) -> Sequence[tuple[str, int]]:
        """See `workflow_ports.Planner.wanted`."""
        tenant, row = taken.row.tenant_id.int, taken.row
        own = self._definitions.get((tenant, row.definition, row.version))
        if own is None:
            return self._lacking(tenant, [(row.definition, row.version)])
        children = [*own.waits_fixed, *((name, 0) for name in own.waits_newest)]
        return self._lacking(tenant, children) if children else ()

    def _lacking(self, tenant: int, names: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
        return [
            (name, version)
            for name, version in names
            if (tenant, name, version) not in self._absent
            and ((tenant, name) not in self._newest if version == 0 else True)
            and (tenant, name, version) not in self._definitions
        ]

    def learn(self, tenant_id: uuid.UUID, name: str, asked: int, version: int, source: str) -> None:
        """See `workflow_ports.Planner.learn`."""
        tenant = tenant_id.int
        if version == 0:
            self._absent.add((tenant, name, asked))
            return
        if asked == 0:
            self._newest[tenant, name] = version
        self._definitions[tenant, name, version] = _known(name, version, source)

    def remember(self, row: WorkflowRow, events: Sequence[Event]) -> None:
        """See `workflow_ports.Planner.remember`."""
        self.misses += 1
        execution = fold(events)
        orders = {e.seq: e.data["step"] for e in events if e.type in _BEGAN}
        self._keep((row.tenant_id.int, row.run_id.int), _Folded(row.next_seq, execution, orders))

    def plan(self, taken: Taken) -> Turn | None:
        """See `workflow_ports.Planner.plan`."""
        row = taken.row
        key = (row.tenant_id.int, row.run_id.int)
        known = self._definitions.get((key[0], row.definition, row.version))
        folded = self._folded.get(key)
        if folded is None:
            raise LookupError(f"no history of {row.run_id}")
        if known is None or known.definition is None:
            log.error("a workflow cannot be decided", workflow=row.workflow_id, definition=row.definition)
            return self._later(taken)
        before = _memory(folded.execution)
        self._folded.move_to_end(key)
        turning = Turning(
            taken,
            folded.execution,
            known.definition,
            folded.orders,
            self._find,
            None if self._calculators is None else partial(_made, self._calculators, row),
        )
        try:
            turn = turning.run(max(_LEAST_EVENTS, min(TURN_LIMIT, self._left)))
            self._left -= len(turn.events)
        finally:
            self._bytes += _memory(folded.execution) - before
        folded.next_seq = folded.execution.last_seq + 1
        if not turn.open:
            self.forget([key])
        if not turn.events and not taken.inbox and row.decide_at is None:
            return None
        return turn

    def put_off(self, taken: Taken, fault: Exception) -> Turn:
        """See `workflow_ports.Planner.put_off`."""
        row = taken.row
        log.error(
            "a workflow is put off",
            tenant=str(row.tenant_id),
            workflow=row.workflow_id,
            fault=repr(fault)[:500],
            where="".join(traceback.format_tb(fault.__traceback__, limit=-_FRAMES)),
        )
        self.forget([(row.tenant_id.int, row.run_id.int)])
        return self._later(taken)

    def _later(self, taken: Taken) -> Turn:
        """Nothing is recorded, the inbox stays. Its timer waits too, else it would be found again at once."""
        self.put_offs += 1
        row = taken.row
        key = row.tenant_id.int, row.run_id.int
        before, until = self._put_off.get(key, (0, 0))
        # One that went well meanwhile begins anew.
        again_at_once = before and taken.now_ms < until + before
        delay = min(2 * before, PUT_OFF_MOST_MS) if again_at_once else PUT_OFF_MS
        again = taken.now_ms + delay
        self._put_off[key] = delay, again
        told = {"definition": row.definition, "seconds": delay // 1000}
        return Turn(
            taken=replace(taken, inbox=()),
            status=row.status,
            open=row.closed_at is None,
            version=row.version,
            decide_at=again,
            timer_at=None if row.timer_at is None else max(again, round(row.timer_at.timestamp() * 1000)),
            result=row.result,
            error=row.error,
            happened=[] if again_at_once else [("workflow.put_off", told)],
        )

    def forget(self, keys: Iterable[_Key]) -> None:
        """See `workflow_ports.Planner.forget`."""
        for key in keys:
            dropped = self._folded.pop(key, None)
            if dropped is not None:
                self._bytes -= _memory(dropped.execution)

    def forget_all(self) -> None:
        """A transaction failed: none of its executions is known any more."""
        self._folded.clear()
        self._bytes = 0

    def _keep(self, key: _Key, folded: _Folded) -> None:
        self.forget([key])
        self._folded[key] = folded
        self._bytes += _memory(folded.execution)

    def trim(self) -> None:
        """Let go of what was looked at longest ago, between two rounds. The last one stays, however long."""
        while len(self._folded) > KEPT_EXECUTIONS or (self._bytes > KEPT_BYTES and len(self._folded) > 1):
            _, dropped = self._folded.popitem(last=False)
            self._bytes -= _memory(dropped.execution)

    def _find(self, tenant_id: uuid.UUID, name: str, version: int | None) -> tuple[int, str] | None:
        tenant = tenant_id.int
        number = self._newest.get((tenant, name)) if version is None else version
        known = None if number is None else self._definitions.get((tenant, name, number))
        if known is None:
            return None
        policy = "HOME_ASYNC" if known.definition is None else known.definition.region_policy
        return known.version, policy


def _made(calculators: Calculators, row: WorkflowRow, work: Work) -> Outcome | None:
    """A heavy value, or None while it is being made for that execution."""
    return calculators.outcome(row.tenant_id, work, (row.tenant_id, row.run_id))


def _known(name: str, version: int, source: str) -> _Known:
    try:
        definition = parse_definition(source, name=name, version=version)
    except DefinitionError as error:
        # It was registered by code that read it; its workflows wait for such code.
        log.error(
            "a registered definition cannot be read", definition=name, version=version, fault=str(error)
        )
        return _Known(None, version, (), ())
    except Exception:
        # Whatever reading it trips over: it keeps up no more than its own workflows.
        log.exception("reading a registered definition failed in here", definition=name, version=version)
        return _Known(None, version, (), ())
    children = [step.do for step in definition.walk() if isinstance(step.do, StartWorkflow)]
    return _Known(
        definition,
        version,
        tuple(sorted({c.definition for c in children if c.version is None})),
        tuple(sorted({(c.definition, c.version) for c in children if c.version is not None})),
    )
