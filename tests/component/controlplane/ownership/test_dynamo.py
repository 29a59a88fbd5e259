"""The DynamoDB ownership store against a local table: conformance, lost answers, outages, addresses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError

from controlplane.ownership import OwnershipStore, Superseded
from controlplane.ownership.dynamo import DynamoOwnershipStore, from_url
from controlplane.ownership.store import OwnershipUnavailable
from tests.aws_standin import aws_server
from tests.conformance.ownership.suite import OwnershipConformance


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with aws_server(tmp_path_factory.mktemp("dynamodb"), "dynamodb") as url:
        yield url


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoOwnershipStore]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    opened = from_url(f"dynamodb://ownership?region=eu-west-1&endpoint={endpoint}")
    opened.ensure_table()
    yield opened
    opened.close()


class TestDynamo(OwnershipConformance):
    @pytest.fixture
    def store(self, store: DynamoOwnershipStore) -> OwnershipStore:
        return store


def test_a_table_is_made_once(store: DynamoOwnershipStore) -> None:
    assert store.ensure_table() is False


@pytest.mark.parametrize("first", [True, False])
def test_a_claim_whose_answer_was_lost_is_known_again(store: DynamoOwnershipStore, first: bool) -> None:
    """The library sends a request again when its answer is lost; the second one meets the first."""
    tenant = uuid.uuid4()
    seen = None if first else store.claim_tenant(tenant, cell="a", expected=None).epoch
    twice = _sent_twice(store, "PutItem" if first else "UpdateItem")
    claimed = store.claim_tenant(tenant, cell="b", expected=seen)
    assert twice == [True]
    assert store.tenant(tenant) == claimed
    with pytest.raises(Superseded):
        store.claim_tenant(tenant, cell="c", expected=seen)


def _sent_twice(store: DynamoOwnershipStore, operation: str) -> list[bool]:
    """Has the first conditional write arrive, and its answer get lost."""
    lost: list[bool] = []
    client: Any = store._client

    def lose(**told: Any) -> Any:
        if not lost and b"ConditionExpression" in told["request"].body:
            lost.append(True)
            answer = client._endpoint.http_session.send(told["request"])
            assert answer.status_code == 200
            raise ReadTimeoutError(endpoint_url=told["request"].url)

    client.meta.events.register(f"before-send.dynamodb.{operation}", lose)
    return lost


def test_a_store_that_is_away_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    away = DynamoOwnershipStore("t", region="eu-west-1", endpoint="http://127.0.0.1:1")
    with pytest.raises(OwnershipUnavailable):
        away.tenant(uuid.uuid4())
    with pytest.raises(OwnershipUnavailable):
        away.claim_cell("c", region="a", expected=None)
    away.close()


@pytest.mark.parametrize(
    "url",
    ["dynamodb://", "dynamodb://t/x", "dynamodb://t?zone=a", "postgresql://h/db", "dynamodb://t?region"],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"dynamodb|bad query"):
        from_url(url)
