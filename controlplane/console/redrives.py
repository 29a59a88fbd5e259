"""Dead letters tried again or done with: chosen and looked at first, then worked through at a pace.

The cell freezes which letters are meant, and what is begun is that list and nothing else. A redrive is
careful: one letter of each way to fail goes first, then ten more of each, then the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect

from cells.contract import Scope
from controlplane.console.acting import Form
from controlplane.console.cells_client import CellAway, Fault, Refused, path
from controlplane.console.lists import PAGE, asked, labels_of, next_page, sentences
from controlplane.console.visit import Visit, tenant_page
from controlplane.console.wording import parse

#: A filter of the list of dead letters → what the API calls it in a selection.
FILTERS = {
    "target": "target_id",
    "fingerprint": "fingerprint",
    "job_id": "job_id",
    "reason": "reason",
    "failed_from": "failed_after",
    "failed_until": "failed_before",
}
_WORDS = {
    "target_id": "target",
    "fingerprint": "way to fail",
    "job_id": "job",
    "reason": "reason",
    "failed_after": "failed from",
    "failed_before": "failed until",
}
_MOST_TICKED = 1000
_STATES = (("RUNNING", "running"), ("DONE", "done"), ("STOPPED", "stopped"))
#: stage → what it sends.
STAGES = (
    ("first", "One of each way to fail"),
    ("ten", "Ten more of each"),
    ("rest", "The rest"),
)
#: Run states that mean it failed once more.
_FAILED_AGAIN = ("FAILED", "UNKNOWN")
_SUCCEEDED = ("SUCCEEDED", "SUCCEEDED_AFTER_CANCEL")
#: Below this much time an observed pace says nothing.
_LEAST_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LetterAct:
    """What is done to dead letters: its words, what it means for each, and the pace that is proposed."""

    verb: str
    word: str
    doing: str
    done: str
    means: tuple[str, ...]
    rate: int
    danger: bool = False


ACTS: dict[str, LetterAct] = {
    act.verb: act
    for act in (
        LetterAct(
            verb="redrive",
            word="Redrive",
            doing="Redriving",
            done="redriven",
            means=(
                "Each run begins a new series of attempts, with the job’s version and the key it had.",
                "One of each way to fail goes first and is waited for, then ten more of each, then the rest.",
                "If one fails as it did before, it stops by itself and the others stay here.",
            ),
            rate=50,
        ),
        LetterAct(
            verb="purge",
            word="Purge",
            doing="Purging",
            done="purged",
            means=(
                "They leave the dead letters and are not tried again. This cannot be undone.",
                "Their runs stay listed as they ended.",
            ),
            rate=1000,
            danger=True,
        ),
    )
}


# --- choosing ----------------------------------------------------------------------------
@tenant_page(Scope.JOBS_WRITE, "POST")
def letters_choose(visit: Visit) -> HttpResponse:
    """POST /t/<slug>/dlq/choose: freeze the ticked letters, or all that fit the list's filters, and say in
    numbers what would happen. Nothing happens yet."""
    act = _act(visit)
    ticked = visit.request.POST.getlist("run")
    if len(ticked) > _MOST_TICKED:
        messages.error(
            visit.request,
            f"Nothing was selected: {len(ticked)} rows are ticked, and at most {_MOST_TICKED} can be."
            " Filter the list instead.",
        )
        return _back(visit)
    return _chosen(visit, act, Form(values={"max_per_second": str(act.rate)}))


@tenant_page(Scope.JOBS_WRITE, "POST")
def letters_begin(visit: Visit) -> HttpResponse:
    """POST /t/<slug>/dlq/begin: redrive or purge exactly the letters that were shown, by their hash."""
    act = _act(visit)
    posted = visit.request.POST
    rate = posted.get("max_per_second", "").strip()[:12]
    form = Form(values={"max_per_second": rate})
    body = {
        "selection_id": posted.get("selection_id", "")[:128],
        "hash": posted.get("hash", "")[:128],
        "max_per_second": int(rate) if rate.isascii() and rate.isdecimal() else rate,
    }
    try:
        answer = visit.cell.post(f"/v1/dlq:{act.verb}", body).document
    except Refused as refused:
        if refused.status == 403:
            raise
        for fault in refused.faults or [Fault(place="", detail=refused.detail)]:
            if fault.place.strip("/") == "max_per_second":
                form.faults.setdefault("max_per_second", []).append(fault.detail)
            else:
                form.general.append(f"{fault.place} {fault.detail}".strip())
        # Shown again with the numbers of now: what was frozen may have expired.
        return _chosen(visit, act, form, status=422)
    except CellAway as away:
        messages.error(visit.request, f"{away} Whether it began is not known; look here.")
        return redirect(visit.url("redrives"))
    return redirect(visit.url("redrive", answer["redrive_id"]))


def _act(visit: Visit) -> LetterAct:
    act = ACTS.get(visit.request.POST.get("action", ""))
    if act is None:
        raise Http404
    return act


def _filters(visit: Visit) -> dict[str, str]:
    """The list's filters as the form carried them."""
    posted = visit.request.POST
    return {name: text for name in FILTERS if (text := posted.get(name, "").strip()[:200])}


