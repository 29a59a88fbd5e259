"""From the form's fields to the API's body, and back with its faults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cells.api.models import JobIn
from controlplane.console.cells_client import Fault
from controlplane.console.job_form import DEFAULTS, FIELDS, JobForm, new_form, place_of, read_form


def form(**values: str) -> JobForm:
    return read_form({**DEFAULTS, "time_zone": "Europe/Berlin", "target_id": "tgt_a", **values})


def sent(made: JobForm) -> Any:
    return msgspec.json.decode(msgspec.json.encode(made.body()))


@pytest.mark.parametrize(
    ("values", "schedule"),
    [
        (
            {"kind": "CRON", "cron": "0 9 * * 1-5", "end_at": "2027-01-01T00:00"},
            {
                "type": "CRON", "cron": "0 9 * * 1-5", "time_zone": "Europe/Berlin",
                "dst": {"gap": "SHIFT", "overlap": "FIRST"}, "end_at": "2027-01-01T00:00:00Z",
            },
        ),
        (
            {
                "kind": "CRON", "dialect": "QUARTZ", "cron": "0 0 9 ? * L", "calendar": "cal_de",
                "roll": "NEXT",
            },
            {
                "type": "CRON", "cron": "0 0 9 ? * L", "dialect": "QUARTZ", "time_zone": "Europe/Berlin",
                "calendar": "cal_de", "roll": "NEXT", "dst": {"gap": "SHIFT", "overlap": "FIRST"},
            },
        ),
        ({"kind": "RATE", "every": "15", "every_unit": "60"}, {"type": "RATE", "every_seconds": 900}),
        ({"kind": "RATE", "every": "1.5", "every_unit": "60"}, {"type": "RATE", "every_seconds": 90}),
        ({"kind": "RATE", "every": "soon", "every_unit": "60"}, {"type": "RATE", "every_seconds": "soon"}),
        (
            {"kind": "ONCE", "run_at": "2026-12-01T09:00"},
            {
                "type": "ONCE", "run_at": "2026-12-01T09:00:00", "time_zone": "Europe/Berlin",
                "dst": {"gap": "SHIFT", "overlap": "FIRST"},
            },
        ),
        ({"kind": "NOW"}, {"type": "NOW"}),
    ],
)  # fmt: skip
def test_each_kind_of_schedule(values: dict[str, str], schedule: dict[str, Any]) -> None:
    assert form(**values).schedule() == schedule


def test_the_whole_body_is_what_the_api_takes() -> None:
    made = form(
        name="Digest", path="/v1/x", tags="a, b ,", headers="X-A: 1\nX-B: two: three",
        payload='{"n": 12345678901234567890}', dispatch_window_seconds="60", key="digest",
        concurrency_key="warehouse", max_concurrent="2", misfire_grace_seconds="5", on_failure="tgt_pager",
        on_failure_path="/x",
    )  # fmt: skip
    body = sent(made)
    assert made.faults == {}
    assert body["tags"] == ["a", "b"]
    assert body["headers"] == {"X-A": "1", "X-B": "two: three"}
    assert body["payload"] == {"n": 12345678901234567890}
    assert body["on_failure"] == {"target_id": "tgt_pager", "path": "/x"}
    assert (body["max_concurrent"], body["misfire_grace_seconds"]) == (2, 5)
    assert "on_success" not in body
    JobIn.model_validate_json(msgspec.json.encode(made.body()))


def test_what_cannot_be_sent_is_said_at_once_and_completely() -> None:
    made = form(headers="nonsense\nA: 1\nA: 2", payload="{")
    made.body()
    assert len(made.faults["headers"]) == 2
    assert made.faults["payload"][0].startswith("is not JSON")


def test_the_apis_faults_come_to_their_fields() -> None:
    made = form()
    made.blame(
        [
            Fault(place="/schedule/cron", detail="minute: 61 is above 59"),
            Fault(place="/retry_policy/max_attempts", detail="too many"),
            Fault(place="/headers/X-A", detail="is reserved"),
            Fault(place="/schedule/dst/gap", detail="odd"),
            Fault(place="/on_success/target_id", detail="is not approved"),
            Fault(place="/something/else", detail="strange"),
            Fault(place="", detail="bad"),
        ]
    )
    assert made.faults == {
        "cron": ["minute: 61 is above 59"],
        "max_attempts": ["too many"],
        "headers": ["is reserved"],
        "dst_gap": ["odd"],
        "on_success": ["is not approved"],
    }
    assert made.general == ["/something/else strange", "bad"]
    assert [name for name, _ in made.field_faults] == [
        "cron",
        "dst_gap",
        "headers",
        "max_attempts",
        "on_success",
    ]


@given(st.dictionaries(st.sampled_from(FIELDS), st.text()))
def test_any_input_makes_a_body(values: dict[str, str]) -> None:
    msgspec.json.encode(read_form(values).body())


@given(st.text())
def test_any_pointer_has_a_known_place_or_none(pointer: str) -> None:
    assert place_of(pointer) in {*FIELDS, None}


def test_the_url_may_fill_the_form_in() -> None:
    made = new_form({"target_id": "tgt_b", "csrfmiddlewaretoken": "x"}, "Asia/Tokyo")
    assert (made.values["target_id"], made.values["time_zone"]) == ("tgt_b", "Asia/Tokyo")
    assert "csrfmiddlewaretoken" not in made.values
    assert made.token != new_form({}, "UTC").token
