"""Settings: who may do what, what is said before and after, and that secrets are shown once."""

from __future__ import annotations

import re
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from django.utils import timezone

from controlplane.console.acting import first_use
from controlplane.events.models import AuditEvent
from controlplane.tenants.models import ApiKey, Invitation, Membership
from tests.component.controlplane.console.cell import Cell
from tests.component.controlplane.console.conftest import Signed, sign_in
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, UserFactory

pytestmark = pytest.mark.django_db

ADMINS = ("/settings/members/", "/settings/keys/", "/settings/keys/new", "/settings/audit")
EVERYBODY = ("/settings/", "/settings/limits", "/settings/leave", "/start", "/reference")


def _with_role(owner: Signed, role: str) -> Signed:
    """Another member of the owner's tenant, signed in."""
    membership = MembershipFactory(tenant=owner.membership.tenant, user=UserFactory(), role=role)
    other = sign_in(role)
    other.browser.force_login(membership.user, backend="django.contrib.auth.backends.ModelBackend")
    return Signed(other.browser, membership)


@pytest.mark.parametrize("role", ["owner", "admin", "developer", "viewer"])
def test_what_each_role_sees(owner: Signed, role: str) -> None:
    person = _with_role(owner, role)
    expected = 200 if role in ("owner", "admin") else 403
    for path in EVERYBODY:
        assert person.browser.get(owner.base + path).status_code == 200, path
    for path in ADMINS:
        assert person.browser.get(owner.base + path).status_code == expected, path
    assert (b"Audit log" in person.browser.get(owner.base + "/settings/").content) is (expected == 200)


def test_who_may_not_changes_nothing(owner: Signed) -> None:
    developer = _with_role(owner, "developer")
    key = _make_key(owner)
    before = contents()
    for path, body in (
        ("/settings/", {"display_name": "x", "timezone": "UTC", "theme": "auto"}),
        ("/settings/support", {"hours": "1"}),
        ("/settings/limits", {"compensation_deadline_seconds": "3d"}),
        ("/settings/members/", {"email": "x@example.com", "role": "viewer"}),
        (f"/settings/members/{owner.membership.public_id}/remove", {}),
        ("/settings/keys/new", {"name": "k", "scopes": "jobs:read", "token": "t"}),
        (f"/settings/keys/{key.pk}/revoke", {}),
        (f"/settings/keys/{key.pk}/rotate", {}),
    ):
        assert developer.browser.post(owner.base + path, body).status_code == 403, path
    developer.browser.post(owner.base + "/start", {"token": "t"})
    assert contents() == before


def test_what_is_anothers_is_not_found(owner: Signed) -> None:
    stranger = sign_in("owner")
    key = _make_key(stranger)
    stranger.browser.post(stranger.base + "/settings/members/", {"email": "x@example.com", "role": "viewer"})
    invitation = Invitation.objects.get(tenant=stranger.membership.tenant)
    member = stranger.membership.public_id
    before = contents()
    for path in (
        f"/settings/members/{member}/",
        f"/settings/members/{member}/remove",
        f"/settings/invitations/{invitation.public_id}/revoke",
        f"/settings/keys/{key.pk}/revoke",
        f"/settings/keys/{key.pk}/rotate",
        "/settings/members/nonsense/",
        "/settings/keys/nonsense/revoke",
    ):
        assert owner.browser.get(owner.base + path).status_code == 404, path
        assert owner.browser.post(owner.base + path, {"role": "viewer"}).status_code == 404, path
    assert contents() == before
    assert (
        stranger.membership.user.email
        not in owner.browser.get(owner.base + "/settings/audit").content.decode()
    )


