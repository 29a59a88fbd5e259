"""The client against the whole product: what a program does on its first day."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.client import (
    AsyncClockhouse,
    Clockhouse,
    Conflict,
    Forbidden,
    HttpTarget,
    Invalid,
    NewJob,
    NotFound,
    PreconditionFailed,
    Retry,
    Schedule,
    Unauthenticated,
    verify,
)
from tests.recorder import Recorder
from tests.stack import Stack
from tests.waiting import eventually_sync

pytestmark = pytest.mark.stack

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def client(stack: Stack) -> Iterator[Clockhouse]:
    with Clockhouse(stack.info["api_url"], stack.info["api_key"]) as client:
        yield client


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


# --- the client ----------------------------------------------------------------------------
def test_a_jobs_life(client: Clockhouse) -> None:
    tag = unique("life")
    job = client.jobs.create(
        NewJob(
            schedule=Schedule.cron("0 8 * * *", time_zone="Europe/Berlin"),
            target=HttpTarget("tgt_echo", path="/digest"),
            payload={"kind": "daily", "n": 1},
            name="digest",
            tags=[tag],
            retry_policy=Retry(max_attempts=2),
        )
    )
    assert (job.status, job.version, job.tags) == ("SCHEDULED", 1, (tag,))
    assert job.next_run_at is not None
    assert client.jobs.get(job.job_id).payload == {"kind": "daily", "n": 1}
    assert client.jobs.pause(job.job_id).status == "PAUSED"
    assert client.jobs.resume(job.job_id).status == "SCHEDULED"
    edited = client.jobs.edit(
        job.job_id, {"priority": "LOW", "name": None}, version=client.jobs.get(job.job_id).version
    )
    assert (edited.priority, edited.name) == ("LOW", None)
    with pytest.raises(PreconditionFailed):
        client.jobs.edit(job.job_id, {"priority": "HIGH"}, version=edited.version - 1)
    run = client.runs.wait(client.jobs.trigger(job.job_id, payload={"by": "hand"}).run_id, timeout=30)
    assert (run.state, run.http_status, run.attempts[0].status) == ("SUCCEEDED", 200, 200)
    assert run.where_the_time_went is not None
    assert [r.run_id for r in client.runs.list(job_id=job.job_id)] == [run.run_id]
    ledger = client.jobs.occurrences(job.job_id, count=3)
    assert [(past.run_id, past.verdict, past.by_hand) for past in ledger.past] == [(run.run_id, "ran", True)]
    assert ledger.next[0].at == job.next_run_at
    assert client.jobs.get(job.job_id).recent_runs[0].state == "SUCCEEDED"
    assert [j.job_id for j in client.jobs.list(tag=tag)] == [job.job_id]
    assert client.jobs.cancel(job.job_id).status == "CANCELLED"
    with pytest.raises(Conflict):
        client.jobs.resume(job.job_id)


def test_the_feed_of_events_ends_and_goes_on(client: Clockhouse) -> None:
    job = client.jobs.create(
        NewJob(schedule=Schedule.cron("0 8 * * *", time_zone="UTC"), target=HttpTarget("tgt_echo"))
    )
    client.jobs.pause(job.job_id)
    heard = [event.raw for event in client.events.list(cursor="start", limit=2)]
    assert "job.paused" in [event["type"] for event in heard if job.job_id in json.dumps(event)]
    place = client.events.page(cursor="start", limit=200)
    assert place.next_cursor is not None


def test_the_same_key_makes_one_job(client: Clockhouse) -> None:
    job = NewJob(schedule=Schedule.every(3600), target=HttpTarget("tgt_echo"))
    key = unique("key")
    first = client.jobs.create(job, idempotency_key=key)
    assert client.jobs.create(job, idempotency_key=key).job_id == first.job_id
    client.jobs.cancel(first.job_id)


def test_lists_walk_over_all_their_pages(client: Clockhouse) -> None:
    tag = unique("pages")
    made = client.jobs.batch(
        NewJob(schedule=Schedule.once("2090-01-01T00:00:00Z"), target=HttpTarget("tgt_echo"), tags=[tag])
        for _ in range(7)
    )
    assert [item.status for item in made] == [201] * 7
    found = [job.job_id for job in client.jobs.list(tag=tag, limit=3)]
    assert sorted(found) == sorted(item.job_id or "" for item in made)
    mixed = client.jobs.batch(
        [
            NewJob(schedule=Schedule.once("2090-01-01T00:00:00Z"), target=HttpTarget("tgt_echo"), tags=[tag]),
            NewJob(schedule=Schedule.cron("61 * * * *"), target=HttpTarget("tgt_echo")),
        ]
    )
    assert [item.ok for item in mixed] == [True, False]
    assert mixed[1].faults[0].pointer == "/schedule/cron"
    for job in client.jobs.list(tag=tag):
        client.jobs.cancel(job.job_id)


def test_declaring_by_key_is_idempotent(client: Clockhouse) -> None:
    key = unique("nightly report")
    job = NewJob(schedule=Schedule.cron("0 1 * * *"), target=HttpTarget("tgt_echo"), payload={"a": 1})
    outcomes = [client.jobs.put_by_key(key, job).outcome for _ in range(2)]
    later = NewJob(schedule=Schedule.cron("0 2 * * *"), target=HttpTarget("tgt_echo"), payload={"a": 1})
    outcomes.append(client.jobs.put_by_key(key, later).outcome)
    assert outcomes == ["created", "unchanged", "changed"]
    assert client.jobs.get_by_key(key).schedule["cron"] == "0 2 * * *"
    with pytest.raises(PreconditionFailed):
        client.jobs.put_by_key(key, job, only_create=True)
    assert client.jobs.cancel_by_key(key).status == "CANCELLED"


def test_faults_come_all_at_once(client: Clockhouse) -> None:
    with pytest.raises(Invalid) as caught:
        client.jobs.create(
            {"schedule": {"type": "CRON", "cron": "61 25 * * *"}, "target": {}, "prioritty": "LOW"}
        )
    places = {fault.place for fault in caught.value.faults}
    assert {"schedule.cron", "target", "prioritty"} <= places
    with pytest.raises(NotFound):
        client.jobs.get("job_01m8nk73myg02t1j0x4m4vwhes")


def test_a_target_verifies_the_calls_it_gets(client: Clockhouse) -> None:
    with Recorder() as recorder:
        target = client.targets.register(recorder.url, target_id=unique("tgt_rec"), owner_team="t")
        assert target.state == "PENDING"
        assert target.secret is not None
        client.targets.approve(target.target_id)
        rotated = client.targets.rotate_secret(target.target_id, overlap_seconds=3600)
        assert rotated.secret not in (None, target.secret)
        client.jobs.create(
            NewJob(schedule=Schedule.now(), target=HttpTarget(target.target_id), payload={"x": 1})
        )
        eventually_sync(lambda: recorder.calls, timeout=30)
        call = recorder.calls[0]
    for secret in (target.secret, rotated.secret):  # both, during the overlap
        delivery = verify(secret or "", call.headers, call.body)
        assert delivery.idempotency_key == call.headers["Idempotency-Key"]
        assert delivery.fencing_token is not None
        assert (delivery.attempt, json.loads(delivery.body)) == (1, {"x": 1})
    assert target.target_id in [t.target_id for t in client.targets.list(limit=1)]


def test_what_failed_for_good_is_in_the_dead_letters(client: Clockhouse) -> None:
    job = client.jobs.create(
        NewJob(schedule=Schedule.now(), target=HttpTarget("tgt_echo", path="/status/418"))
    )
    letters = eventually_sync(lambda: [x for x in client.dlq.list() if x.job_id == job.job_id], timeout=30)
    assert letters is not None
    groups = client.dlq.page(fingerprint=letters[0].fingerprint).groups
    assert letters[0].fingerprint in [group.fingerprint for group in groups]
    chosen = client.dlq.choose("redrive", job_id=job.job_id)
    assert chosen.count == 1
    begun = client.dlq.begin(chosen, max_per_second=10)
    over = eventually_sync(
        lambda: one if (one := client.dlq.redrive(begun.redrive_id)).over else None, timeout=60
    )
    assert over is not None
    assert over.done == 1
    assert eventually_sync(
        lambda: [x for x in client.dlq.list() if x.job_id == job.job_id], timeout=30
    )  # it failed again
    done_with = client.dlq.begin(client.dlq.choose("purge", job_id=job.job_id), max_per_second=10)
    purged = eventually_sync(
        lambda: one if (one := client.dlq.redrive(done_with.redrive_id)).over else None, timeout=60
    )
    assert purged is not None
    assert (purged.state, purged.done) == ("DONE", 1)
    assert [x for x in client.dlq.list() if x.job_id == job.job_id] == []


def test_the_rest_of_the_api(client: Clockhouse) -> None:
    assert client.tenant.get().slug == "demo"
    preview = client.schedules.preview(Schedule.cron("30 2 * * *", time_zone="Europe/Berlin"), count=3)
    assert (len(preview.occurrences), {t.kind for t in preview.transitions}) == (3, {"gap", "overlap"})
    assert client.stats.read().total is not None
    assert client.usage.read().from_ <= client.usage.read().to
    assert client.cost_reports.daily(since="2026-01-01", until="2026-01-31").total == 0
    (owner,) = client.members.list()
    assert owner.role == "owner"
    added = client.members.add("dev@example.com", "developer", name="Dev")
    assert client.members.edit(added.member_id, role="viewer", version=added.version).role == "viewer"
    client.members.remove(added.member_id)


def test_keys_are_made_rotated_and_revoked(stack: Stack, client: Clockhouse) -> None:
    key = client.api_keys.create("reader", ["jobs:read"], reason="test")
    assert key.api_key is not None
    with Clockhouse(stack.info["api_url"], key.api_key) as reader:

        def known() -> bool:
            try:
                return reader.tenant.get().slug == "demo"
            except Unauthenticated:
                return False  # routers hear of it within seconds

        eventually_sync(known, timeout=10)
        with pytest.raises(Forbidden):
            reader.jobs.create(NewJob(schedule=Schedule.now(), target=HttpTarget("tgt_echo")))
    successor = client.api_keys.rotate(key.key_id, grace_seconds=60)
    assert client.api_keys.get(key.key_id).successor == successor.key_id
    assert client.api_keys.revoke(successor.key_id).state == "REVOKED"
    client.api_keys.revoke(key.key_id)


async def test_the_async_client(stack: Stack) -> None:
    async with AsyncClockhouse(stack.info["api_url"], stack.info["api_key"]) as client:
        job = await client.jobs.create(NewJob(schedule=Schedule.every(3600), target=HttpTarget("tgt_echo")))
        run = await client.runs.wait((await client.jobs.trigger(job.job_id)).run_id, timeout=30)
        assert run.succeeded
        assert job.job_id in [found.job_id async for found in client.jobs.list(state="SCHEDULED", limit=5)]
        await client.jobs.cancel(job.job_id)


def test_the_readmes_example(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = (ROOT / "controlplane/client/README.md").read_text()
    example = next(
        block for block in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "Clockhouse()" in block
    )
    monkeypatch.setenv("CLOCKHOUSE_API_URL", stack.info["api_url"])
    monkeypatch.setenv("CLOCKHOUSE_API_KEY", stack.info["api_key"])
    names: dict[str, Any] = {}
    exec(example, names)  # noqa: S102
    assert capsys.readouterr().out.startswith("SUCCEEDED\n")
    with Clockhouse() as client:
        client.jobs.cancel(names["job"].job_id)
