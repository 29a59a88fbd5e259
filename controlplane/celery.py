"""The Celery application: `celery -A controlplane worker`, `celery -A controlplane beat`.

Tasks carry ids only. The truth is in durable rows; a lost message costs a few seconds, until
beat looks at the rows again. So publishing never waits for a broker that is away.

There is a queue for each nature of work, and each wants workers of its own (`-Q driving`), so that what takes
long delays nothing that must be prompt:

driving  moves, evacuations, owners, cells told and looked at: seconds matter, each task is short
sending  what people hear of: at the mercy of receivers and of mail servers
long     exports, erasures, money: minutes of work at a time, nobody waits for the second
"""

import os

from celery import Celery
from celery.signals import setup_logging
from kombu import Exchange, Queue

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

from django.conf import settings

#: The queues; see above.
DRIVING, SENDING, LONG = QUEUES = ("driving", "sending", "long")

app = Celery("controlplane")
app.conf.update(
    broker_url=settings.CONFIGURATION.valkey_url,
    broker_transport="controlplane.broker:Transport",
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": 3600,
        "socket_timeout": 5,
        "socket_connect_timeout": 1,
        "retry_on_timeout": False,
        # For whoever publishes; workers wait for their broker as long as it takes.
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
        "interval_max": 0.1,
        "global_keyprefix": "celery:",
    },
    task_publish_retry=False,
    task_queues=[Queue(name, Exchange(name), routing_key=name) for name in QUEUES],
    task_default_queue=DRIVING,
    task_default_exchange=DRIVING,
    task_default_routing_key=DRIVING,
    task_routes={
        "controlplane.notifications.*": {"queue": SENDING},
        "controlplane.custody.*": {"queue": LONG},
        "billing.*": {"queue": LONG},
    },
    task_ignore_result=True,
    result_backend=None,
    task_serializer="json",
    accept_content=["json"],
    task_acks_late=False,  # a message is a hint: the rows say what is still to be done
    # Tasks wait for databases and cells. Results of forked workers come through pipes, which do
    # not survive that the event loop is rebuilt when the broker was away.
    worker_pool="threads",
    worker_prefetch_multiplier=1,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    enable_utc=True,
    timezone="UTC",
    beat_schedule={
        "drain the outbox": {
            "task": "controlplane.events.tasks.drain_outbox",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "prune the feed and idempotency keys": {
            "task": "controlplane.events.tasks.prune",
            "schedule": 600.0,
            "options": {"expires": 600},
        },
        "compare cells with what is recorded": {
            "task": "controlplane.topology.tasks.check_drift",
            "schedule": 30.0,
            "options": {"expires": 30},
        },
        "follow owners of cells": {
            "task": "controlplane.regions.tasks.follow_owners",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "drive moves that nobody drives": {
            "task": "controlplane.moves.tasks.drive_moves",
            "schedule": 2.0,
            "options": {"expires": 2},
        },
        "drive evacuations that nobody drives": {
            "task": "controlplane.evacuations.tasks.drive_evacuations",
            "schedule": 2.0,
            "options": {"expires": 2},
        },
        "drive rehearsals that nobody drives": {
            "task": "controlplane.rehearsals.tasks.drive_rehearsals",
            "schedule": 2.0,
            "options": {"expires": 2},
        },
        "look after cells": {
            "task": "controlplane.topology.tasks.observe_cells",
            "schedule": 10.0,
            "options": {"expires": 10},
        },
        "go on with drains and fills": {
            "task": "controlplane.topology.tasks.go_on_relocating",
            "schedule": 3.0,
            "options": {"expires": 3},
        },
        "top up the pool of workspace schemas": {
            "task": "controlplane.tenants.tasks.top_up_pool",
            "schedule": 30.0,
            "options": {"expires": 30},
        },
        "write down the end of support visits": {
            "task": "controlplane.operators.tasks.end_visits",
            "schedule": 10.0,
            "options": {"expires": 10},
        },
        "read what cells tell": {
            "task": "controlplane.notifications.tasks.read",
            "schedule": 3.0,
            "options": {"expires": 3},
        },
        "send notifications": {
            "task": "controlplane.notifications.tasks.send",
            "schedule": 3.0,
            "options": {"expires": 3},
        },
        "look for keys that end and cells that are silent": {
            "task": "controlplane.notifications.tasks.watch",
            "schedule": 30.0,
            "options": {"expires": 30},
        },
        "forget old notifications": {
            "task": "controlplane.notifications.tasks.prune",
            "schedule": 600.0,
            "options": {"expires": 600},
        },
        "write tenants' exports": {
            "task": "controlplane.custody.tasks.run_exports",
            "schedule": 10.0,
            "options": {"expires": 10},
        },
        "go on with erasures of tenants": {
            "task": "controlplane.custody.tasks.run_erasures",
            "schedule": 5.0,
            "options": {"expires": 5},
        },
        "have cells erase who was erased": {
            "task": "controlplane.custody.tasks.compare_erased",
            "schedule": 300.0,
            "options": {"expires": 300},
        },
        "remove expired exports of tenants": {
            "task": "controlplane.custody.tasks.expire_exports",
            "schedule": 3600.0,
            "options": {"expires": 3600},
        },
        "recompute usage days": {
            "task": "billing.tasks.recompute_dirty_days",
            "schedule": 10.0,
            "options": {"expires": 10},
        },
        "hold the ledger against the cells' runs": {
            "task": "billing.tasks.check_usage",
            "schedule": 300.0,
            "options": {"expires": 300},
        },
        "close months that every cell has sealed": {
            "task": "billing.tasks.close_periods",
            "schedule": 60.0,
            "options": {"expires": 60},
        },
        "draft invoices of closed months": {
            "task": "billing.invoices.tasks.draft_closed_months",
            "schedule": 3600.0,
            "options": {"expires": 3600},
        },
        "hold invoices against what they were made from": {
            "task": "billing.invoices.tasks.check_invoices",
            "schedule": 86_400.0,
            "options": {"expires": 86_400},
        },
        "finalise invoices that were reviewed": {
            "task": "billing.invoices.tasks.finalize_reviewed",
            "schedule": 3600.0,
            "options": {"expires": 3600},
        },
        "watch budgets": {
            "task": "billing.budgets.tasks.watch_budgets",
            "schedule": 300.0,
            "options": {"expires": 300},
        },
        "tell Stripe what was used": {
            "task": "billing.stripe.tasks.tell_usage",
            "schedule": 300.0,
            "options": {"expires": 300},
        },
        "compare Stripe's sums with ours": {
            "task": "billing.stripe.tasks.compare",
            "schedule": 21_600.0,
            "options": {"expires": 21_600},
        },
        "write exports": {
            "task": "billing.exports.tasks.run_exports",
            "schedule": 10.0,
            "options": {"expires": 10},
        },
        "ask for scheduled exports": {
            "task": "billing.exports.tasks.schedule_exports",
            "schedule": 600.0,
            "options": {"expires": 600},
        },
        "remove expired exports": {
            "task": "billing.exports.tasks.expire_exports",
            "schedule": 3600.0,
            "options": {"expires": 3600},
        },
    },
)
app.autodiscover_tasks(
    [
        "controlplane.events",
        "controlplane.moves",
        "controlplane.evacuations",
        "controlplane.rehearsals",
        "controlplane.custody",
        "controlplane.notifications",
        "controlplane.operators",
        "controlplane.topology",
        "controlplane.regions",
        "controlplane.tenants",
        "billing",
        "billing.budgets",
        "billing.exports",
        "billing.invoices",
        "billing.stripe",
    ]
)
app.set_default()


@setup_logging.connect
def _keep_django_logging(**_: object) -> None:
    """Celery leaves logging alone: Django has set it up."""
