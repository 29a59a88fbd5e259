"""What an edited form changes, and that nothing else is."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.console.job_changes import changes, fields_of, merge_patch, patch_of
from controlplane.console.job_form import JobForm, read_form

JOB: dict[str, Any] = {
    "name": "Digest",
    "key": "digest",
    "tags": ["a", "b"],
    "schedule": {
        "type": "CRON",
        "cron": "0 9 * * *",
        "time_zone": "Europe/Berlin",
        "dst": {"gap": "SKIP", "overlap": "BOTH"},
        "end_at": "2027-01-01T00:00:30Z",
    },
    "target": {"type": "HTTP", "target_id": "tgt_a", "path": "/x", "method": "PUT", "timeout_seconds": 7},
    "headers": {"X-A": "1", "X-B": "2"},
    "payload": {"user": 1, "deep": {"a": 1, "b": None}},
    "retry_policy": {"max_attempts": 4, "initial_backoff_seconds": 0.5, "max_backoff_seconds": 60.0},
    "priority": "HIGH",
    "dispatch_window_seconds": 300,
    "misfire_policy": "SKIP",
    "misfire_grace_seconds": 90,
    "overlap_policy": "BUFFER_ONE",
    "region_policy": "SINGLE_REGION",
    "delivery": "AT_MOST_ONCE",
    "concurrency_key": "warehouse",
    "max_concurrent": 3,
    "on_success": {"target_id": "tgt_b", "path": "/ended"},
    "on_failure": {"target_id": "tgt_c", "path": ""},
}


def saved(**more: Any) -> JobForm:
    return JobForm(values=fields_of({**JOB, **more}), token="")


def typed(**values: str) -> JobForm:
    """The form as a browser sends it back, with changes."""
    return read_form({**saved().values, **values})


def patch(form: JobForm, *, payload_hidden: bool = False, **job: Any) -> Any:
    made = patch_of(saved(**job), form, payload_hidden=payload_hidden)
    return json.loads(msgspec.json.encode(made))


def test_what_was_not_touched_is_not_sent() -> None:
    assert patch(typed()) == {}
    assert changes(saved(), typed()) == []


def test_a_duplicate_keeps_everything() -> None:
    calendar = {"calendar": "cal_de", "roll": "NEXT", "dialect": "EVENTBRIDGE"}
    for job in (JOB, {**JOB, "schedule": {**JOB["schedule"], **calendar}}):
        body = json.loads(msgspec.json.encode(JobForm(values=fields_of(job), token="").body()))
        assert body == {**job, "on_failure": {"target_id": "tgt_c"}}


def test_who_is_told_is_changed_and_taken_away() -> None:
    assert patch(typed(on_failure_path="/x")) == {"on_failure": {"path": "/x"}}
    assert patch(typed(on_success="", on_success_path="")) == {"on_success": None}
    taken = patch(typed(concurrency_key="", max_concurrent=""))
    assert taken == {"concurrency_key": None, "max_concurrent": None}
    (change,) = changes(saved(), typed(on_success="tgt_z"))
    assert (change.name, change.saved, change.typed) == ("on_success", "tgt_b", "tgt_z")


@pytest.mark.parametrize(
    "schedule",
    [
        {"type": "RATE", "every_seconds": 5400, "start_at": "2026-11-30T07:02:22Z"},
        {"type": "RATE", "every_seconds": 61},
        {"type": "ONCE", "run_at": "2026-12-01T09:00:00", "time_zone": "Asia/Tokyo",
         "dst": {"gap": "SHIFT", "overlap": "FIRST"}},
    ],
)  # fmt: skip
def test_each_kind_of_schedule_survives_the_form(schedule: dict[str, Any]) -> None:
    job = {**JOB, "schedule": schedule}
    form = read_form(fields_of(job))
    assert patch_of(JobForm(values=fields_of(job), token=""), form, payload_hidden=False) == {}
    assert form.schedule() == schedule


def test_only_what_changed_is_sent() -> None:
    made = patch(typed(cron="30 9 * * *", headers="X-A: 1", name="", tags="a", timeout_seconds="8"))
    assert made == {
        "schedule": {"cron": "30 9 * * *"},
        "headers": {"X-B": None},
        "name": None,
        "tags": ["a"],
        "target": {"timeout_seconds": 8},
    }
    assert [change.name for change in changes(saved(), typed(cron="30 9 * * *", tags="a"))] == [
        "cron",
        "tags",
    ]


def test_another_kind_of_schedule_replaces_the_old_one() -> None:
    assert patch(typed(kind="RATE", every="15", every_unit="60", end_at=""))["schedule"] == {
        "type": "RATE",
        "every_seconds": 900,
    }


def test_payloads_change_member_by_member() -> None:
    assert patch(typed(payload='{"user": 12345678901234567890, "deep": {"b": null}}'))["payload"] == {
        "user": 12345678901234567890,
        "deep": {"a": None},
    }
    assert patch(typed(payload="[1, null]"))["payload"] == [1, None]
    assert patch(typed(payload="")) == {"payload": None}
    assert patch(typed(payload='{"new": true}'), payload=None)["payload"] == {"new": True}


def test_a_null_that_a_merge_patch_cannot_say_is_a_fault() -> None:
    form = typed(payload='{"user": null, "deep": {"a": 1, "b": null}, "more": null}')
    assert "payload" not in patch(form)
    assert form.faults["payload"][0].startswith("more:") or form.faults["payload"][0].startswith("user:")


def test_a_hidden_payload_stays_as_it_is() -> None:
    assert patch(typed(payload=""), payload_hidden=True, payload=None) == {}
    form = typed(payload='{"a": 1}')
    assert patch(form, payload_hidden=True, payload=None) == {}
    assert "may not see the old one" in form.faults["payload"][0]


_VALUES = st.recursive(
    st.integers(-3, 3) | st.booleans() | st.text("ab", max_size=2) | st.lists(st.integers(0, 2), max_size=2),
    lambda inner: st.dictionaries(st.text("xyz", min_size=1, max_size=1), inner, max_size=3),
    max_leaves=8,
)
_OBJECTS = st.dictionaries(st.text("xyz", min_size=1, max_size=1), _VALUES, max_size=3)


def _merged(target: Any, change: Any) -> Any:
    """RFC 7396, as its text has it."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


@given(before=_OBJECTS, after=_OBJECTS)
def test_a_merge_patch_leads_from_one_to_the_other(before: Any, after: Any) -> None:
    assert json.dumps(_merged(before, merge_patch(before, after)), sort_keys=True) == json.dumps(
        after, sort_keys=True
    )
