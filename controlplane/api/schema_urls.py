from django.urls import path
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.views import SpectacularAPIView, SpectacularRedocView

from controlplane.api.document import show

urlpatterns = [
    path("v1.json", show, name="openapi"),
    path(
        "management.json",
        SpectacularAPIView.as_view(renderer_classes=[OpenApiJsonRenderer]),
        name="openapi-management",
    ),
    path("management", SpectacularRedocView.as_view(url_name="openapi-management")),
]
