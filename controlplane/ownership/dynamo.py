"""The ownership store on DynamoDB: one table, conditional writes of single items, nothing more.

Made for a global table with strong consistency over regions (MRSC), which knows neither transactions
nor, in every region, a queue of writers. A claim takes a fresh value from the counter first and then
writes it on top of the epoch it was based on: a caller names the epoch it *saw*, so the value drawn
afterwards is higher, and of two claimers one wins. A value is drawn once, so a claim whose answer was
lost and that the library sent again is recognised by it: the item holds our value, so we won.

Items: `pk` = `counter`, `cell#<name>`, `tenant#<uuid>`, `promotion#<cell>#<timeline>`,
`vote#<cell>#<epoch>#<region>`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from controlplane.ownership.store import (
    CellOwnership,
    OwnershipUnavailable,
    PromotionRecord,
    Superseded,
    TenantOwnership,
)

SCHEME = "dynamodb"
#: Seconds; and how often the library tries again by itself.
_CONNECT, _READ, _ATTEMPTS = 2, 3, 3
_LOST = "ConditionalCheckFailedException"

Item = dict[str, Any]


class DynamoOwnershipStore:
    """See `OwnershipStore`. Thread-safe; connects when first used."""

    def __init__(self, table: str, *, region: str | None = None, endpoint: str | None = None) -> None:
        self._table = table
        self._client: Any = boto3.client(
            "dynamodb",
            region_name=region,
            endpoint_url=endpoint,
            config=Config(
                connect_timeout=_CONNECT,
                read_timeout=_READ,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            ),
        )

    def close(self) -> None:
        self._client.close()

    def ensure_table(self) -> bool:
        """Makes the table where there is none; whether it did. Replicas are the operator's to add."""
        with _reachable():
            try:
                self._client.create_table(
                    TableName=self._table,
                    KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
                    AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
                    BillingMode="PAY_PER_REQUEST",
                )
            except self._client.exceptions.ResourceInUseException:
                return False
            self._client.get_waiter("table_exists").wait(
                TableName=self._table, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
            )
        return True

    def cell(self, name: str) -> CellOwnership | None:
        item = self._read(_cell_key(name))
        return None if item is None else _cell(item)

    def claim_cell(
        self, name: str, *, region: str, expected: int | None, renewals: int | None = None
    ) -> CellOwnership:
        epoch = self._fresh_epoch()
        if expected is None:
            wanted = CellOwnership(cell=name, region=region, epoch=epoch, renewals=0, promotions=0)
            current = self._first(_cell_item(wanted))
            if current is not None and _number(current, "epoch") != epoch:
                raise Superseded(_cell(current))
            return wanted
        item = self._write(
            _cell_key(name),
            "#region = :region, epoch = :epoch, renewals = :zero, promotions = promotions + :one",
            "epoch = :expected" + (" AND renewals = :renewals" if renewals is not None else ""),
            {
                ":region": {"S": region},
                ":epoch": _n(epoch),
                ":expected": _n(expected),
                **_ZERO_ONE,
                **({":renewals": _n(renewals)} if renewals is not None else {}),
            },
            names={"#region": "region"},
        )
        return _cell(self._won(_cell_key(name), item, epoch=epoch, of=_cell))

    def renew_cell(self, name: str, *, region: str, epoch: int) -> CellOwnership:
        item = self._write(
            _cell_key(name),
            "renewals = renewals + :one",
            "epoch = :epoch AND #region = :region",
            {":one": _n(1), ":epoch": _n(epoch), ":region": {"S": region}},
            names={"#region": "region"},
        )
        if item is None:
            raise Superseded(self.cell(name))
        return _cell(item)

    def promotions(self, cell: str) -> Sequence[PromotionRecord]:
        """Numbers have no gaps, so they are asked for one after the other: there are few."""
        found: list[PromotionRecord] = []
        while (item := self._read(_promotion_key(cell, len(found) + 1))) is not None:
            found.append(_promotion(cell, item))
        return found

    def record_promotion(self, record: PromotionRecord) -> None:
        try:
            with _reachable():
                self._client.put_item(
                    TableName=self._table,
                    Item=_promotion_item(record),
                    ConditionExpression="attribute_not_exists(pk) OR (epoch = :epoch AND #region = :region)",
                    ExpressionAttributeValues={":epoch": _n(record.epoch), ":region": {"S": record.region}},
                    ExpressionAttributeNames={"#region": "region"},
                )
        except _Lost:
            raise Superseded(None) from None

    def cast_vote(self, cell: str, *, epoch: int, region: str, place: str) -> None:
        self._first({**_vote_key(cell, epoch, region), "place": {"S": place}})

    def votes(self, cell: str, *, epoch: int, regions: Sequence[str]) -> Mapping[str, str]:
        items = {region: self._read(_vote_key(cell, epoch, region)) for region in sorted(regions)}
        return {region: item["place"]["S"] for region, item in items.items() if item is not None}

    def tenant(self, tenant_id: uuid.UUID) -> TenantOwnership | None:
        item = self._read(_tenant_key(tenant_id))
        return None if item is None else _tenant(item)

    def claim_tenant(self, tenant_id: uuid.UUID, *, cell: str, expected: int | None) -> TenantOwnership:
        epoch = self._fresh_epoch()
        if expected is None:
            wanted = TenantOwnership(tenant_id=tenant_id, cell=cell, epoch=epoch)
            current = self._first(_tenant_item(wanted))
            if current is not None and _number(current, "epoch") != epoch:
                raise Superseded(_tenant(current))
            return wanted
        item = self._write(
            _tenant_key(tenant_id),
            "cell = :cell, epoch = :epoch",
            "epoch = :expected",
            {":cell": {"S": cell}, ":epoch": _n(epoch), ":expected": _n(expected)},
        )
        return _tenant(self._won(_tenant_key(tenant_id), item, epoch=epoch, of=_tenant))

    def tenants_of(self, cell: str, *, after: uuid.UUID | None, limit: int) -> Sequence[TenantOwnership]:
        """Read from the table itself, strongly: an index would follow with a delay, and a takeover
        that misses a tenant leaves it to nobody. A table of 10,000 tenants is two reads of 1 MB."""
        found = [_tenant(item) for item in self._scan(cell)]
        behind = [owned for owned in found if after is None or owned.tenant_id > after]
        return sorted(behind, key=lambda owned: owned.tenant_id)[:limit]

    def release_tenant(self, tenant_id: uuid.UUID, *, expected: int) -> None:
        try:
            with _reachable():
                self._client.delete_item(
                    TableName=self._table,
                    Key=_tenant_key(tenant_id),
                    ConditionExpression="epoch = :expected",
                    ExpressionAttributeValues={":expected": _n(expected)},
                )
        except _Lost:
            raise Superseded(self.tenant(tenant_id)) from None

    def _fresh_epoch(self) -> int:
        with _reachable():
            answer = self._client.update_item(
                TableName=self._table,
                Key={"pk": {"S": "counter"}},
                UpdateExpression="ADD epoch :one",
                ExpressionAttributeValues={":one": _n(1)},
                ReturnValues="UPDATED_NEW",
            )
        return _number(answer["Attributes"], "epoch")

    def _read(self, key: Item) -> Item | None:
        with _reachable():
            answer = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def _first(self, item: Item) -> Item | None:
        """Puts an item where there is none; what stands there already."""
        try:
            with _reachable():
                self._client.put_item(
                    TableName=self._table, Item=item, ConditionExpression="attribute_not_exists(pk)"
                )
        except _Lost:
            current = self._read({"pk": item["pk"]})
            if current is None:  # released between the two: the claim was late, not wrong
                raise OwnershipUnavailable("the row went away while it was claimed") from None
            return current
        return None

    def _write(
        self,
        key: Item,
        assignments: str,
        condition: str,
        values: Mapping[str, Any],
        *,
        names: Mapping[str, str] | None = None,
    ) -> Item | None:
        """The item as it is after a conditional update; None where the condition does not hold."""
        try:
            with _reachable():
                answer = self._client.update_item(
                    TableName=self._table,
                    Key=key,
                    UpdateExpression=" ".join(("SET", assignments)),
                    ConditionExpression=condition,
                    ExpressionAttributeValues=values,
                    ReturnValues="ALL_NEW",
                    **({"ExpressionAttributeNames": names} if names else {}),
                )
        except _Lost:
            return None
        item: Item = answer["Attributes"]
        return item

    def _won(self, key: Item, item: Item | None, *, epoch: int, of: Any) -> Item:
        """The item of a claim under a fresh epoch, or `Superseded`."""
        if item is not None:
            return item
        current = self._read(key)
        if current is not None and _number(current, "epoch") == epoch:
            return current  # it was written; the answer to the first try was lost
        raise Superseded(None if current is None else of(current))

    def _scan(self, cell: str) -> Iterator[Item]:
        pages = self._client.get_paginator("scan").paginate(
            TableName=self._table,
            ConsistentRead=True,
            FilterExpression="begins_with(pk, :tenants) AND cell = :cell",
            ExpressionAttributeValues={":tenants": {"S": "tenant#"}, ":cell": {"S": cell}},
        )
        with _reachable():
            for page in pages:
                yield from page.get("Items", ())


