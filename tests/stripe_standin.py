"""A Stripe of our own: an HTTP server that the real `stripe` package speaks to.

It keeps customers, meters, meter events, invoices, items and credit notes, remembers idempotency
keys, refuses what Stripe refuses, and does wrong on demand: it fails before or behind the deed,
and takes a request and never answers.

    with StripeStandIn() as there:
        there.fail("POST", "/v1/billing/meter_events", how="lost")
        …
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import json
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from deploy.ports import LOOPBACK

_DAY = 86_400
Json = dict[str, Any]


class How(enum.StrEnum):
    """What goes wrong with a request."""

    REFUSED = "refused"  # 500, and nothing was done
    BROKEN = "broken"  # 500, and it was done
    LOST = "lost"  # it was done, and the answer never comes


class Wrong(Exception):
    """An answer that is an error, as Stripe words it."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error", code: str = ""):
        super().__init__(message)
        self.status, self.message, self.kind, self.code = status, message, kind, code


@dataclass
class State:
    """All that it knows."""

    things: dict[str, dict[str, Json]] = field(default_factory=lambda: defaultdict(dict))
    events: dict[str, Json] = field(default_factory=dict)  # meter events by identifier
    keys: dict[str, tuple[str, int, Json]] = field(default_factory=dict)  # idempotency
    requests: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    serial: int = 0

    def new(self, kind: str, prefix: str, **values: Any) -> Json:
        """A thing with an id of its own."""
        self.serial += 1
        made = {"id": f"{prefix}_{self.serial}", "object": kind, "created": self.serial, **values}
        self.things[kind][made["id"]] = made
        return made

    def find(self, kind: str, key: str) -> Json:
        """A thing, or Stripe's 404."""
        if key not in self.things[kind]:
            raise Wrong(404, f"No such {kind}: '{key}'", code="resource_missing")
        return self.things[kind][key]


def _listed(items: list[Json], query: Mapping[str, Any]) -> Json:
    """A page, newest first as Stripe's are."""
    items = sorted(items, key=lambda i: -i.get("created", 0))
    if after := query.get("starting_after"):
        at = next(i for i, item in enumerate(items) if item["id"] == after)
        items = items[at + 1 :]
    limit = int(query.get("limit", 10))
    return {"object": "list", "data": items[:limit], "has_more": len(items) > limit, "url": "/v1/list"}


def _nested(pairs: list[tuple[str, str]]) -> Json:
    """`a[b]=c` as {"a": {"b": "c"}}."""
    found: Json = {}
    for name, value in pairs:
        head, *inner = re.findall(r"[^\[\]]+", name)
        place = found
        for part in inner:
            place = place.setdefault(head, {})
            head = part
        place[head] = value
    return found


