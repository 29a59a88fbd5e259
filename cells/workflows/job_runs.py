"""Jobs whose work is a workflow: how it begins with a run, and how the run ends with it.

The workflow's id is the run's, so a claim that is repeated means the same workflow. A workflow tries its
own steps again; one that failed fails its run, which waits in the DLQ: redriven, it begins anew.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import msgspec

from cells.domain import ids
from cells.domain.callbacks import Notify
from cells.domain.ids import RunKey
from cells.domain.outcome import fingerprint
from cells.domain.run import Attempt, AttemptOutcome, RunState
from cells.domain.workflow.execution import Status
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.execution.handing_on import HandingOn
from cells.execution.host_agent import HostAgent
from cells.job_workflows import JobEnd, JobStart
from cells.observability.logs import logger
from cells.ports import Completion, Retryable, Store
from cells.timers.pacing import Backoff
from cells.workflow_ports import NewExecution
from cells.workflows.bell import Ear
from cells.workflows.effects import execution_of, inherited, input_hash

log = logger(__name__)

#: Runs of one transaction.
_BATCH = 200
#: Between looks: at least under load, at most without (seconds).
_GAP_SECONDS, _LOOK_SECONDS = 0.02, 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decode = msgspec.json.Decoder().decode


class JobRuns:
    """Part of the role `engine`."""

    def __init__(self, store: Store, onward: HandingOn, ear: Ear, host: HostAgent):
        self._store = store
        self._onward = onward
        self._ear = ear
        self._host = host
        self._begin = Beginner()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; outages are waited out."""
        backoff = Backoff()
        while not stop.is_set():
            await self._host.wait_live()
            pause = _GAP_SECONDS
            try:
                if not await self.round():
                    pause = 0.0
                backoff.succeeded()
            except Retryable as fault:
                if backoff.failures == 0:
                    log.warning("workflows of jobs interrupted", fault=str(fault)[:200])
                pause = backoff.failed()
            except Exception:
                log.exception("workflows of jobs failed in here")
                pause = _LOOK_SECONDS
            if pause:
                await asyncio.sleep(pause)
            else:
                await self._ear.wait(_LOOK_SECONDS)
                await asyncio.sleep(_GAP_SECONDS)

    async def round(self) -> int:
        """Begin and end what there is; how many runs that was."""
        start, end = await self._store.job_workflows_todo()
        done = 0
        if start:
            done += await self._store.start_job_workflows(
                workflow_id, self._begin, limit=_BATCH, host_id=self._host.host_id
            )
        if start or end:
            ended, timers = await self._store.end_job_workflows(
                completion_of, limit=_BATCH, host_id=self._host.host_id
            )
            await self._onward.add(timers)
            done += ended
        return done


class Beginner:
    """Says how a run's workflow begins, or what is wrong with it. It remembers what it read."""

    def __init__(self) -> None:
        self._policies: dict[tuple[uuid.UUID, str, int], str] = {}

    def __call__(self, start: JobStart) -> NewExecution | str:
        name = start.definition.target.definition
        if start.source is None:
            version = start.definition.target.definition_version
            return f"there is no definition {name}" + ("" if version is None else f" of version {version}")
        key = start.tenant_id, name, start.version
        policy = self._policies.get(key)
        if policy is None:
            try:
                policy = parse_definition(start.source, name=name, version=start.version).region_policy
            except DefinitionError as error:
                return f"the definition {name} cannot be read: {error}"[:1000]
            if len(self._policies) > 5_000:
                self._policies.clear()
            self._policies[key] = policy
        return begin(start, policy)


def workflow_id(key: RunKey) -> str:
    """The workflow of a run: the run's id, with what workflow ids do not have left out."""
    return ids.run_id(key).replace(":", "-")


def begin(start: JobStart, region_policy: str) -> NewExecution:
    """The execution a run begins: the same one, however often that is said of one series."""
    run_id = ids.run_id(start.key)
    key = f"execution:{run_id}:{start.series}"
    store = ids.store_of(start.key.parent_id)  # it runs where its job is
    derived = ids.derived_id(tenant_id=start.tenant_id, key=key, store=store)
    given = None if start.input is None else _decode(start.input)
    target = start.definition.target
    return execution_of(
        run_id=ids.workflow_run_id(derived),
        workflow_id=workflow_id(start.key),
        definition=target.definition,
        version=start.version,
        region_policy=inherited(start.definition.region_policy, region_policy),
        given=given,
        hash_=input_hash(target.definition, target.definition_version, given),
        at_ms=start.now_ms,
        first=start.first,
        parent={"job_id": ids.encode(ids.JOB, start.key.parent_id), "run_id": run_id},
    )


def completion_of(end: JobEnd) -> Completion:
    """How a run ends by its workflow."""
    error: str | None = None
    fault: str | None = None
    match end.status:
        case Status.COMPLETED:
            state, outcome = RunState.SUCCEEDED, AttemptOutcome.SUCCEEDED
        case Status.CANCELLED:
            state, outcome, error = RunState.CANCELLED, AttemptOutcome.TERMINAL, "cancelled"
        case _:
            state, outcome = RunState.FAILED, AttemptOutcome.TERMINAL
            error = f"the workflow is {end.status}" + ("" if end.error is None else f": {end.error}")
            fault = fingerprint(end.definition.target.label, None, end.error or end.status)
    return Completion(
        tenant_id=end.tenant_id,
        key=end.key,
        epoch=end.epoch,
        state=state,
        attempt=Attempt(
            number=end.attempt,
            epoch=end.epoch,
            outcome=outcome,
            claimed_at=_text(end.claimed_ms),
            started_at=_text(end.started_ms),
            finished_at=_text(end.now_ms),
            host="",
            error=error,
            body=None if end.result is None else end.result.decode(),
            series=end.series,
        ),
        reason=error,
        fingerprint=fault,
        target_id=end.definition.target.label,
        started_ms=end.started_ms,
        finished_ms=end.now_ms,
        first_attempt_lag_ms=end.started_ms - end.due_ms if end.attempt == 1 else None,
        region_policy=end.definition.region_policy,
        priority=end.priority,
        shard=end.shard,
        series=end.series,
        concurrency_key=end.definition.concurrency_key,
        notify=Notify.of(end.definition, end.version, end.due_ms),
    )


def _text(ms: int) -> str:
    return f"{_EPOCH + timedelta(milliseconds=ms):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"