class _Lost(Exception):
    """The condition of a write does not hold."""


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except ClientError as fault:
        if fault.response.get("Error", {}).get("Code") == _LOST:
            raise _Lost from fault
        raise OwnershipUnavailable(str(fault)) from fault
    except BotoCoreError as fault:
        raise OwnershipUnavailable(str(fault)) from fault


def from_url(url: str) -> DynamoOwnershipStore:
    """`dynamodb://<table>?region=<region>&endpoint=<address>`; both are optional, credentials come
    from where AWS libraries look for them."""
    parts = urlsplit(url)
    query = parse_qs(parts.query, strict_parsing=bool(parts.query))
    unknown = sorted(set(query) - {"region", "endpoint"})
    if parts.scheme != SCHEME or not parts.netloc or parts.path.strip("/") or unknown:
        raise ValueError("not `dynamodb://<table>?region=…&endpoint=…`")
    return DynamoOwnershipStore(
        parts.netloc,
        region=query.get("region", [None])[0],
        endpoint=query.get("endpoint", [None])[0],
    )


def _n(value: int) -> Item:
    return {"N": str(value)}


_ZERO_ONE = {":zero": _n(0), ":one": _n(1)}


def _number(item: Item, name: str) -> int:
    return int(item[name]["N"])


def _cell_key(name: str) -> Item:
    return {"pk": {"S": f"cell#{name}"}}