class StripeStandIn:
    """A running server. A context manager; `url` is its address."""

    def __init__(self) -> None:
        self.state = State()
        self.now: Callable[[], float] = time.time
        self._lock = threading.Lock()
        self._faults: list[tuple[str, re.Pattern[str], How]] = []
        self._chance: tuple[random.Random, float] | None = None
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://{LOOPBACK}:{self._server.server_address[1]}"

    # --- what tests say ----------------------------------------------------------------------
    def fail(self, method: str, path: str, how: str, times: int = 1) -> None:
        """The next requests whose path matches go wrong."""
        with self._lock:
            self._faults += [(method, re.compile(path), How(how))] * times

    def fail_by_chance(self, seed: int, share: float) -> None:
        """From now on that share of all requests goes wrong somehow; 0 ends it."""
        with self._lock:
            self._chance = (random.Random(seed), share) if share else None

    def forget_keys(self) -> None:
        """As after a day: idempotency keys and identifiers are not known any more; sums stay."""
        with self._lock:
            self.state.keys.clear()
            self.state.events = {f"forgotten-{i}": e for i, e in enumerate(self.state.events.values())}

    def sums(self) -> dict[tuple[str, str], int]:
        """What its meters add up to, by event name and customer."""
        found: Counter[tuple[str, str]] = Counter()
        with self._lock:
            for event in self.state.events.values():
                found[event["event_name"], event["payload"]["stripe_customer_id"]] += int(
                    event["payload"]["value"]
                )
        return dict(found)

    def all(self, kind: str) -> list[Json]:
        """Its things of a kind, oldest first."""
        with self._lock:
            return list(self.state.things[kind].values())

    def signed(self, event: Json, secret: str, *, at: int | None = None) -> tuple[bytes, str]:
        """A webhook's body and signature."""
        body = json.dumps(event).encode()
        at = int(self.now()) if at is None else at
        mac = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
        return body, f"t={at},v1={mac}"

    # --- answering ---------------------------------------------------------------------------
    def _fault(self, method: str, path: str) -> How | None:
        for i, (wanted, pattern, how) in enumerate(self._faults):
            if wanted == method and pattern.fullmatch(path):
                del self._faults[i]
                return how
        if self._chance is not None:
            source, share = self._chance
            if source.random() < share:
                return source.choice(list(How))
        return None

    def answer(
        self, method: str, path: str, query: Json, body: str, key: str
    ) -> tuple[int, Json, How | None]:
        """Status, document, and what goes wrong on the way."""
        with self._lock:
            self.state.requests[f"{method} {path}"] += 1
            how = self._fault(method, path)
            if how is How.REFUSED:
                return 500, _error(Wrong(500, "It went wrong.", kind="api_error")), how
            print_of = hashlib.sha256(f"{method} {path} {body}".encode()).hexdigest()
            if key and key in self.state.keys:
                known, status, document = self.state.keys[key]
                if known != print_of:
                    wrong = Wrong(
                        400, "Keys for idempotent requests are for one request.", kind="idempotency_error"
                    )
                    return 400, _error(wrong), how
                return status, document, how
            try:
                status, document = 200, self._do(method, path, query, _nested(parse_qsl(body, True)))
            except Wrong as wrong:
                status, document = wrong.status, _error(wrong)
            if key:
                self.state.keys[key] = (print_of, status, json.loads(json.dumps(document)))
            if how is How.BROKEN:
                return 500, _error(Wrong(500, "It went wrong.", kind="api_error")), how
            return status, document, how

    def _do(self, method: str, path: str, query: Json, body: Json) -> Json:
        parts = path.removeprefix("/v1/").split("/")
        match (method, parts):
            case ("POST", ["customers"]):
                return self.state.new("customer", "cus", **{"metadata": {}, **body})
            case ("POST", ["customers", key]):
                found = self.state.find("customer", key)
                found.update(body)
                return found
            case ("GET", ["customers"]):
                customers = self.state.things["customer"].values()
                return _listed([c for c in customers if c.get("email") == query.get("email")], query)
            case ("GET", ["billing", "meters"]):
                return _listed(list(self.state.things["billing.meter"].values()), query)
            case ("POST", ["billing", "meters"]):
                if any(
                    m["event_name"] == body["event_name"] for m in self.state.things["billing.meter"].values()
                ):
                    raise Wrong(400, f"There is an active meter for {body['event_name']}.")
                return self.state.new("billing.meter", "mtr", status="active", **body)
            case ("GET", ["billing", "meters", key, "event_summaries"]):
                return self._summaries(key, query)
            case ("POST", ["billing", "meter_events"]):
                return self._meter_event(body)
            case ("POST" | "GET", ["invoices" | "invoiceitems" | "credit_notes", *_]):
                return self._invoices(method, parts, query, body)
        raise Wrong(404, f"Unrecognized request URL ({method}: {path}).")

    def _meter_event(self, body: Json) -> Json:
        identifier, payload = body["identifier"], body["payload"]
        meters = self.state.things["billing.meter"].values()
        if len(identifier) > 100:
            raise Wrong(400, "Identifiers have at most 100 characters.")
        if not any(meter["event_name"] == body["event_name"] for meter in meters):
            raise Wrong(400, f"No active meter found for event name {body['event_name']}.")
        if identifier in self.state.events:
            self.state.duplicates += 1
            raise Wrong(400, f"An event already exists with identifier {identifier}.")
        self.state.find("customer", payload["stripe_customer_id"])
        if not re.fullmatch(r"[0-9]{1,15}", payload["value"]):
            raise Wrong(400, "Values have at most 15 digits.")
        age = self.now() - int(body["timestamp"])
        if not -300 <= age <= 35 * _DAY:
            raise Wrong(400, "The timestamp must lie in the last 35 days.", code="timestamp_too_far_in_past")
        self.state.events[identifier] = body
        return {"object": "billing.meter_event", "created": int(self.now()), "livemode": False, **body}

    def _summaries(self, key: str, query: Json) -> Json:
        meter = self.state.find("billing.meter", key)
        start, end = int(query["start_time"]), int(query["end_time"])
        if start % 60 or end % 60:
            raise Wrong(400, "Times must be whole minutes.")
        total = sum(
            int(e["payload"]["value"])
            for e in self.state.events.values()
            if e["event_name"] == meter["event_name"]
            and e["payload"]["stripe_customer_id"] == query["customer"]
            and start <= int(e["timestamp"]) < end
        )
        summary = {
            "id": "mtrusg_1",
            "object": "billing.meter_event_summary",
            "aggregated_value": total,
            "start_time": start,
            "end_time": end,
            "meter": key,
            "created": 1,
        }
        return _listed([summary] if total else [], query)

    def _invoices(self, method: str, parts: list[str], query: Json, body: Json) -> Json:
        match (method, parts):
            case ("POST", ["invoices"]):
                if body["collection_method"] == "send_invoice" and "due_date" not in body:
                    raise Wrong(400, "An invoice that is sent is due some day.")
                self.state.find("customer", body["customer"])
                made = self.state.new("invoice", "in", **{"metadata": {}, **body})
                made.update(status="draft", total=0, amount_due=0, hosted_invoice_url=None)
                return made
            case ("GET", ["invoices"]):
                rows = self.state.things["invoice"].values()
                return _listed([i for i in rows if i["customer"] == query.get("customer")], query)
            case ("GET", ["invoices", key]):
                return self.state.find("invoice", key)
            case ("POST", ["invoices", key, verb]):
                return self._move(self.state.find("invoice", key), verb)
            case ("GET", ["invoiceitems"]):
                items = self.state.things["invoiceitem"].values()
                return _listed([i for i in items if i["invoice"] == query.get("invoice")], query)
            case ("POST", ["invoiceitems"]):
                invoice = self.state.find("invoice", body["invoice"])
                if invoice["status"] != "draft":
                    raise Wrong(400, "Invoices that are final take no items.")
                body["amount"] = int(body["amount"])
                invoice["total"] += body["amount"]
                invoice["amount_due"] = invoice["total"]
                return self.state.new("invoiceitem", "ii", **{"metadata": {}, **body})
            case ("GET", ["credit_notes"]):
                notes = self.state.things["credit_note"].values()
                return _listed([n for n in notes if n["invoice"] == query.get("invoice")], query)
            case ("POST", ["credit_notes"]):
                return self._credit(self.state.find("invoice", body["invoice"]), body)
        raise Wrong(404, f"Unrecognized request URL ({method}: {'/'.join(parts)}).")

    def _move(self, invoice: Json, verb: str) -> Json:
        ways = {
            "finalize": ({"draft"}, "open"),
            "pay": ({"open", "uncollectible"}, "paid"),
            "void": ({"open", "uncollectible"}, "void"),
            "mark_uncollectible": ({"open"}, "uncollectible"),
        }
        sources, to = ways[verb]
        if invoice["status"] not in sources:
            raise Wrong(400, f"An invoice that is {invoice['status']} cannot {verb}.")
        invoice["status"] = to
        if verb == "finalize":
            invoice["hosted_invoice_url"] = f"{self.url}/pay/{invoice['id']}"
        return invoice

    def _credit(self, invoice: Json, body: Json) -> Json:
        amount = int(body["amount"])
        if invoice["status"] not in ("open", "paid", "uncollectible"):
            raise Wrong(400, f"An invoice that is {invoice['status']} takes no credit notes.")
        if invoice["status"] == "paid" and "out_of_band_amount" not in body:
            raise Wrong(400, "Say where the money of a paid invoice goes.")
        if invoice["status"] != "paid":
            if amount > invoice["amount_due"]:
                raise Wrong(400, "More than is due.")
            invoice["amount_due"] -= amount
            if not invoice["amount_due"]:
                invoice["status"] = "paid"
        return self.state.new("credit_note", "cn", **{"metadata": {}, **body, "amount": amount})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        standin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer goes out whole: in two parts it waits for an acknowledgement

            def _serve(self) -> None:
                split = urlsplit(self.path)
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
                status, document, how = standin.answer(
                    self.command, split.path, dict(parse_qsl(split.query)), body,
                    self.headers.get("Idempotency-Key", ""),
                )  # fmt: skip
                if how is How.LOST:
                    self.close_connection = True
                    return
                raw = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Says nothing."""

        return Handler


def _error(wrong: Wrong) -> Json:
    return {
        "error": {
            "type": wrong.kind,
            "message": wrong.message,
            **({"code": wrong.code} if wrong.code else {}),
        }
    }