def _back(visit: Visit) -> HttpResponse:
    kept = _filters(visit)
    return redirect(f"{visit.url('dlq')}?{urlencode(kept)}" if kept else visit.url("dlq"))


def _chosen(visit: Visit, act: LetterAct, form: Form, status: int = 200) -> HttpResponse:
    kept = _filters(visit)
    ticked = visit.request.POST.getlist("run")
    chosen: dict[str, Any] = {FILTERS[name]: text for name, text in kept.items()}
    if ticked:
        chosen = {"run_ids": ticked}
    try:
        found = visit.cell.post(f"/v1/dlq:{act.verb}", {"filter": chosen, "dry_run": True}).document
    except Refused as refused:
        if refused.status == 403:
            raise
        for text in sentences(refused.faults, refused.detail):
            messages.error(visit.request, text)
        return _back(visit)
    if not found["count"]:
        messages.info(visit.request, "No open dead letter fits any more; nothing was selected.")
        return _back(visit)
    return visit.page(
        "console/redrives/choose.html",
        status=status,
        section="dlq",
        act=act,
        form=form,
        selection=found,
        sample=_letters(visit, found["sample"]),
        more=found["count"] - len(found["sample"]),
        filters=described(chosen),
        ticked=ticked,
        fields=list(kept.items()),
        back=f"{visit.url('dlq')}?{urlencode(kept)}" if kept else visit.url("dlq"),
        may_take=_at_least(found["count"], act.rate),
    )


# --- following ---------------------------------------------------------------------------
@tenant_page(Scope.JOBS_READ)
def redrive_list(visit: Visit) -> HttpResponse:
    """GET /t/<slug>/redrives/?state=&action="""
    filters = asked(visit, "state", "action")
    cursor = visit.request.GET.get("cursor", "")
    context: dict[str, Any] = {
        "section": "dlq",
        "filters": filters,
        "states": _STATES,
        "acts": ACTS.values(),
        "redrives": [],
    }
    try:
        found = visit.cell.get("/v1/redrives", limit=PAGE, cursor=cursor, **filters)
    except Refused as refused:
        if refused.status != 422:
            raise
        context["faults"] = sentences(refused.faults, refused.detail)
        return visit.page("console/redrives/list.html", status=422, **context)
    context |= {
        "redrives": [
            {**item, "act": ACTS.get(item["action"]), "of": described(item.get("filter") or {})}
            for item in found["items"]
        ],
        "next": next_page(visit, filters, found["next_cursor"]),
        "paged": bool(cursor),
    }
    return visit.page("console/redrives/list.html", **context)


@tenant_page(Scope.JOBS_READ)
def redrive(visit: Visit, redrive_id: str) -> HttpResponse:
    """GET /t/<slug>/redrives/<redrive_id>/"""
    return visit.page("console/redrives/detail.html", section="dlq", **_redrive(visit, redrive_id))


@tenant_page(Scope.JOBS_READ)
def redrive_live(visit: Visit, redrive_id: str) -> HttpResponse:
    """GET /t/<slug>/redrives/<redrive_id>/live: the parts that change."""
    return visit.page("console/redrives/live.html", **_redrive(visit, redrive_id))


