"""What changed, field by field."""

from __future__ import annotations

from controlplane.console.audit import Difference, differences


def test_only_what_changed_is_told() -> None:
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3}) == [Difference(field="b", before="2", after="3")]


def test_made_and_removed() -> None:
    assert differences(None, {"a": ["x", "y"]}) == [Difference(field="a", before=None, after="x, y")]
    assert differences({"a": True}, None) == [Difference(field="a", before="yes", after=None)]
    assert differences(None, None) == []


def test_nested_fields_have_paths_and_nothing_is_a_dash() -> None:
    assert differences({"q": {"runs": 1}, "until": None}, {"q": {"runs": 2}, "until": "now"}) == [
        Difference(field="q.runs", before="1", after="2"),
        Difference(field="until", before="–", after="now"),
    ]
