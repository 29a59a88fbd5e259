from multidict import CIMultiDict

from cells.execution.headers import RESERVED, call_headers

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


def test_a_tracestate_is_sent_where_there_is_one() -> None:
    sent = call_headers(
        TEMPLATE, {"Tracestate": "theirs=1"}, run_id=RUN, epoch=1, attempt=1, timestamp="1", signature="",
        traceparent="00-x", tracestate="a=1",
    )  # fmt: skip
    assert sent.getall("tracestate") == ["a=1"]
    assert "tracestate" not in made({"tracestate": "theirs=1"})
