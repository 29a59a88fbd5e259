"""What is done for each decision that came back with a region."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from cells.api import building
from cells.domain.ids import RunKey
from cells.domain.job import STRICT, JobState
from cells.domain.resuming import resumes_at
from cells.domain.run import RunState
from cells.domain.windows import due_at
from cells.execution.handing_on import HandingOn
from cells.ownership.entries import WHOLE_JOB, WHOLE_WORKFLOW
from cells.ports import Clock, Conflict, JobRow, SealedSecret
from cells.returning.calendars import CalendarsAgain
from cells.returning.rows import Judged, along_with, as_bytes, as_secret, as_target, as_uuid
from cells.returning.rows import fence_of as _fence
from cells.returns import Outcome, ReturnedIntent
from cells.store.definitions import decode_definition
from cells.store.postgres import PostgresStore

_STATES = {
    "job.pause": JobState.PAUSED,
    "job.resume": JobState.ACTIVE,
    "job.resume_done": JobState.DONE,
    "job.cancel": JobState.CANCELLED,
}
_NOT_HERE = "its job is not here"


class Applying:
    """Carries out intents, each in one transaction with its own settlement."""

    def __init__(
        self, store: PostgresStore, onward: HandingOn, host_id: Callable[[], int], clock: Clock
    ) -> None:
        self._store = store
        self._onward = onward
        self._host_id = host_id
        self._clock = clock
        calendars = CalendarsAgain(store, host_id)
        self._ways: Mapping[str, Callable[[ReturnedIntent, Any], Awaitable[Judged]]] = {
            "job.create": self._create_job,
            "job.edit": self._edit_job,
            WHOLE_JOB: self._confirmed_job,
            WHOLE_WORKFLOW: self._confirmed_workflow,
            **dict.fromkeys(_STATES, self._set_state),
            "run.trigger": self._trigger,
            "run.cancel": self._cancel_run,
            **dict.fromkeys(("calendar.created", "calendar.changed"), calendars.put),
            "calendar.rename": calendars.rename,
            "calendar.delete": calendars.delete,
            **dict.fromkeys(("workflow.cancel", "workflow.terminate"), self._end_workflow),
            "target.create": self._create_target,
            "target.update": self._update_target,
            "target.rotate": self._rotate_secret,
            "target.delete": self._delete_target,
            "workflow_definition.put": self._put_definition,
            "workflow.start": self._start_workflow,
            "workflow.signal": self._signal,
            "store.use": self._use_store,
        }

    async def judge(self, intent: ReturnedIntent) -> Judged:
        """What became of it. It is settled already where the answer is APPLIED or ALREADY by the store's own
        doing; settling it again changes nothing."""
        if intent.tenant_state == "MOVED":
            return Outcome.NOT_APPLIED, "the tenant lives in another cell now"
        if intent.policy == STRICT and not intent.waited_for:
            return Outcome.UNCONFIRMED, "STRICT, and no other region had it"
        way = self._ways.get(intent.verb)
        if way is None:
            return Outcome.NOT_APPLIED, "not done again by itself"
        return await way(intent, msgspec.json.decode(intent.detail))

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    # --- jobs ----------------------------------------------------------------------------
    async def _create_job(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail["jobs"]:
            return Outcome.REFUSED, "the region has no such job any more"
        try:
            outcome = await self._store.import_returned_job(
                _fence(intent), intent, detail, host_id=self._host_id()
            )
        except Conflict as fault:
            return Outcome.REFUSED, str(fault)
        row = await self._store.get_job(intent.tenant_id, as_uuid(detail["jobs"][0]["job_id"]))
        if outcome is Outcome.APPLIED and row is not None:
            await self._replaced(intent, None, row)
        return outcome, None

    async def _confirmed_job(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail["jobs"]:
            return Outcome.REFUSED, "the region has no such job any more"
        before = await self._job(intent)
        outcome = await self._store.import_confirmed_job(
            _fence(intent), intent, detail, host_id=self._host_id()
        )
        after = await self._job(intent)
        if after is not None:
            await self._replaced(intent, before, after)
        return outcome, None

    async def _edit_job(self, intent: ReturnedIntent, detail: Any) -> Judged:
        row = await self._job(intent)
        if row is None:
            return Outcome.REFUSED, _NOT_HERE
        if row.version != detail["base"] or row.state not in (JobState.ACTIVE, JobState.PAUSED):
            return Outcome.CHANGED_SINCE, f"version {row.version}, {row.state}"
        if not detail["job_versions"]:
            return Outcome.REFUSED, "the region has no such version any more"
        version = detail["job_versions"][0]
        definition = decode_definition(as_bytes(version["definition"]))
        schedule = definition.schedule
        if schedule.calendar is not None:
            calendar = await self._store.get_calendar(intent.tenant_id, schedule.calendar)
            if calendar is None:
                return Outcome.REFUSED, f"there is no calendar {schedule.calendar}"
            schedule = msgspec.structs.replace(
                schedule, calendar_version=calendar.version, excluded=calendar.calendar
            )
            definition = msgspec.structs.replace(definition, schedule=schedule)
        now = self._now()
        edited = building.new_job(
            job_id=row.job_id,
            definition=definition,
            payload=None if version["payload"] is None else as_bytes(version["payload"]),
            config=intent.config,
            now=now,
            actor=version["created_by"],
            traceparent=version["traceparent"],
            state=row.state,
            keep=row if definition.schedule == row.definition.schedule else None,
        )
        after = await self._store.taking(intent).edit_job(
            _fence(intent),
            base_version=row.version,
            seen_next_run_at=row.next_run_at,
            job=edited,
            host_id=self._host_id(),
            now=now,
        )
        await self._replaced(intent, row, after)
        return Outcome.APPLIED, None

    async def _set_state(self, intent: ReturnedIntent, detail: Any) -> Judged:
        row = await self._job(intent)
        if row is None:
            return Outcome.REFUSED, _NOT_HERE
        state, now = _STATES[intent.verb], self._now()
        if row.state is state:
            return Outcome.ALREADY, None
        if row.version != detail["base"]:
            return Outcome.CHANGED_SINCE, f"version {row.version}"
        next_run_at, timer = row.next_run_at, None
        if state is JobState.ACTIVE:
            next_run_at = resumes_at(row.definition.schedule, row.next_run_at, now)
            if next_run_at is None:
                state = JobState.DONE
            else:
                timer = max(due_at(next_run_at, row.offset_ms), now)
        after = await self._store.taking(intent).set_job_state(
            _fence(intent),
            job_id=row.job_id,
            state=state,
            base_version=row.version,
            next_run_at=next_run_at,
            due_at=timer,
            actor=f"region:{intent.region}",
            host_id=self._host_id(),
            now=now,
        )
        await self._replaced(intent, row, after)
        return Outcome.APPLIED, None

    async def _trigger(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail.get("runs"):
            return Outcome.REFUSED, "the region has no such run any more"
        try:
            await self._store.import_returned_run(_fence(intent), intent, detail, host_id=self._host_id())
        except Conflict as fault:
            return Outcome.REFUSED, str(fault)
        return Outcome.APPLIED, None

    async def _cancel_run(self, intent: ReturnedIntent, detail: Any) -> Judged:
        job, instant, ordinal = detail["name"].split(":")
        key = RunKey(
            parent_id=as_uuid(job),
            scheduled_for=datetime.fromtimestamp(int(instant), UTC),
            ordinal=int(ordinal),
        )
        row = await self._store.get_run(intent.tenant_id, key)
        if row is None:
            return Outcome.REFUSED, "the run is not here"
        if row.state is RunState.CANCELLED or row.cancel_requested:
            return Outcome.ALREADY, None
        if row.epoch != detail["base"]:
            return Outcome.CHANGED_SINCE, f"{row.state}, claimed under epoch {row.epoch}"
        await self._store.taking(intent).cancel_run(
            _fence(intent), key=key, actor=f"region:{intent.region}", host_id=self._host_id()
        )
        return Outcome.APPLIED, None

    async def _job(self, intent: ReturnedIntent) -> JobRow | None:
        return await self._store.get_job(intent.tenant_id, as_uuid(intent.thing.removeprefix("job:")))

    async def _replaced(self, intent: ReturnedIntent, before: JobRow | None, after: JobRow) -> None:
        """Tells the queue of a job's timer."""
        if before is not None:
            old = building.member_of(before, intent.tenant_id, version=before.version)
            await self._onward.remove([old] if old is not None else [])
        new = building.member_of(after, intent.tenant_id, version=after.version)
        await self._onward.add([new] if new is not None else [])

    # --- stores --------------------------------------------------------------------------
    async def _use_store(self, intent: ReturnedIntent, detail: Any) -> Judged:
        """A local store holds rows of the tenant; the owner that knew it was lost."""
        number = int(detail["name"])
        if any(used.store == number for used in await self._store.local_stores_of(intent.tenant_id)):
            return Outcome.ALREADY, None
        await self._store.taking(intent).use_local_store(_fence(intent), number, host_id=self._host_id())
        return Outcome.APPLIED, None

    # --- targets -------------------------------------------------------------------------
    async def _create_target(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail["targets"]:
            return Outcome.REFUSED, "the region has no such target any more"
        target = as_target(detail["targets"][0])
        if await self._store.get_target(intent.tenant_id, target.target_id) is not None:
            return Outcome.ALREADY, None
        secrets = [as_secret(row) for row in detail["target_secrets"]]
        await self._store.taking(intent).create_target(
            _fence(intent), target, secrets, host_id=self._host_id()
        )
        return Outcome.APPLIED, None

    async def _update_target(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail["targets"]:
            return Outcome.REFUSED, "the region has no such target any more"
        target = as_target(detail["targets"][0])
        given = [as_secret(row) for row in detail["target_secrets"]]
        known = {(one.purpose, one.generation) for one in await self._secrets(intent, target.target_id)}
        credentials = [
            one
            for one in given
            if one.purpose == "CREDENTIAL"
            and (one.purpose, one.generation) not in known
            and one.expires_at is None
        ]
        await self._store.taking(intent).update_target(
            _fence(intent),
            target,
            base_version=detail["base"],
            host_id=self._host_id(),
            actor=f"region:{intent.region}",
            credentials=credentials or None,
        )
        return Outcome.APPLIED, None

    async def _rotate_secret(self, intent: ReturnedIntent, detail: Any) -> Judged:
        name = detail["name"]
        known = {(one.purpose, one.generation) for one in await self._secrets(intent, name)}
        new = [
            one
            for one in map(as_secret, detail["target_secrets"])
            if (one.purpose, one.generation) not in known and one.expires_at is None
        ]
        if not new:
            return Outcome.ALREADY, None
        older = [
            one.expires_at
            for one in map(as_secret, detail["target_secrets"])
            if one.purpose == new[0].purpose and one.expires_at is not None
        ]
        overlap = max((int((until - self._now()).total_seconds()) for until in older), default=0)
        await self._store.taking(intent).rotate_secret(
            _fence(intent),
            name,
            new[0],
            overlap_seconds=max(0, overlap),
            host_id=self._host_id(),
            actor=f"region:{intent.region}",
            base_version=detail["base"],
        )
        return Outcome.APPLIED, None

    async def _delete_target(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if await self._store.get_target(intent.tenant_id, detail["name"]) is None:
            return Outcome.ALREADY, None
        await self._store.taking(intent).delete_target(
            _fence(intent),
            detail["name"],
            host_id=self._host_id(),
            actor=f"region:{intent.region}",
            base_version=detail["base"],
        )
        return Outcome.APPLIED, None

    async def _secrets(self, intent: ReturnedIntent, target_id: str) -> list[SealedSecret]:
        return list(await self._store.target_secrets(intent.tenant_id, target_id))

    # --- workflows -----------------------------------------------------------------------
    async def _put_definition(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail["definitions"]:
            return Outcome.REFUSED, "the region has no such definition any more"
        given = detail["definitions"][0]
        known = await self._store.get_definition(intent.tenant_id, given["name"], given["version"])
        if known is not None:
            same = known.source == given["source"]
            return (
                (Outcome.ALREADY, None) if same else (Outcome.CHANGED_SINCE, "another text has this version")
            )
        await self._store.taking(intent).put_definition(
            _fence(intent),
            name=given["name"],
            version=given["version"],
            source=given["source"],
            actor=given["created_by"],
            host_id=self._host_id(),
        )
        return Outcome.APPLIED, None

    async def _start_workflow(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if not detail.get("workflows"):
            return Outcome.REFUSED, "the region has no such workflow any more"
        if detail["workflows"][0]["parent"] is not None:
            return Outcome.NOT_APPLIED, "what it belongs to starts it again"
        try:
            outcome = await self._store.import_returned_workflow(
                _fence(intent), intent, detail, host_id=self._host_id()
            )
        except Conflict as fault:
            return Outcome.REFUSED, str(fault)
        return outcome, None

    async def _confirmed_workflow(self, intent: ReturnedIntent, detail: Any) -> Judged:
        outcome = await self._store.import_confirmed_workflow(
            _fence(intent), intent, detail, host_id=self._host_id()
        )
        return outcome, None

    async def _signal(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if "signals" not in detail:
            verbs = ["workflow.start", "workflow.signal"]
            return along_with(await self._store.returned_before(intent, verbs))
        if not any(signal["payload"] is not None for signal in detail["signals"]):
            return Outcome.REFUSED, "the region has no such signal any more"
        taken = False
        for signal in detail["signals"]:
            if signal["payload"] is None:
                continue
            # Its own id keeps it from being taken twice, whoever dies in between.
            said = await self._store.signal_workflow(
                _fence(intent),
                workflow_id=detail["name"],
                signal_id=signal["signal_id"],
                name=signal["name"],
                payload=signal["payload"].encode(),
                actor=f"region:{intent.region}",
                host_id=self._host_id(),
            )
            if said is None:
                return Outcome.REFUSED, "its workflow is not here"
            taken = taken or said.status != "duplicate"
        return (Outcome.APPLIED if taken else Outcome.ALREADY), None

    async def _end_workflow(self, intent: ReturnedIntent, detail: Any) -> Judged:
        if detail.get("run_id") is None:
            return Outcome.REFUSED, "the region has no such workflow any more"
        run_id = as_uuid(detail["run_id"])
        if await self._store.get_workflow(intent.tenant_id, detail["name"], run_id) is None:
            return Outcome.REFUSED, "its workflow is not here"
        kind = intent.verb.partition(".")[2].upper()
        data: dict[str, Any] = next((each["data"] for each in detail["told"] if each["kind"] == kind), {})
        await self._store.taking(intent).tell_workflow(
            _fence(intent),
            workflow_id=detail["name"],
            kind=kind,
            data=msgspec.json.encode({"actor": f"region:{intent.region}", **data}),
            actor=f"region:{intent.region}",
            host_id=self._host_id(),
            run_id=run_id,
        )
        return Outcome.APPLIED, None
