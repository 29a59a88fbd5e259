"""What a cell answers about calendars and backfills."""

_JOB_ID = "job_01m8njb93zg06vpdgn4y6fe2g1"

CALENDAR = {
    "calendar_id": "cal_de",
    "name": "Holidays <b>",
    "version": 2,
    "count": 1,
    "first": "2026-12-25",
    "last": "2026-12-25",
    "weekdays": ["SAT", "SUN"],
    "pending": False,
    "moved": 1,
    "created_by": "user:x",
    "created_at": "2026-11-30T06:00:00Z",
    "updated_at": "2026-11-30T06:00:00Z",
    "dates": [{"date": "2026-12-25", "name": "Christmas Day"}],
}
BACKFILL_PLAN = {
    "job_id": _JOB_ID,
    "from": "2026-11-28T00:00:00Z",
    "until": "2026-11-30T00:00:00Z",
    "occurrences": 5,
    "present": 1,
    "skipped_rows": 2,
    "to_run": 4,
    "limit": 10_000,
    "first": "2026-11-28T08:00:00Z",
    "last": "2026-11-29T08:00:00Z",
    "seconds": 1,
    "max_per_second": 10,
}
BACKFILL = {
    "backfill_id": "bf_1",
    "job_id": _JOB_ID,
    "from": "2026-11-28T00:00:00Z",
    "until": "2026-11-30T00:00:00Z",
    "state": "RUNNING",
    "total": 5,
    "processed": 2,
    "started": 1,
    "replaced": 1,
    "present": 1,
    "cursor": "2026-11-29T00:00:00Z",
    "reason": None,
    "max_per_second": 10,
    "created_by": "user:x",
    "created_at": "2026-11-30T06:41:00Z",
    "finished_at": None,
    "stopped_by": None,
}
