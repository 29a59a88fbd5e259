"""Every address Django answers."""

from importlib.util import find_spec

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

from billing.stripe.webhooks import webhook
from controlplane import operations

# Operators sign in as everybody does: second factor, throttling and all.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

urlpatterns = [
    path("healthz", operations.healthz),
    path("readyz", operations.readyz),
    path("metrics", operations.metrics),
    path("internal/", include("controlplane.internal.urls")),
    path("v1/", include("controlplane.api.urls")),
    path("webhooks/stripe", webhook),
    path("openapi/", include("controlplane.api.schema_urls")),
    path("admin/pages/", include("controlplane.operators.urls")),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
]
if find_spec("controlplane.console.urls") if find_spec("controlplane.console") else None:
    urlpatterns.append(path("", include("controlplane.console.urls")))
