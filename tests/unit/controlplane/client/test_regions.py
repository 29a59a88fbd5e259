"""The published design's figures for three regions, from inputs; and our cells' from what was measured.

The design's own table of volumes is lost. It says 1,000 million job runs and 500 million steps a day; the
writes and shares below are those with which all its figures come out.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from controlplane.client.capacity import Measured, Prices
from controlplane.client.cli import app
from controlplane.client.regions import (
    Kind,
    Offers,
    Transfer,
    build_or_buy,
    cost_per_million,
    cost_under,
    failover,
    headroom,
    spread,
    volume,
)

MILLION_WRITES = Prices().million_writes
#: One region: 67,000 dollars for 15,000 million runs a month, of which 57,000 are writes (R2.6).
ONE_REGION_RUN = 67_000 / 15_000
ONE_REGION_REST = 10_000 / 15_000
#: 3.04 thousand million writes for 500 million runs.
RUN = Kind(name="run", per_day=1e9, writes=6.08, replicated=0.82, rest_per_million=ONE_REGION_REST)
STEP = Kind(name="step", per_day=5e8, writes=4.9, replicated=0.86, rest_per_million=0.67)
#: Creations, signals, heartbeats, timers that were set and cancelled.
OTHER = Kind(name="other", per_day=1e9, writes=1.55, replicated=0.82)
#: Of the load, by region.
SHARES = (0.60, 0.25, 0.15)
#: Timers a day: the runs, and what workflows wait for.
TIMERS_A_DAY = 1.3e9


def test_replication_is_the_bill() -> None:
    found = volume([RUN, STEP, OTHER])
    assert found.replicated == pytest.approx(16.7e9, rel=0.01)
    assert found.replica_share == pytest.approx(0.62, abs=0.005)
    assert found.replicated * 500 / 1e12 == pytest.approx(8, rel=0.06), (
        "terabytes a day, half a kilobyte each"
    )


def test_a_run_costs_more_in_three_regions() -> None:
    assert pytest.approx(4.47, abs=0.005) == ONE_REGION_RUN
    assert cost_per_million(RUN, MILLION_WRITES) / ONE_REGION_RUN == pytest.approx(2.4, abs=0.02)


def test_a_million_steps() -> None:
    assert cost_per_million(STEP, MILLION_WRITES) == pytest.approx(9, abs=0.2)


def test_the_levers_are_per_policy() -> None:
    everywhere = cost_under(RUN, "HOME_ASYNC", MILLION_WRITES) - RUN.rest_per_million
    at_home = cost_under(RUN, "SINGLE_REGION", MILLION_WRITES) - RUN.rest_per_million
    assert at_home == pytest.approx(everywhere / 3)
    one_partner = Kind(name="run", per_day=1e9, writes=6.08, replicated=0.82, copies=1)
    assert volume([one_partner]).replicated == pytest.approx(volume([RUN]).replicated / 2)


def test_headroom_for_a_lost_region() -> None:
    assert headroom(SHARES) == pytest.approx(0.725)
    assert headroom((1.0,)) == 0.0
    assert headroom((1 / 3, 1 / 3, 1 / 3)) == pytest.approx(0.5)


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=6))
def test_headroom_is_at_least_what_the_largest_region_carries(loads: list[float]) -> None:
    shares = [load / sum(loads) for load in loads]
    largest, ready = max(shares), headroom(shares)
    assert ready >= largest - 1e-9
    assert headroom([10 * share for share in shares]) == pytest.approx(ready)


def test_back_on_schedule() -> None:
    lost = TIMERS_A_DAY * SHARES[0] / 86_400
    assert lost == pytest.approx(9_028, abs=1)
    found = failover(lost)
    assert found.owner_seconds == 25
    assert found.overdue == pytest.approx(113_000, rel=0.002)
    assert found.ahead == pytest.approx(2.7e6, rel=0.005)
    assert found.ahead / 50_000 == pytest.approx(55, rel=0.02)
    assert found.on_schedule_seconds < 120


def test_our_cells_pay_for_transfer_and_standbys_instead() -> None:
    measured, prices = Measured(wal_bytes_per_run=2_000), Transfer()
    found = spread(1_000, "HOME_ASYNC", measured, prices)
    assert found.bytes_replicated_per_run == 4_000
    assert found.replicated_gb_month == pytest.approx(1_000 * 86_400 * 30 * 4_000 / 1e9)
    assert found.transfer_month == pytest.approx(found.replicated_gb_month * 0.02)
    assert found.month == pytest.approx(
        found.transfer_month + found.standby_cores_month + found.standby_storage_month
    )
    assert spread(1_000, "SINGLE_REGION", measured, prices).month == 0


def test_at_the_size_of_one_app_buying_costs_nothing() -> None:
    buy, here, _ = build_or_buy(
        runs_month=175_000 * 30,
        steps_month=0,
        run_million=4.47,
        step_million=9,
        team_month=0,
        offers=Offers(),
    )
    assert buy.month == 0, "5.3 million invocations are inside the free ones"
    assert here.month == pytest.approx(5.25 * 4.47)


def test_a_company_would_pay_less_elsewhere_for_less() -> None:
    buy, here, _ = build_or_buy(
        runs_month=15e9, steps_month=0, run_million=4.47, step_million=9, team_month=0, offers=Offers()
    )
    assert buy.month == pytest.approx(15_000, rel=0.002)
    assert here.month == pytest.approx(67_000, rel=0.01)


def test_a_product_in_three_regions_builds_and_a_twentieth_of_it_buys() -> None:
    """500 million steps a day; the team costs 2.4 million a year."""
    team = 200_000.0
    for steps, cheapest in ((15e9, "here"), (15e9 / 20, "buy")):
        buy, here, with_team = build_or_buy(
            runs_month=0,
            steps_month=steps,
            run_million=10.7,
            step_million=9,
            team_month=team,
            offers=Offers(),
        )
        assert here.month < buy.month
        assert (with_team.month < buy.month) is (cheapest == "here")


def test_the_commands_need_no_key() -> None:
    asked = ["build-or-buy", "--runs-month", "15e9", "--steps-month", "0", "--run-million", "4.47", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["choices"][0]["name"].startswith("EventBridge")
    assert found["choices"][0]["month"] == pytest.approx(14_986)
    assert found["prices_as_of"]
    edited = CliRunner().invoke(app, [*asked, "--scheduler-million", "2"])
    assert json.loads(edited.stdout)["choices"][0]["month"] == pytest.approx(29_972)
    three = CliRunner().invoke(
        app, ["capacity", "--runs-per-second", "9028", "--shares", "60,25,15", "--json"]
    )
    assert three.exit_code == 0, three.output
    regions = json.loads(three.stdout)["regions"]
    assert regions["headroom"] == pytest.approx(0.725)
    assert regions["on_schedule_seconds"] < 120
    wrong = CliRunner().invoke(app, ["capacity", "--runs-per-second", "1", "--shares", "60,x"])
    assert wrong.exit_code == 2
