"""kill -9 between sending and writing it down: the message comes again, with the same id and body."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from controlplane.notifications import sending
from controlplane.notifications.models import Delivery
from tests.component.controlplane.factories import TenantFactory
from tests.component.controlplane.notifications.conftest import made, told
from tests.component.controlplane.notifications.receiver import Receiver
from tests.waiting import eventually_sync

_SENDER = """
import django
django.setup()
from controlplane.notifications import sending
print(sending.drain(5))
"""


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_killed_before_it_knew(ownership: Any, receiver: Receiver) -> None:
    tenant = TenantFactory()
    made(tenant, url=receiver.url)
    told(tenant, "evt_1_1_1")
    said = connection.settings_dict
    url = f"postgresql://{said['USER']}:{said['PASSWORD']}@{said['HOST']}:{said['PORT']}/{said['NAME']}"
    # The receiver has the message, and its answer waits: the sender knows nothing yet.
    receiver.before_answer = lambda got: None if len(receiver.got) > 1 else _wait(receiver)
    sender = subprocess.Popen(
        [sys.executable, "-c", _SENDER],
        cwd=Path(__file__).parents[4],
        env={**os.environ, "CONTROL_DATABASE_URL": url},
    )
    try:
        eventually_sync(lambda: receiver.got, timeout=60)
        os.kill(sender.pid, signal.SIGKILL)
        sender.wait(30)
    finally:
        if sender.poll() is None:
            sender.kill()
            sender.wait()
    assert sending.drain(5) == 0, "its lease has not lapsed yet"
    Delivery.objects.update(leased_until=datetime.now(UTC) - timedelta(seconds=1))
    assert sending.drain(5) == 1
    first, second = receiver.got
    assert (first.id, first.body) == (second.id, second.body)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("DELIVERED", 2)
    tries = list(delivery.tries.order_by("n").values_list("n", "status", "error"))
    assert tries == [(1, None, "whoever sent it ended before it knew the answer"), (2, 204, "")]


def _wait(receiver: Receiver) -> None:
    receiver.released.wait(60)
