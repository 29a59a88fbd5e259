"""kill -9 in the middle of an export: no half file, and the next try is the same as if nothing had been."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from billing.exports import running
from billing.exports.machine import Dataset, ExportState
from billing.exports.models import Export
from billing.exports.places import folder_of
from billing.models import UsageHour
from tests.component.billing.exports.conftest import asked, files_of, used_in_october
from tests.waiting import eventually_sync

pytestmark = pytest.mark.slow
_WORKER = """
import sys, uuid
import django
django.setup()
from django.conf import settings
settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "rows_per_file": 20}
from billing.exports import running
print(running.run(uuid.UUID(sys.argv[1])))
"""


def _worker(export: Export, root: Path, scratch: Path) -> subprocess.Popen[bytes]:
    said = connection.settings_dict
    url = f"postgresql://{said['USER']}:{said['PASSWORD']}@{said['HOST']}:{said['PORT']}/{said['NAME']}"
    scratch.mkdir()
    return subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(export.id)],
        cwd=root,
        env={**os.environ, "CONTROL_DATABASE_URL": url, "TMPDIR": str(scratch)},
    )


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_killed_in_the_middle(
    ownership: Any, root: Path, tmp_path: Path, folder: Path, settings: Any
) -> None:
    tenant = used_in_october(closed=False)
    start = datetime(2026, 10, 10, tzinfo=UTC)
    UsageHour.objects.bulk_create(
        UsageHour(
            tenant_id=tenant.id, hour=start + timedelta(hours=n % 480), metric=metric, region_policy="STRICT",
            cell=f"cell-{n // 480}", quantity=n, records=1,
        )
        for n in range(4_800)
        for metric in ("job_runs", "run_attempts")
    )  # fmt: skip
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "rows_per_file": 20}
    export = asked(tenant, Dataset.USAGE)
    mine = folder / folder_of(export)
    worker = _worker(export, root, tmp_path / "scratch")
    try:
        eventually_sync(lambda: any(mine.glob("*.csv")), timeout=60)
        with transaction.atomic():
            # Its next look at the lease waits for this row: it stands in the middle, and is killed there.
            held = Export.objects.select_for_update().get(pk=export.pk)
            assert held.state == ExportState.RUNNING
            os.kill(worker.pid, signal.SIGKILL)
            worker.wait(30)
    finally:
        if worker.poll() is None:
            worker.kill()
            worker.wait()
    left = {path.name for path in mine.iterdir()}
    assert left, "it had put files"
    assert "manifest.json" not in left
    for path in mine.glob("*.csv"):
        assert path.read_bytes().endswith(b"\n")
        assert path.read_bytes().count(b"\n") == 21, "a whole file, of 20 rows and their names"
    assert not running.run(export.id), "its lease has not lapsed yet"

    def taken_over() -> bool:
        # What the killed one had sent last may still be done by the database: a renewal, once.
        past = datetime.now(UTC) - timedelta(seconds=1)
        Export.objects.filter(pk=export.pk).update(leased_until=past)
        return running.run(export.id)

    eventually_sync(taken_over, timeout=30)
    export.refresh_from_db()
    assert (export.state, export.attempts, export.rows_done) == (ExportState.DONE, 2, 9_603)
    found = files_of(folder, export)
    assert found.keys() == {file["name"] for file in export.files}
    whole = {name for name in left if name.endswith(".csv")}
    assert whole <= found.keys(), "what the killed one had put is what the second try wrote"
    again = asked(tenant, Dataset.USAGE)
    assert running.run(again.id)
    assert {k: v for k, v in files_of(folder, again).items() if k != "manifest.json"} == {
        k: v for k, v in found.items() if k != "manifest.json"
    }
