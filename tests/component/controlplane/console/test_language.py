"""The language of definitions as a page."""

from __future__ import annotations

import pytest

from tests.component.controlplane.console.cell import Cell
from tests.component.controlplane.console.conftest import Signed
from tests.component.controlplane.console.flows import answers

pytestmark = pytest.mark.django_db


def shown(signed: Signed, path: str) -> str:
    answer = signed.browser.get(signed.base + path)
    assert answer.status_code == 200, path
    return str(answer.content.decode())


def test_the_language_of_definitions_is_a_page_that_others_point_to(cell: Cell, owner: Signed) -> None:
    cell.answers |= answers()
    page = shown(owner, "/definition-language")
    for text in (
        '<h2 id="limits">Limits</h2>',
        "workflow: order",
        "compensate_with: refund",
        '<th scope="col">what it does</th>',
        '<td data-label="what it does">waits that long</td>',
        "when: ${signals.picked_up.payload.by != &quot;customer&quot;}",
    ):
        assert text in page
    for elsewhere in ("/start", "/reference", "/definitions/", "/definition-new"):
        assert f'href="{owner.base}/definition-language"' in shown(owner, elsewhere), elsewhere
