"""saga: orders on a running product, with pull workers and with HTTP targets that decline, break, and die
with the work done, and cell hosts that are killed (-9) meanwhile: whatever happened, the books of the other
side fit together in the end."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from tests.api import Api
from tests.stack import Stack
from tests.waiting import eventually

ORDERS = 200
KILLS = 2
DEADLINE_SECONDS = 300.0
ORDER = Path(__file__).parents[1].joinpath("cases/order_fulfillment.yaml").read_text()
QUEUES = ("payments", "inventory", "shipping")
#: What is done by which compensation.
UNDOES = {"CHARGE": "REFUND", "RESERVE": "RELEASE"}
_AWAY = (aiohttp.ClientError, TimeoutError, ConnectionError)


class Books:
    """What the other side has done, by idempotency key: once each, however often it is asked."""

    def __init__(self) -> None:
        self.done: defaultdict[str, dict[str, str]] = defaultdict(dict)  # order → key → what
        self.refused: set[str] = set()  # forward calls that came behind their compensation
        self.undone: set[str] = set()  # keys of forward calls that were compensated
        self.asked: Counter[str] = Counter()

    def do(self, order: str, what: str, key: str, compensates: str | None) -> bool:
        """Apply it, unless it is a forward call that was undone before it came."""
        self.asked[key] += 1
        if compensates:
            self.undone.add(compensates)
        elif key in self.undone:
            self.refused.add(key)
            return False
        self.done[order][key] = what
        return True

    def has_done(self, key: str) -> bool:
        """Whether that call did its work, though its caller may not have heard of it."""
        return any(key in done for done in self.done.values())

    def wrong(self, order: str, status: str) -> str | None:
        """What does not fit, for an order that ended so."""
        found = Counter(self.done[order].values())
        if status == "COMPLETED":
            fits = found == Counter({"CHARGE": 1, "RESERVE": 1, "CREATE_SHIPMENT": 1})
        else:
            fits = "CREATE_SHIPMENT" not in found and all(
                found[undo] >= found[what] for what, undo in UNDOES.items()
            )
        return None if fits else f"{order} {status}: {dict(found)}"


class Shop:
    """The other side, which fails as the other side does."""

    def __init__(self, seed: int):
        self.books = Books()
        self.rng = random.Random(seed)
        self.trouble: Counter[str] = Counter()
        self.refunds: Counter[str] = Counter()

    def verdict(self, what: str, key: str) -> str:
        """What goes wrong this time."""
        undoing = what in UNDOES.values()
        if undoing:
            # The provider is down for the first tries; a compensation never is declined.
            self.refunds[key] += 1
            return "down" if self.refunds[key] <= 1 and self.rng.random() < 0.5 else "well"
        roll = self.rng.random()
        # Who has done it under this key says so when it is asked again: it may be away, but declines no more.
        if roll < 0.08 and not self.books.has_done(key):
            return "declined"
        if roll < 0.16:
            return "down"
        if roll < 0.22:
            return "died with the work done"
        return "well"

    async def over_http(self, request: web.Request) -> web.StreamResponse:
        """An HTTP target: its path says what it does."""
        what, order = request.match_info["what"], (await request.json())["order"]
        key, compensates = request.headers["Idempotency-Key"], request.headers.get("X-Compensates")
        verdict = self.verdict(what, key)
        self.trouble[verdict] += 1
        if verdict == "declined":
            return web.json_response({"why": "declined"}, status=422)
        if verdict == "down":
            return web.json_response({}, status=503)
        if not self.books.do(order, what, key, compensates):
            return web.json_response({"why": "it was compensated before"}, status=409)
        if verdict != "well":
            assert request.transport is not None
            request.transport.abort()  # done, and nobody hears of it
        return web.json_response({"done": what})

    async def task(self, task: dict[str, Any]) -> dict[str, Any] | None:
        """A worker's task; None where the worker dies with it."""
        what, key = task["activity_type"], task["idempotency_key"]
        verdict = self.verdict(what, key)
        self.trouble[verdict] += 1
        order = task["payload"]["input"]["order"] if "input" in task["payload"] else task["payload"]["order"]
        if verdict == "declined":
            return {"outcome": "FAILED", "error": "declined", "retryable": False}
        if verdict == "down":
            return {"outcome": "FAILED", "error": "provider is down"}
        if not self.books.do(order, what, key, task["compensates"]):
            return {"outcome": "FAILED", "error": "it was compensated before", "retryable": False}
        return {"outcome": "SUCCEEDED", "result": {"done": what}} if verdict == "well" else None


def over_http(target_id: str) -> dict[str, Any]:
    """The same workflow with its stock behind an HTTP target."""
    text = yaml.safe_load(ORDER)
    text["workflow"] = "order_over_http"
    for step in (*text["steps"], *text["compensations"]):
        activity = step.get("activity")
        if activity is not None and activity["task_queue"] == "inventory":
            step["activity"] = {"target_id": target_id, "path": f"/{activity['type']}"}
            order = "${input.order}"
            step["input"] = {"order": order}
    return text  # type: ignore[no-any-return]


