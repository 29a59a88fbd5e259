"""For how long workflows may undo before they need a person: a tenant's own setting, in the console."""

from __future__ import annotations

import pytest

from tests.component.controlplane.console.conftest import Signed

pytestmark = pytest.mark.django_db


def test_for_how_long_workflows_may_undo_is_set(owner: Signed) -> None:
    url, tenant = owner.base + "/settings/limits", owner.membership.tenant
    assert 'value="1d"' in owner.browser.get(url).content.decode()
    for text in ("", "soon", "500ms", "0", "9000d"):
        answer = owner.browser.post(url, {"compensation_deadline_seconds": text})
        assert answer.status_code == 422, text
        assert "fault-compensation_deadline_seconds" in answer.content.decode()
    tenant.refresh_from_db()
    assert tenant.compensation_deadline_seconds == 86_400
    said = owner.browser.post(url, {"compensation_deadline_seconds": "36h"}, follow=True).content.decode()
    assert "Workflows may undo for 36h, after 1d until now" in said
    tenant.refresh_from_db()
    assert tenant.compensation_deadline_seconds == 36 * 3600
