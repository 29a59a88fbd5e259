"""One execution's turn: record what waits and what is due, decide, record the decisions, until nothing
but waiting is left. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cells.domain.workflow.commands import Command, record
from cells.domain.workflow.decide import decision, timer_fired
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import OPEN, Execution, Status, StepState
from cells.domain.workflow.folding import fold
from cells.domain.workflow.heavy import Evaluate
from cells.workflow_ports import SUMMARY_LIMIT, Taken, Turn
from cells.workflows.effects import activity_of, child_of, run_of, successor_of, word_to_parent
from cells.workflows.inbox import to_record

#: Events of one turn beyond what it records of its inbox; what is left is decided at once in the next one,
#: behind others.
TURN_LIMIT = 500
#: While a value is being made, its execution is looked at this often.
PENDING_MS = 2_000
_BEGINS = frozenset(
    {
        EventType.ACTIVITY_SCHEDULED, EventType.WAIT_STARTED, EventType.TIMER_STARTED,
        EventType.CHILD_STARTED,
    }
)  # fmt: skip
#: What a decision begins and nothing is decided by: a wait may find its signal there, other events end.
_BEGINS_WAITING = frozenset(
    {
        EventType.ACTIVITY_SCHEDULED, EventType.TIMER_STARTED, EventType.CHILD_STARTED,
        EventType.STEP_SKIPPED, EventType.PARALLEL_STARTED, EventType.MAP_STARTED,
    }
)  # fmt: skip
#: Events that drop what is open without ending it.
_DROPS = frozenset(
    {
        EventType.COMPENSATION_STARTED, EventType.COMPLETED, EventType.FAILED, EventType.TERMINATED,
        EventType.CONTINUED_AS_NEW, EventType.COMPENSATED, EventType.CANCELLED,
    }
)  # fmt: skip
_CLOSES = _DROPS - {EventType.COMPENSATION_STARTED}
#: Words that are meant for a workflow, whichever of its executions goes on.
_FORWARDED = frozenset({"SIGNAL", "CANCEL", "TERMINATE"})
#: What people hear of, by what is recorded.
_HAPPENED = {
    EventType.FAILED: "workflow.failed",
    EventType.COMPENSATED: "workflow.compensated",
    EventType.COMPENSATION_STUCK: "workflow.compensation_stuck",
    EventType.MIGRATED: "workflow.migrated",
    EventType.RESET: "workflow.reset",
}
_encode = msgspec.json.Encoder().encode

#: Version and region policy of a child's definition, or None where there is none such.
FindDefinition = Callable[[uuid.UUID, str, int | None], tuple[int, str] | None]


class Turning:
    """Fills a `Turn` and keeps the execution abreast of it."""

    def __init__(
        self,
        taken: Taken,
        execution: Execution,
        definition: Definition,
        orders: dict[int, str],
        find: FindDefinition,
        evaluate: Evaluate | None = None,
    ):
        self.turn = Turn(taken=taken)
        self._taken = taken
        self._x = execution
        self._definition = definition
        self._orders = orders
        self._find = find
        self._evaluate = evaluate
        self._pending = False  # a value is being made
        self._now = max(taken.now_ms, execution.last_at)
        self._full = execution.near_limit()

    def run(self, limit: int = TURN_LIMIT) -> Turn:
        """Everything there is to do now, or so many events of it."""
        self._record_inbox()
        limit += len(self.turn.events)
        while (room := limit - len(self.turn.events)) > 0:
            commands, more = self._decided(room)
            if not self._append_all(commands):
                continue
            if more:
                break
            if self._settled(commands) and not self._fire():
                turn = self.finish()
                if self._pending and turn.open:
                    # Looked at again as soon as the value is there; in time, should who makes it die.
                    turn.decide_at = self._now + PENDING_MS
                return turn
        turn = self.finish()
        turn.decide_at = self._now
        return turn

    def _settled(self, commands: list[Command]) -> bool:
        """Whether deciding again would find nothing: a decision walks as far as it can, and these begin
        what has to be waited for."""
        if not commands:
            return True
        return all(command.type in _BEGINS_WAITING for command in commands) and not self._x.at_limit()

    def _decided(self, limit: int) -> tuple[list[Command], bool]:
        deadline = self._taken.config.compensation_deadline_seconds * 1000
        found = decision(
            self._definition, self._x, deadline_ms=deadline, limit=limit, evaluate=self._evaluate
        )
        self._pending = found.pending
        return found.commands, found.more

    def _record_inbox(self) -> None:
        """In the order of their time, timers among them: what came after a timeout came too late."""
        for item in sorted(self._taken.inbox, key=lambda i: (i.at_ms, i.position)):
            if self._x.continues and item.kind in _FORWARDED:
                # It was meant for who goes on in its place.
                self.turn.forwarded.append((item.kind, item.data))
                continue
            self._fire(min(item.at_ms, self._now))
            found = to_record(self._definition, self._x, item, self._orders)
            if found is not None:
                self.append(Command(type=found[0], data=found[1]))

    def _fire(self, until: int | None = None) -> bool:
        """Record the timers that are due; whether there was one."""
        if not self._x.is_open:
            return False
        due = self._x.due_timers(self._now if until is None else until)
        for key in due:
            self.append(timer_fired(self._definition, self._x, key))
        return bool(due)

    def _append_all(self, commands: list[Command]) -> bool:
        """Record commands, up to one that cannot begin; whether all could."""
        for command in commands:
            data = command.data
            name, version = data.get("definition", ""), data.get("version")
            if (
                command.type == EventType.CHILD_STARTED
                and self._find(self._taken.row.tenant_id, name, version) is None
            ):
                of = "" if version is None else f" of version {version}"
                error = f"there is no definition {name}{of}"
                failed = {"step": command.key, "error": error}
                self.append(Command(type=EventType.STEP_FAILED, data=failed, step=command.step))
                return False
            self.append(command)
        return True

    def append(self, command: Command) -> Event:
        """Record a command with what belongs to it."""
        x, turn = self._x, self.turn
        event = record(command, seq=x.last_seq + 1, at=self._now)
        data = _encode(event.data)
        event = Event(seq=event.seq, type=event.type, at=event.at, data=event.data, size=len(data))
        turn.events.append((event.seq, event.type, event.at, data))
        turn.size += len(data)
        if event.type in _CLOSES:
            self._stop_what_is_open(event.type)
        open_before = len(x.open)
        late = event.type == EventType.ACTIVITY_COMPLETED and x.steps[event.data["step"]].state
        fold((event,), x)
        if event.type in _BEGINS:
            turn.begun += 1
            self._orders[event.seq] = event.data["step"]
            open_before += 1
        if event.type not in _DROPS:
            turn.steps += max(0, open_before - len(x.open)) + (late is StepState.FAILED)
        self._follow(command, event)
        return event

    def _stop_what_is_open(self, closing: str) -> None:
        word = "TERMINATE" if closing == EventType.TERMINATED else "CANCEL"
        for step in self._x.open.values():
            if step.kind == "activity":
                self.turn.stopped.append((step.at // 1000, step.order))
            elif step.kind == "child" and step.child is not None:
                self.turn.told_ids.append((step.child, word, _encode({"reason": "its parent has ended"})))

    def _follow(self, command: Command, event: Event) -> None:
        x, turn, taken = self._x, self.turn, self._taken
        match event.type:
            case EventType.ACTIVITY_SCHEDULED:
                undone = event.data.get("undoes")
                turn.unsure |= undone is not None and x.steps[undone].state is not StepState.COMPLETED
                turn.activities.append(activity_of(x, command, event, taken.row.region_policy))
            case EventType.CANCEL_SENT:
                step = x.steps[event.data["step"]]
                if step.kind == "activity":
                    turn.stopped.append((step.at // 1000, step.order))
                elif step.child is not None:
                    turn.told_ids.append((step.child, "CANCEL", _encode({"reason": "its parent undoes"})))
            case EventType.CHILD_STARTED:
                self._begin_child(event)
            case EventType.CONTINUED_AS_NEW:
                turn.successor = successor_of(taken, x, event)
            case EventType.COMPENSATION_STUCK:
                step_name = str(event.data.get("step") or "")
                error = _writable(str(event.data.get("error") or ""))
                turn.letters.append((event.at, event.seq, step_name, error))
            case EventType.COMPENSATION_RESOLVED:
                turn.letters_closed = True
            case _ if event.type in _CLOSES:
                if turn.letters or taken.row.status == Status.COMPENSATION_STUCK:
                    turn.letters_closed = True
        if event.type in _HAPPENED:
            turn.happened.append((_HAPPENED[EventType(event.type)], self._told(event)))
        if event.type in _CLOSES:
            word = word_to_parent(taken, x)
            if word is not None:
                turn.told.append(word)
            if event.type != EventType.CONTINUED_AS_NEW:
                turn.ends_run = run_of(taken)

    def _begin_child(self, event: Event) -> None:
        data = event.data
        found = self._find(self._taken.row.tenant_id, data["definition"], data.get("version"))
        if found is None:
            raise LookupError(f"no definition {data['definition']}")
        version, policy = found
        self.turn.started.append((child_of(self._taken, event, version, policy), event.seq))

    def _told(self, event: Event) -> Mapping[str, Any]:
        row = self._taken.row
        return {
            "definition": row.definition,
            "version": self._x.version,
            "step": event.data.get("step"),
            "error": event.data.get("error"),
        }

    def finish(self) -> Turn:
        """The pointer behind all that."""
        x, turn = self._x, self.turn
        turn.status = x.status.value
        turn.open = x.status in OPEN
        turn.version = x.version
        turn.timer_at = x.next_timer() if turn.open else None
        if not turn.open:
            result = _encode(x.result)
            turn.result = result if len(result) <= SUMMARY_LIMIT else None
        turn.error = None if x.error is None else _writable(x.error)[:SUMMARY_LIMIT]
        if turn.open and x.near_limit() and not self._full:
            how_far = {"events": x.last_seq, "bytes": x.bytes, "definition": self._taken.row.definition}
            turn.happened.append(("workflow.history_near_limit", how_far))
        return turn


def _writable(text: str) -> str:
    """Without what PostgreSQL has no character for."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
