"""Every other path below /v1/."""

from __future__ import annotations

from typing import Any, NoReturn

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from controlplane.errors import NotFound


@extend_schema(exclude=True)
class NothingHereView(APIView):
    """404 as a problem document."""

    permission_classes = (AllowAny,)

    def _nothing(self, request: Request, *args: Any, **kwargs: Any) -> NoReturn:
        raise NotFound("nothing at this path")

    get = post = put = patch = delete = head = options = _nothing