def _promotion_key(cell: str, timeline: int) -> Item:
    return {"pk": {"S": f"promotion#{cell}#{timeline}"}}


def _vote_key(cell: str, epoch: int, region: str) -> Item:
    return {"pk": {"S": f"vote#{cell}#{epoch}#{region}"}}


def _promotion_item(record: PromotionRecord) -> Item:
    return {
        **_promotion_key(record.cell, record.timeline),
        "epoch": _n(record.epoch),
        "timeline": _n(record.timeline),
        "region": {"S": record.region},
        "parent": _n(record.parent),
        "fork": _n(record.fork),
    }


def _promotion(cell: str, item: Item) -> PromotionRecord:
    return PromotionRecord(
        cell=cell,
        timeline=_number(item, "timeline"),
        epoch=_number(item, "epoch"),
        region=item["region"]["S"],
        parent=_number(item, "parent"),
        fork=_number(item, "fork"),
    )


def _tenant_key(tenant_id: uuid.UUID) -> Item:
    return {"pk": {"S": f"tenant#{tenant_id}"}}


def _cell_item(owned: CellOwnership) -> Item:
    return {
        **_cell_key(owned.cell),
        "cell": {"S": owned.cell},
        "region": {"S": owned.region},
        "epoch": _n(owned.epoch),
        "renewals": _n(owned.renewals),
        "promotions": _n(owned.promotions),
    }


def _tenant_item(owned: TenantOwnership) -> Item:
    return {**_tenant_key(owned.tenant_id), "cell": {"S": owned.cell}, "epoch": _n(owned.epoch)}


def _cell(item: Item) -> CellOwnership:
    return CellOwnership(
        cell=item["cell"]["S"],
        region=item["region"]["S"],
        epoch=_number(item, "epoch"),
        renewals=_number(item, "renewals"),
        promotions=_number(item, "promotions"),
    )


def _tenant(item: Item) -> TenantOwnership:
    return TenantOwnership(
        tenant_id=uuid.UUID(item["pk"]["S"].removeprefix("tenant#")),
        cell=item["cell"]["S"],
        epoch=_number(item, "epoch"),
    )