def test_members_are_invited_changed_and_removed(owner: Signed) -> None:
    url = owner.base + "/settings/members/"
    refused = owner.browser.post(url, {"email": "nobody", "role": "king"})
    assert refused.status_code == 422
    assert b"not an email address" in refused.content
    assert owner.browser.post(url, {"email": "ada@example.com", "role": "viewer"}).status_code == 302
    page = owner.browser.get(url).content.decode()
    assert "ada@example.com is invited as viewer" in page
    invitation = Invitation.objects.get(email="ada@example.com")
    action = f"{owner.base}/settings/invitations/{invitation.public_id}/revoke"
    assert b"1 link ends" in owner.browser.get(action).content
    owner.browser.post(action)
    assert Invitation.objects.get(pk=invitation.pk).revoked_at is not None

    other = MembershipFactory(tenant=owner.membership.tenant, role="viewer")
    edit = f"{owner.base}/settings/members/{other.public_id}/"
    owner.browser.post(edit, {"role": "developer", "may_see_payloads": "on"})
    other.refresh_from_db()
    assert (other.role, other.may_see_payloads) == ("developer", True)
    assert b"loses access" in owner.browser.get(edit + "remove").content
    owner.browser.post(edit + "remove")
    assert not Membership.objects.filter(pk=other.pk).exists()
    log = owner.browser.get(f"{owner.base}/settings/audit?subject={other.public_id}").content.decode()
    assert "member.remove" in log


def test_the_last_owner_stays(owner: Signed) -> None:
    me = owner.membership.public_id
    for path, body in (
        ("/settings/leave", {}),
        (f"/settings/members/{me}/remove", {}),
        (f"/settings/members/{me}/", {"role": "viewer"}),
    ):
        answer = owner.browser.post(owner.base + path, body, follow=True)
        assert b"keeps at least one owner" in answer.content, path
    second = MembershipFactory(tenant=owner.membership.tenant, role="owner")
    assert owner.browser.post(owner.base + "/settings/leave")["Location"] == "/"
    assert owner.browser.get(owner.base + "/").status_code == 404
    assert Membership.objects.filter(tenant=second.tenant, role="owner").count() == 1


def test_admins_do_not_make_owners(owner: Signed) -> None:
    admin = _with_role(owner, "admin")
    page = admin.browser.get(owner.base + "/settings/members/").content.decode()
    assert 'value="owner"' not in page
    answer = admin.browser.post(
        owner.base + "/settings/members/", {"email": "o@example.com", "role": "owner"}
    )
    assert answer.status_code == 422
    assert b"nly an owner makes" in answer.content
    assert Invitation.objects.count() == 0


def _make_key(who: Signed, **more: Any) -> ApiKey:
    who.browser.post(
        who.base + "/settings/keys/new",
        {"name": "robot", "scopes": ["jobs:read"], "expires": "30", "token": "token-1", **more},
    )
    return ApiKey.objects.get(tenant=who.membership.tenant)


def test_a_key_is_shown_once(owner: Signed) -> None:
    form = {"name": "robot", "scopes": ["jobs:read", "jobs:write"], "expires": "90", "token": "token-1"}
    made = owner.browser.post(owner.base + "/settings/keys/new", form)
    text = re.search(r"ch_live_[a-z2-7]{16}_[A-Za-z0-9-]{43}", made.content.decode())
    assert text is not None
    assert "no-store" in made["Cache-Control"]
    assert f"Bearer {text[0]}" in made.content.decode()  # a curl to copy
    key = ApiKey.objects.get(tenant=owner.membership.tenant)
    assert (key.scopes, key.name) == (["jobs:read", "jobs:write"], "robot")
    assert key.expires_at is not None
    assert timedelta(days=89) < key.expires_at - timezone.now() <= timedelta(days=90)
    again = owner.browser.post(owner.base + "/settings/keys/new", form, follow=True)  # a second click
    assert b"made already" in again.content
    assert ApiKey.objects.filter(tenant=owner.membership.tenant).count() == 1
    for path in ("/settings/keys/", "/settings/audit"):
        assert text[0] not in owner.browser.get(owner.base + path).content.decode()
    assert (
        AuditEvent.objects.filter(action="api_key.create", tenant_id=owner.membership.tenant.id).count() == 1
    )