@tenant_page(Scope.JOBS_WRITE, "POST")
def redrive_stop(visit: Visit, redrive_id: str) -> HttpResponse:
    """POST /t/<slug>/redrives/<redrive_id>/stop"""
    try:
        visit.cell.post(path("redrives", redrive_id, verb="stop"), {})
        messages.success(visit.request, "It is stopped. What is done stays done; the others stay here.")
    except Refused as refused:
        if refused.status in (403, 404):
            raise
        messages.error(visit.request, refused.detail)
    except CellAway as away:
        messages.error(visit.request, str(away))
    return redirect(visit.url("redrive", redrive_id))


def _redrive(visit: Visit, redrive_id: str) -> dict[str, Any]:
    found = visit.cell.get(path("redrives", redrive_id))
    act = ACTS.get(found["action"])
    if act is None:
        raise Http404
    over = found["state"] != "RUNNING"
    runs: Mapping[str, int] = found.get("runs") or {}
    labels = labels_of(visit, (failure["run_id"].partition(":")[0] for failure in found["failures"]))
    return {
        "redrive": found,
        "act": act,
        "over": over,
        # Runs go on after the last was sent: their figures move until all have ended.
        "moves": not over or (act.verb == "redrive" and not runs_ended(runs)),
        "stages": _stages(found) if act.verb == "redrive" else (),
        "succeeded": sum(runs.get(state, 0) for state in _SUCCEEDED),
        "failed_again": sum(runs.get(state, 0) for state in _FAILED_AGAIN),
        "under_way": sum(
            number
            for state, number in runs.items()
            if state not in (*_SUCCEEDED, *_FAILED_AGAIN, "CANCELLED")
        ),
        "left": max(0, found["total"] - found["processed"]),
        "share": round(100 * found["processed"] / found["total"], 1) if found["total"] else 100.0,
        "of": described(found.get("filter") or {}),
        "sample": _letters(visit, found.get("sample") or ()),
        "failures": [
            {**failure, "label": labels.get(failure["run_id"].partition(":")[0])}
            for failure in found["failures"]
        ],
        **pace(found, visit.now),
    }


def runs_ended(runs: Mapping[str, int]) -> bool:
    """Whether none of the redriven runs goes on."""
    over = (*_SUCCEEDED, *_FAILED_AGAIN, "CANCELLED", "SKIPPED")
    return all(state in over or not number for state, number in runs.items())


def pace(found: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Letters a second until now, and the milliseconds that are left at that pace; None where nothing
    can be said yet."""
    began, ended = parse(found["created_at"]), parse(found["finished_at"])
    took = ((ended or now) - began).total_seconds() if began is not None else 0.0
    if took < _LEAST_SECONDS or not found["processed"]:
        return {"pace": None, "eta_ms": None}
    seen = found["processed"] / took
    # Before the rest goes, the pace says how long the first ones take, not how fast the rest will be.
    likely = seen if found["stage"] in (None, "rest") else float(found["max_per_second"])
    left = found["total"] - found["processed"]
    running = found["state"] == "RUNNING"
    return {"pace": round(seen, 1), "eta_ms": 1000 * left / likely if running and likely else None}


def _stages(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The steps of a redrive, with what has become of each: `past`, `now`, `next`."""
    names = [name for name, _ in STAGES]
    if found["state"] == "DONE":
        at = len(names)
    else:
        at = names.index(found["stage"]) if found["stage"] in names else -1
    stopped = found["state"] == "STOPPED" and at < 0
    return [
        {
            "name": name,
            "word": word,
            "is": "unknown" if stopped else "past" if i < at else "now" if i == at else "next",
        }
        for i, (name, word) in enumerate(STAGES)
    ]


def _letters(visit: Visit, letters: Any) -> list[dict[str, Any]]:
    labels = labels_of(visit, (letter["job_id"] for letter in letters))
    return [{**letter, "label": labels.get(letter["job_id"])} for letter in letters]


def _at_least(count: int, rate: int) -> int:
    """Milliseconds that so many take at a pace."""
    return 1000 * count // rate


def described(filters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What letters were chosen by, in words."""
    said = [(word, str(filters[name])) for name, word in _WORDS.items() if filters.get(name)]
    return [(word, text.lower()) if word == "reason" else (word, text) for word, text in said]