class Customers:
    """Who places orders, picks them up, or thinks better of it; and the workers."""

    def __init__(self, session: aiohttp.ClientSession, shop: Shop):
        self.session, self.shop = session, shop
        self.over = False
        self.keys: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Until somebody answers; the answer, whatever it is."""
        while True:
            try:
                async with self.session.request(method, path, json=body) as answer:
                    if answer.status < 500 and answer.status not in (421, 429):
                        return answer.status, await answer.json()
            except _AWAY:
                pass
            await asyncio.sleep(0.1)

    async def work(self, queue: str) -> None:
        """One worker, for ever; when it dies with a task, another one with its name goes on."""
        while not self.over:
            asked = {"worker_id": queue, "wait_seconds": 2, "max_tasks": 20}
            _, found = await self.ask("POST", f"/v1/task-queues/{queue}/tasks:poll", asked)
            for task in found.get("tasks", ()):
                self.keys[task["workflow_id"], task["step"]].add(task["idempotency_key"])
                end = await self.shop.task(task)
                if end is not None:
                    body = {"epoch": task["epoch"], **end}
                    await self.ask("POST", f"/v1/runs/{task['run_id']}:complete", body)

    async def order(self, n: int, definition: str) -> None:
        """Placed twice; picked up, told twice; or cancelled."""
        name = f"order-{n}"
        start = {"workflow_id": name, "definition": definition, "input": {"order": name, "order_id": n}}
        await asyncio.gather(*(self.ask("POST", "/v1/workflows", start) for _ in range(2)))
        await asyncio.sleep(self.shop.rng.random() * 20)
        if n % 10 == 9:
            await self.ask("POST", f"/v1/workflows/{name}:cancel", {"reason": "thought better of it"})
            return
        picked_up = {"signal_id": f"courier-{n}", "payload": {"courier": "ACME"}}
        for _ in range(2):
            await self.ask("POST", f"/v1/workflows/{name}/signals/picked_up", picked_up)

    async def open_orders(self) -> int:
        """How many are not closed."""
        left = 0
        for status in ("RUNNING", "COMPENSATING", "COMPENSATION_STUCK"):
            _, page = await self.ask("GET", f"/v1/workflows?status={status}&limit=200")
            left += len(page["items"])
        return left


async def _serve(shop: Shop) -> tuple[web.AppRunner, str]:
    app = web.Application()
    app.router.add_post("/{what}", shop.over_http)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


async def sagas(
    stack: Stack, orders: int, kills: int, register: Callable[[str], Awaitable[str]]
) -> dict[str, Any]:
    """Place so many orders; what came of them."""
    shop = Shop(seed=11)
    runner, url = await _serve(shop)
    target_id = await register(url)
    headers = {"Authorization": f"Bearer {stack.info['api_key']}"}
    async with aiohttp.ClientSession(stack.info["api_url"], headers=headers) as session:
        customers = Customers(session, shop)
        for text in (yaml.safe_load(ORDER), over_http(target_id)):
            path = f"/v1/workflow-definitions/{text['workflow']}/versions/{text['version']}"
            status, answer = await customers.ask("PUT", path, text)
            assert status < 300, answer
        workers = [asyncio.create_task(customers.work(queue)) for queue in QUEUES for _ in range(3)]
        began = time.monotonic()

        async def kill() -> None:
            for n in range(kills):
                await asyncio.sleep(6)
                for cell in list(stack.info["cells"]):
                    stack.kill(f"cell-{cell}", signal.SIGKILL)
                shop.trouble["cell hosts killed"] += 1
                _ = n

        definitions = ("order_fulfillment", "order_over_http")
        await asyncio.gather(kill(), *(customers.order(n, definitions[n % 2]) for n in range(orders)))

        async def all_closed() -> bool:
            return await customers.open_orders() == 0

        await eventually(all_closed, timeout=DEADLINE_SECONDS, interval=1.0)
        seconds = time.monotonic() - began
        customers.over = True
        await asyncio.gather(*workers)
        ended: Counter[str] = Counter()
        wrong: list[str] = []
        for n in range(orders):
            _, found = await customers.ask("GET", f"/v1/workflows/order-{n}")
            ended[found["status"]] += 1
            fault = shop.books.wrong(f"order-{n}", found["status"])
            if fault is not None:
                wrong.append(fault)
        await runner.cleanup()
    unstable = [step for step, keys in customers.keys.items() if len(keys) > 1]
    return {
        "holds": not wrong and not unstable and sum(ended.values()) == orders and len(ended) > 1,
        "orders": orders,
        "ended": dict(ended),
        "trouble": dict(shop.trouble),
        "asked_again_under_the_same_key": sum(count > 1 for count in shop.books.asked.values()),
        "late_forward_calls_refused": len(shop.books.refused),
        "keys_that_changed": len(unstable),
        "seconds": round(seconds, 1),
        "wrong": wrong[:10],
    }


def main(orders: int = ORDERS, kills: int = KILLS) -> dict[str, Any]:
    with Stack() as stack:
        api = Api(stack.info["api_url"], stack.info["api_key"])

        async def register(url: str) -> str:
            registered = await asyncio.to_thread(api.register_target, url)
            return str(registered["target_id"])

        return asyncio.run(sagas(stack, orders, kills, register))
