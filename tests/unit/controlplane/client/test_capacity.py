"""The published design's figures from its inputs, and our cells' from what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controlplane.client.capacity import (
    Measured,
    Prices,
    Sizing,
    Workload,
    cells,
    fleet,
    with_headroom,
    writes,
)
from controlplane.client.cli import app

PRICES = Prices()
#: R1.7: reminders and digests of one app; the busiest minute is spread over itself.
REMINDERS, DIGESTS = 150_000, 25_000
ONE_APP = Workload(
    background_per_second=0, burst_runs=3_000, window_seconds=60, runs_per_day=REMINDERS + DIGESTS
)
#: R2.6: 500M runs a day; 10M due at midnight, windowed over five minutes.
COMPANY = Workload(
    background_per_second=3_449,
    burst_runs=10_000_000,
    window_seconds=300,
    runs_per_day=500_000_000,
    long_jobs=20_000,
    heartbeat_seconds=10,
    other_writes_per_day=22_000_000,
    burst_minutes_per_hour=11,
)


def test_the_busiest_minute_of_one_app() -> None:
    digests_at_eight = DIGESTS * 20 // 100 * 50 // 100
    assert digests_at_eight == 2_500
    assert digests_at_eight + 500 == ONE_APP.burst_runs
    assert ONE_APP.peak_per_second == 50


def test_writes_and_storage_of_one_app() -> None:
    a_day = REMINDERS * 8 + DIGESTS * 7
    assert a_day == 1_375_000
    found = writes(ONE_APP, Sizing(writes_per_run=a_day / ONE_APP.runs_a_day), PRICES)
    assert found.per_day == pytest.approx(1_375_000)
    assert found.per_day * 30 == pytest.approx(41_000_000, rel=0.01)
    assert ONE_APP.runs_a_day * 30 * 500 / 1e9 == pytest.approx(2.6, rel=0.02)


def test_peak_rates_of_a_company() -> None:
    assert COMPANY.burst_runs / COMPANY.window_seconds == pytest.approx(33_300, rel=0.002)
    assert COMPANY.peak_per_second == pytest.approx(36_800, rel=0.001)
    assert COMPANY.runs_a_day / 86_400 == pytest.approx(5_787, abs=1)
    assert COMPANY.heartbeats_per_second == 2_000
    other_hours = 9_500_000 / 300 + 3_449
    assert other_hours == pytest.approx(35_100, rel=0.001)


def test_executors_of_a_company_by_pool_with_a_zone_lost() -> None:
    found = fleet(COMPANY, Sizing())
    assert found.needed == {"HIGH": 15, "DEFAULT": 45, "LOW": 15}
    assert found.peak == {"HIGH": 23, "DEFAULT": 68, "LOW": 23}
    assert found.total == 114
    assert [with_headroom(n, 3) * 2 / 3 >= n for n in (15, 45)] == [True, True]
    assert 22 * 2 / 3 < 15


def test_what_the_fleet_of_a_company_costs() -> None:
    # Off the peak, twelve: one for each zone and pool, with room for the seven that are needed.
    assert math.ceil(COMPANY.background_per_second / Sizing().runs_per_executor) == 7
    found = fleet(COMPANY, Sizing(off_peak=12))
    assert found.total * 730 * PRICES.executor_hour == pytest.approx(3_290, rel=0.002)
    assert found.average * 730 * PRICES.executor_hour == pytest.approx(890, rel=0.01)


def test_each_pool_keeps_its_headroom_off_the_peak_too() -> None:
    assert fleet(COMPANY, Sizing()).off_peak == 3 + 8 + 3


def test_writes_of_a_company() -> None:
    found = writes(COMPANY, Sizing(provisioned_off_peak=40_000), PRICES)
    assert found.per_day == pytest.approx(3.04e9, rel=0.001)
    assert found.average_per_second == pytest.approx(35_200, rel=0.001)
    assert found.peak_per_second == pytest.approx(190_000, rel=0.001)
    assert found.on_demand_month == pytest.approx(57_000, rel=0.001)
    assert found.break_even == pytest.approx(0.29, abs=0.002)
    assert found.utilisation == pytest.approx(0.185, abs=0.001)
    assert found.provisioned_month == pytest.approx(32_000, rel=0.02)
    assert found.on_demand_month / 67_000 == pytest.approx(0.85, abs=0.005)


def test_our_constants_are_the_measured_ones() -> None:
    results = Path(__file__).resolve().parents[4] / "tests" / "bench" / "results" / "pipeline.json"
    median = json.loads(results.read_text())["median"]
    measured = Measured()
    assert median["cpu_us_per_run_executor"] == pytest.approx(measured.executor_us_per_run, rel=0.2)
    assert median["cpu_us_per_run_rest"] == pytest.approx(measured.rest_us_per_run, rel=0.3)
    assert median["cpu_us_per_run_postgres"] == pytest.approx(measured.database_us_per_run, rel=0.2)
    assert median["cpu_us_per_run_valkey"] == pytest.approx(measured.cache_us_per_run, rel=0.3)
    assert median["runs_per_second"] == pytest.approx(measured.cell_runs_per_second, rel=0.2)


def test_our_cells_for_the_same_company() -> None:
    found = cells(COMPANY, Measured(), PRICES)
    assert found.cells == 8
    assert found.row_writes_per_second == pytest.approx(110_347, abs=5)
    assert (found.executor_cores, found.database_cores, found.other_cores) == (18, 10, 3)
    assert found.cost_month == pytest.approx(
        31 * 730 * 0.0395 + 2 * 500_000_000 * 30 * 700 / 1e9 * 0.25, rel=1e-6
    )


def test_the_command_needs_no_key() -> None:
    asked = ["capacity", "--runs-per-second", "100", "--burst", "30000", "--window", "60", "--json"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["peak_runs_per_second"] == 600.0
    assert found["cells"] == 1
    shown = CliRunner().invoke(app, asked[:-1])
    assert "peak runs per second" in shown.stdout


@pytest.mark.parametrize(
    "odd",
    [
        ["--runs-per-second", "-5"],
        ["--runs-per-second", "nan"],
        ["--runs-per-second", "inf"],
        ["--runs-per-second", "1", "--burst", "-1"],
        ["--runs-per-second", "1", "--kept-days", "-3"],
        ["--runs-per-second", "1", "--core-hour", "-1"],
        ["--runs-per-second", "1", "--runs-per-day", "86401"],
        ["--runs-per-second", "1", "--policy", "STRICT"],
        ["--runs-per-second", "1", "--shares", "100"],
        ["--runs-per-second", "1", "--shares", "60,nan"],
    ],
)
def test_what_cannot_be_planned_with_is_refused_by_name(odd: list[str]) -> None:
    answer = CliRunner().invoke(app, ["capacity", *odd])
    assert answer.exit_code == 2
    assert odd[-2] in answer.output