def test_faults_of_a_key_are_placed_at_fields(owner: Signed) -> None:
    refused = owner.browser.post(
        owner.base + "/settings/keys/new", {"name": "", "token": "t", "scopes": "x", "expires": ""}
    )
    page = refused.content.decode()
    assert refused.status_code == 422
    assert re.search(r'id="fault-name">\s*<p class="fault">1 to 120', page)
    assert re.search(r'id="fault-scopes">\s*<p class="fault">', page)


@pytest.mark.parametrize("expires", [None, "31", "-1", "soon"])
def test_a_key_never_ends_by_accident(owner: Signed, expires: str | None) -> None:
    form = {"name": "robot", "scopes": ["jobs:read"], "token": "token-1"}
    form |= {} if expires is None else {"expires": expires}
    refused = owner.browser.post(owner.base + "/settings/keys/new", form)
    assert refused.status_code == 422
    assert "choose one of: in 30 days" in refused.content.decode()
    assert not ApiKey.objects.filter(tenant=owner.membership.tenant).exists()
    owner.browser.post(owner.base + "/settings/keys/new", {**form, "expires": ""})
    assert ApiKey.objects.get(tenant=owner.membership.tenant).expires_at is None


def test_a_rotation_says_how_long_the_old_key_lives(owner: Signed) -> None:
    key = _make_key(owner)
    url = f"{owner.base}/settings/keys/{key.pk}/rotate"
    assert b"one of 0, 1, 24" in owner.browser.post(url, {"grace_hours": "x"}, follow=True).content
    key.refresh_from_db()
    assert key.successor is None


def test_a_form_of_a_key_is_used_once_however_fast(owner: Signed) -> None:
    request = RequestFactory().post("/")
    request.user = owner.membership.user
    token = str(uuid.uuid4())
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda _: first_use(request, token), range(8)))
    assert first.count(True) == 1


def test_keys_come_in_pages(owner: Signed) -> None:
    tenant = owner.membership.tenant
    ApiKey.objects.bulk_create(
        ApiKey(id=f"k{n:03}", tenant=tenant, name=f"robot {n:03}", sha256=f"{n:064x}",
               scopes=["jobs:read"], created_by="service:t")
        for n in range(120)
    )  # fmt: skip
    seen: list[str] = []
    url = f"{owner.base}/settings/keys/"
    while url:
        page = owner.browser.get(url).content.decode()
        seen += re.findall(r">robot (\d{3})<", page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        url = following[1].replace("&amp;", "&") if following else ""
    assert sorted(seen) == [f"{n:03}" for n in range(120)]
    assert len(seen) == 120
    assert owner.browser.get(f"{owner.base}/settings/keys/?cursor=none").status_code == 404


def test_keys_are_rotated_with_grace_and_revoked_after_asking(owner: Signed) -> None:
    key = _make_key(owner)
    url = f"{owner.base}/settings/keys/{key.pk}"
    assert b"never used" in owner.browser.get(url + "/rotate").content
    token = re.search(r'name="token" value="([^"]+)"', owner.browser.get(url + "/rotate").content.decode())
    assert token is not None
    form = {"grace_hours": "1", "token": token[1]}
    assert b"ch_live_" in owner.browser.post(url + "/rotate", form).content
    keys = ApiKey.objects.filter(tenant=owner.membership.tenant)
    assert keys.count() == 2
    for again in (form, {"grace_hours": "1"}):
        assert b"was rotated already" in owner.browser.post(url + "/rotate", again, follow=True).content
    assert keys.count() == 2
    key.refresh_from_db()
    assert key.successor is not None
    assert key.expires_at is not None
    assert timezone.now() + timedelta(minutes=59) < key.expires_at <= timezone.now() + timedelta(hours=1)
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now())
    asked = owner.browser.get(url + "/revoke").content
    assert b"in use right now" in asked
    assert ApiKey.objects.get(pk=key.pk).revoked_at is None
    owner.browser.post(url + "/revoke")
    assert ApiKey.objects.get(pk=key.pk).revoked_at is not None
    assert b"Revoked" in owner.browser.get(owner.base + "/settings/keys/?ended").content


