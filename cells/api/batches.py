"""Many jobs in one request: each is judged by itself, all good ones are written in one commit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError
from starlette.responses import Response

from cells.api import building, documents, idempotency, scheduling, shapes
from cells.api.batch_models import BATCH_LIMIT, BatchIn
from cells.api.judging import judged, read_job
from cells.api.models import TargetIn
from cells.api.problems import Problem, body_fault, invalid, key_reused, malformed, of_exception, unconfirmed
from cells.api.reading import Fields, object_fields, take_payload
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.texts import Body, Name
from cells.contract import Scope
from cells.domain.job import STRICT, JobDefinition, JobState
from cells.ports import Created, NewJob, NotOwner, Retryable

routes = Routes("Jobs")

_CREATE = "POST /v1/jobs:batch"
#: So many are read between two looks at other requests.
_SLICE = 50

Result = dict[str, Any]


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    jobs: list[msgspec.Raw]


_envelope = msgspec.json.Decoder(_Envelope)
_encode = msgspec.json.Encoder().encode


@routes.add(
    "POST",
    "/v1/jobs:batch",
    Rule(scope=Scope.JOBS_WRITE, writes=True),
    answers={200: ("What became of each job, in the order they were sent.", shapes.BatchResults)},
    problems=(413,),
    body=BatchIn,
    idempotent=True,
)
async def create_jobs(call: Call) -> Response:
    """Create up to 1,000 jobs at once, in a body of at most 10 MiB.

    Each job has a result of its own: `status` 201, 200 (it was there under its idempotency key), or
    the status and `problem` that a request for it alone would have had. One that is refused costs
    the others nothing. A job's own `idempotency_key` protects it in any batch; with the header
    Idempotency-Key the whole batch can be sent again, and jobs without a key of their own are known
    by their place in it.
    """
    raws = _items(call.raw_body)
    services = call.services
    batch = _Batch(call)
    results: list[Result | None] = [None] * len(raws)
    made: list[tuple[int, NewJob]] = []
    for i, raw in enumerate(raws):
        try:
            made.append((i, await batch.read(i, bytes(raw))))
        except Problem as problem:
            results[i] = _refused(problem)
        if i % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
    outcomes = await services.store.create_jobs(
        [call.fence] * len(made), [job for _, job in made], host_id=services.host.host_id
    )
    if outcomes and all(isinstance(outcome, NotOwner) for outcome in outcomes):
        raise outcomes[0]  # type: ignore[misc]  # for the router: the whole batch goes elsewhere
    members = []
    for (i, job), outcome in zip(made, outcomes, strict=True):
        results[i] = _result(job, outcome)
        if isinstance(outcome, Created) and outcome.created:
            member = building.member_of(job, call.tenant_id, version=1)
            if member is not None:
                members.append(member)
    services.feed.add(members)
    strict = [
        i
        for (i, job), outcome in zip(made, outcomes, strict=True)
        if isinstance(outcome, Created) and job.definition.region_policy == STRICT
    ]
    if strict:
        try:
            await services.store.confirm()
        except Retryable as fault:  # whatever the reason: all of it is stored here, and known nowhere else
            for i in strict:
                results[i] = _refused(unconfirmed(fault))
    created = sum(1 for result in results if result is not None and result["status"] == 201)
    failed = sum(1 for result in results if result is not None and result["status"] >= 400)
    return answer({"results": results, "created": created, "failed": failed})


def _items(body: bytes) -> list[msgspec.Raw]:
    if not body:
        raise malformed("A body is expected: a JSON object.")
    try:
        body.decode()
        found = _envelope.decode(body).jobs
    except UnicodeDecodeError:
        raise malformed("The body is not UTF-8.") from None
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None
    except msgspec.ValidationError:
        raise invalid([body_fault("", "is an object with one member, jobs: a list")]) from None
    except msgspec.DecodeError as error:
        raise malformed(f"The body is not JSON: {error}.") from None
    if not 1 <= len(found) <= BATCH_LIMIT:
        raise invalid([body_fault("/jobs", f"has 1 to {BATCH_LIMIT} items; these are {len(found)}")])
    return found


class _Names(Body):
    """What is mostly each job's own."""

    name: Name | None = None
    key: Name | None = None


class _Alike(NamedTuple):
    """What jobs may have in common; the definition with the names of one of them."""

    definition: JobDefinition
    target: TargetIn
    state: JobState
    window_seconds: int | None  # as it was asked for


#: Members of a job, each with its text.
_Written = tuple[tuple[str, bytes], ...]
_OWN = frozenset(_Names.model_fields)
_NAMELESS = _Names()


