"""Every address Django answers."""

from importlib.util import find_spec

from django.contrib import admin
from django.urls import include, path

from controlplane import operations

urlpatterns = [
    path("healthz", operations.healthz),
    path("readyz", operations.readyz),
    path("metrics", operations.metrics),
    path("internal/", include("controlplane.internal.urls")),
    path("v1/", include("controlplane.api.urls")),
    path("openapi/", include("controlplane.api.schema_urls")),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
]
if find_spec("controlplane.console.urls") if find_spec("controlplane.console") else None:
    urlpatterns.append(path("", include("controlplane.console.urls")))