def test_the_workspaces_settings(owner: Signed) -> None:
    url = owner.base + "/settings/"
    bad = owner.browser.post(url, {"display_name": "x" * 121, "timezone": "Mars/X", "theme": "pink"})
    assert bad.status_code == 422
    for place in ("display_name", "timezone", "theme"):
        assert re.search(rf'id="fault-{place}">\s*<p class="fault">', bad.content.decode())
    saved = owner.browser.post(
        url, {"display_name": "Night <shift>", "timezone": "Asia/Tokyo", "theme": "dark"}, follow=True
    ).content.decode()
    assert "Night &lt;shift&gt;" in saved
    assert 'data-preferred="dark"' in saved
    assert "Asia/Tokyo" in owner.browser.get(owner.base + "/jobs/").content.decode()
    event = AuditEvent.objects.get(action="workspace.update")
    assert (event.before["timezone"], event.after["timezone"]) == ("UTC", "Asia/Tokyo")
    other = sign_in("owner")
    assert "Night" not in other.browser.get(other.base + "/settings/").content.decode()


def test_what_a_person_prefers_goes_before_the_workspace(owner: Signed) -> None:
    owner.browser.post(
        owner.base + "/settings/", {"display_name": "", "timezone": "Asia/Tokyo", "theme": "dark"}
    )
    owner.browser.post("/account/", {"name": "", "timezone": "Africa/Lagos", "theme": "light"})
    page = owner.browser.get(owner.base + "/jobs/").content.decode()
    assert "Africa/Lagos" in page
    assert 'data-preferred="light"' in page


def test_the_audit_log_is_filtered_and_paged(owner: Signed) -> None:
    for number in range(55):
        AuditEvent.objects.create(
            tenant_id=owner.membership.tenant.id, actor="service:tests", action="test.many",
            subject=f"thing {number}", before={"a": {"b": 1}, "same": 1}, after={"a": {"b": 2}, "same": 1},
        )  # fmt: skip
    url = owner.base + "/settings/audit"
    first = owner.browser.get(url + "?action=test.").content.decode()
    assert first.count("<tr data-row>") == 50
    assert "a.b" in first
    assert ">same<" not in first
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following is not None
    second = owner.browser.get(following[1].replace("&amp;", "&")).content.decode()
    assert second.count("<tr data-row>") == 5
    assert "thing 0" in second
    assert owner.browser.get(url + "?subject=thing 7").content.decode().count("<tr data-row>") == 1
    assert b"Nothing fits" in owner.browser.get(url + "?since=2999-01-01").content
    for odd in ("?since=yesterday", "?cursor=x", "?until=9999-12-31"):
        assert owner.browser.get(url + odd).status_code == 422, odd


def test_a_city_leads_to_its_zone(owner: Signed) -> None:
    form = {"display_name": "", "theme": "auto", "timezone": "Berlin"}
    page = owner.browser.post(owner.base + "/settings/", form).content.decode()
    assert "did you mean Europe/Berlin?" in page
    page = owner.browser.post(owner.base + "/settings/", {**form, "timezone": "new york"}).content.decode()
    assert "did you mean America/New_York?" in page
    page = owner.browser.post(owner.base + "/settings/", {**form, "timezone": "Xyzzy"}).content.decode()
    assert "Europe/Berlin is one" in page


def test_limits_show_what_is_used(owner: Signed, cell: Cell) -> None:
    page = owner.browser.get(owner.base + "/settings/limits").content.decode()
    assert owner.membership.tenant.placement.cell_id in page
    assert "Runs a second" in page
    assert "the busiest second of the coming day" in page
    tenant = owner.membership.tenant.public_id
    cell.answers[f"GET /internal/tenants/{tenant}/use"] = (503, {"detail": "away"})
    away = owner.browser.get(owner.base + "/settings/limits")
    assert away.status_code == 200
    assert b"What runs now is not known" in away.content