class _Batch:
    """Reads the jobs of one request. What many of them have in common is worked out once."""

    def __init__(self, call: Call):
        self._call = call
        self._now = call.services.now()
        self._header = idempotency.read_key(call.header(b"idempotency-key"))
        self._planner = scheduling.Planner(call.tenant.config, self._now)
        self._targets = building.TargetFinder(call)
        self._traceparent = call.traceparent
        #: Jobs as they are apart from what is each one's own, by how they were written: with their schedules,
        #: and the first one of those that differ in nothing else.
        self._alike: dict[_Written, _Alike] = {}
        self._first_alike: dict[_Written, _Alike] = {}

    async def read(self, place: int, raw: bytes) -> NewJob:
        """One job, ready to be written; a `Problem` with everything that is wrong with it."""
        call = self._call
        fields = object_fields(raw)
        key = self._key(place, fields)
        payload = take_payload(fields)
        alike, names = await self._read_alike(fields)
        if key is None:
            job_id = call.services.fresh_id()
        else:
            store = call.services.settings.stores.own
            job_id = idempotency.job_id_for(call.tenant_id, _CREATE, key, raw, store=store)
        job = building.new_job(
            job_id=job_id,
            definition=msgspec.structs.replace(alike.definition, name=names.name, key=names.key),
            payload=building.payload_of(alike.target, payload),
            config=call.tenant.config,
            now=self._now,
            actor=call.caller.actor,
            traceparent=self._traceparent,
            state=alike.state,
            planner=self._planner,
        )
        if key is None:
            return job
        return replace(
            job,
            idempotency_route=_CREATE,
            idempotency_key=key,
            fingerprint=idempotency.fingerprint(raw),
            answer=_encode(_shown(job)),
        )

    async def _read_alike(self, fields: Fields) -> tuple[_Alike, _Names]:
        """Everything but the payload. Of jobs that were written alike, but for their names, the first one is
        read, and the others are the same; of those that differ in nothing else but their schedules, the
        schedules are read. Where anything is wrong, all of it is read, and all faults told."""
        call = self._call
        own = {name: fields[name] for name in _OWN if name in fields}
        rest = tuple((name, bytes(raw)) for name, raw in fields.items() if name not in own)
        others = tuple(member for member in rest if member[0] != "schedule")
        known = self._alike.get(rest)
        if known is None:
            known = await self._rescheduled(others, fields)
            if known is not None:
                self._alike[rest] = known
        if known is not None:
            try:
                return known, _Names.model_validate_json(_encode(own)) if own else _NAMELESS
            except ValidationError:
                pass
        given = await read_job(call, fields)
        written = bytes(fields["schedule"])
        definition, _ = await judged(
            call,
            given,
            schedule=lambda: self._planner.schedule(call, written, given.schedule),
            target=lambda: self._targets.find(given.target, given.headers),
        )
        found = _Alike(definition, given.target, building.first_state(given), given.dispatch_window_seconds)
        self._alike[rest] = self._first_alike[others] = found
        return found, _Names(name=given.name, key=given.key)

    async def _rescheduled(self, others: _Written, fields: Fields) -> _Alike | None:
        """A job that differs from one that was read in nothing but its schedule; None where there is none, or
        something is wrong with the schedule."""
        like, written = self._first_alike.get(others), fields.get("schedule")
        if like is None or written is None:
            return None
        given = scheduling.read_schedule(bytes(written))
        if given is None:
            return None
        try:
            schedule = await self._planner.schedule(self._call, bytes(written), given)
        except Problem:
            return None
        window = building.window_seconds(like.window_seconds, schedule, self._call.tenant.config)
        definition = msgspec.structs.replace(
            like.definition, schedule=schedule, dispatch_window_seconds=window
        )
        return like._replace(definition=definition)

    def _key(self, place: int, fields: Fields) -> str | None:
        raw = fields.pop("idempotency_key", None)
        if raw is not None and bytes(raw) != b"null":
            return _own_key(bytes(raw))
        return None if self._header is None else f"{self._header}\n{place}"


def _own_key(raw: bytes) -> str:
    try:
        text = msgspec.json.decode(raw, type=str)
    except msgspec.MsgspecError:
        text = ""
    if not idempotency.is_key(text):
        raise invalid([body_fault("/idempotency_key", "is a string of 1 to 255 printable ASCII characters")])
    return text


def _shown(job: NewJob) -> Result:
    waits = job.due_at is not None
    return {
        "job_id": documents.job_text(job.job_id),
        "next_run_at": documents.instant(job.next_run_at) if waits else None,
        "due_at": documents.instant(job.due_at) if waits else None,
    }


def _result(job: NewJob, outcome: Created | Exception) -> Result:
    if isinstance(outcome, Exception):
        problem = of_exception(outcome)
        if problem is None:
            raise outcome
        return _refused(problem)
    if outcome.created:
        return {"status": 201, **_shown(job)}
    if outcome.key_reused:
        return _refused(key_reused())
    if outcome.answer is None:  # the record of its key is gone, the job is there
        return {"status": 200, "job_id": documents.job_text(job.job_id), "replayed": True}
    return {"status": 200, **msgspec.json.decode(outcome.answer), "replayed": True}


def _refused(problem: Problem) -> Result:
    return {"status": problem.status, "problem": problem.document()}
