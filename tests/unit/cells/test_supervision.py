from __future__ import annotations

import asyncio

from cells.observability.metrics import Metrics
from cells.supervision import Supervisor
from tests.waiting import eventually


class Part:
    """Ends as it is told."""

    def __init__(self, how: str, started: list[str]):
        self.how = how
        self.started = started

    async def run(self, stop: asyncio.Event) -> None:
        self.started.append(self.how)
        if self.how == "crash":
            raise LookupError("inside")
        if self.how == "work":
            await stop.wait()


async def test_a_role_that_crashes_or_ends_is_built_and_started_anew() -> None:
    metrics, stop, started = Metrics(), asyncio.Event(), list[str]()
    ways = iter(["crash", "end", "work"])
    keeping = asyncio.create_task(
        Supervisor(metrics).keep("part", lambda: Part(next(ways), started), stop, first_pause=0.001)
    )
    await eventually(lambda: started == ["crash", "end", "work"])
    assert metrics.registry.get_sample_value("host_role_restarts_total", {"role": "part"}) == 2
    assert metrics.registry.get_sample_value("host_role_running", {"role": "part"}) == 1
    stop.set()
    await keeping
    assert metrics.registry.get_sample_value("host_role_restarts_total", {"role": "part"}) == 2
    assert metrics.registry.get_sample_value("host_role_running", {"role": "part"}) == 0


async def test_a_stop_ends_the_pause() -> None:
    stop, started = asyncio.Event(), list[str]()
    keeping = asyncio.create_task(
        Supervisor(Metrics()).keep("part", lambda: Part("crash", started), stop, first_pause=3600)
    )
    await eventually(lambda: started == ["crash"])
    stop.set()
    await asyncio.wait_for(keeping, 5)
