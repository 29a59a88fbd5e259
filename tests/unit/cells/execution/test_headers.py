import re

from multidict import CIMultiDict

from cells.execution.headers import RESERVED, attempt_traceparent, call_headers

RUN = "job_01h455vb4pex5vsknk084sn02q:2026-09-28T00:00:00Z"
TEMPLATE = CIMultiDict({"Content-Type": "application/json", "Authorization": "Bearer ours"})


def made(own: dict[str, str]) -> CIMultiDict[str]:
    return call_headers(
        TEMPLATE,
        own,
        run_id=RUN,
        epoch=1 << 21,
        attempt=3,
        timestamp="1790000000",
        signature="v1,abc",
        traceparent="00-x",
    )


def test_our_headers() -> None:
    assert dict(made({})) == {
        "Content-Type": "application/json",
        "Authorization": "Bearer ours",
        "Idempotency-Key": RUN,
        "X-Fencing-Token": "2097152",
        "X-Clockhouse-Attempt": "3",
        "webhook-id": RUN,
        "webhook-timestamp": "1790000000",
        "webhook-signature": "v1,abc",
        "traceparent": "00-x",
    }


def test_a_job_adds_its_own_but_takes_nobodys_place() -> None:
    hostile = {name.upper(): "theirs" for name in RESERVED}
    hostile |= {"content-type": "text/plain", "AUTHORIZATION": "theirs"}
    assert made({"X-Team": "billing", **hostile}) == made({"X-Team": "billing"})
    assert made({"X-Team": "billing"})["x-team"] == "billing"
    assert "X-Team" not in TEMPLATE


def test_a_stored_trace_is_continued_with_a_new_span() -> None:
    stored = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    assert (
        attempt_traceparent(stored, RUN, 0xABC) == "00-0af7651916cd43dd8448eb211c80319c-0000000000000abc-00"
    )


def test_a_run_nobody_traced_has_one_trace_for_all_attempts() -> None:
    first, second = attempt_traceparent(None, RUN, 1), attempt_traceparent("junk", RUN, 0)
    assert first == second
    assert re.fullmatch(r"00-[0-9a-f]{32}-0{15}1-01", first)
    assert attempt_traceparent(None, RUN + ":1", 1) != first