def test_delays_say_whose_doing_they_were(owner: Signed, cell: Cell) -> None:
    url = owner.base + "/delays"
    nothing = {
        "since": "", "until": "", "runs": 0, "complete": True, "waited_ms": 0, "mean_ms": None, "parts": [],
        "crowded_minutes": [], "sentence": "No run of this time has begun.", "method": "By where it went.",
    }  # fmt: skip
    cell.answers["GET /v1/delays"] = (200, nothing)
    assert b"No run began in this time" in owner.browser.get(url).content
    parts = [
        {"part": "others", "ms": 7500, "mean_ms": 750.0, "share": 75.0},
        {"part": "window", "ms": 2500, "mean_ms": 250.0, "share": 25.0},
        {"part": "tomorrows", "ms": 0, "mean_ms": 0.0, "share": 0.0},
    ]
    crowded = {"minute": "2026-11-30T06:00:00Z", "runs": 4, "others_ms": 7500, "others_share": 90.0}
    told = {
        **nothing, "runs": 10, "complete": False, "waited_ms": 10000, "mean_ms": 1000.0, "parts": parts,
        "crowded_minutes": [crowded], "sentence": "10 runs waited.",
    }  # fmt: skip
    cell.answers["GET /v1/delays"] = (200, told)
    page = owner.browser.get(url + "?span=1h").content.decode()
    assert page.index("Other tenants of the cell") < page.index("Their own dispatch windows")
    assert "75.0 %" in page
    assert "There were more runs than that." in page
    assert owner.browser.get(url + "?span=forever").status_code == 200
    assert f'href="{url}"' in owner.browser.get(owner.base + "/settings/limits").content.decode()


def test_getting_started_carries_the_readers_own_key(owner: Signed, cell: Cell) -> None:
    url = owner.base + "/start"
    assert b"ch_live_\xe2\x80\xa6" in owner.browser.get(url).content
    made = owner.browser.post(url, {"token": "t1"}).content.decode()
    text = re.search(r"ch_live_[a-z2-7]{16}_[A-Za-z0-9-]{43}", made)
    assert text is not None
    assert made.count(text[0]) == 4  # the variable, curl, Python, the command line
    owner.browser.post(url, {"token": "t1"})
    assert ApiKey.objects.filter(tenant=owner.membership.tenant).count() == 1
    viewer = _with_role(owner, "viewer")
    viewer.browser.post(url, {"token": "t2"})
    assert ApiKey.objects.filter(tenant=owner.membership.tenant).count() == 1
    cell.answers["GET /v1/jobs"] = (503, {"detail": "away"})
    assert b"cannot be reached" in owner.browser.get(url).content


@pytest.mark.parametrize(
    "month", ["", "?month=2026-02", "?month=nonsense", "?month=9999-12", "?month=0001-01"]
)
def test_usage_of_any_month(owner: Signed, month: str) -> None:
    page = owner.browser.get(owner.base + "/usage" + month)
    assert page.status_code == 200
    assert b"Nothing was used" in page.content


def test_pausing_all_work_asks_first_with_numbers(owner: Signed) -> None:
    settings = owner.browser.get(f"{owner.base}/settings/").content.decode()
    assert f'href="{owner.base}/settings/work" data-dialog' in settings
    asked = owner.browser.get(f"{owner.base}/settings/work").content.decode()
    assert "Scheduled jobs and retries: " in asked
    assert "Runs under way: " in asked
    tenant = owner.membership.tenant
    tenant.refresh_from_db()
    assert tenant.paused_at is None
    owner.browser.post(f"{owner.base}/settings/work", {"verb": "pause", "reason": "a test"})
    tenant.refresh_from_db()
    assert tenant.paused_at is not None
    assert owner.browser.get(f"{owner.base}/settings/work").status_code == 302
