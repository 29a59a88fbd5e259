"""Paths below /v1/. Longer ones first: `<id>` also matches `<id>:verb`."""

from django.urls import include, path, re_path

from controlplane.api.views import api_keys, audit, fallback, members, operators, tenant, topology

admin_urls = [
    path("tenants", operators.TenantsView.as_view()),
    path("tenants/<str:tenant>/quotas", operators.TenantQuotasView.as_view()),
    path("tenants/<str:tenant>:suspend", operators.SuspendTenantView.as_view()),
    path("tenants/<str:tenant>:resume", operators.ResumeTenantView.as_view()),
    path("tenants/<str:tenant>", operators.OneTenantView.as_view()),
    path("regions", topology.RegionsView.as_view()),
    path("cells", topology.CellsView.as_view()),
    path("cells/<str:name>:open", topology.OpenCellView.as_view()),
    path("cells/<str:name>:cordon", topology.CordonCellView.as_view()),
    path("cells/<str:name>:drain", topology.DrainCellView.as_view()),
    path("cells/<str:name>:retire", topology.RetireCellView.as_view()),
    path("cells/<str:name>", topology.CellView.as_view()),
    path("placements", topology.PlacementsView.as_view()),
    path("placements:explain", topology.ChooseView.as_view()),
    path("api-keys", api_keys.OperatorKeysView.as_view()),
    path("api-keys/<str:key_id>:rotate", api_keys.RotateOperatorKeyView.as_view()),
    path("api-keys/<str:key_id>:revoke", api_keys.RevokeOperatorKeyView.as_view()),
    path("api-keys/<str:key_id>", api_keys.OperatorKeyView.as_view()),
    path("audit-log", audit.OperatorAuditLogView.as_view()),
    path("", include("billing.urls_operators")),
]

urlpatterns = [
    path("tenant", tenant.TenantView.as_view()),
    path("tenant:pause", tenant.PauseTenantView.as_view()),
    path("tenant:resume", tenant.ResumeOwnTenantView.as_view()),
    path("members", members.MembersView.as_view()),
    path("members/<str:member_id>", members.MemberView.as_view()),
    path("api-keys", api_keys.ApiKeysView.as_view()),
    path("api-keys/<str:key_id>:rotate", api_keys.RotateApiKeyView.as_view()),
    path("api-keys/<str:key_id>:revoke", api_keys.RevokeApiKeyView.as_view()),
    path("api-keys/<str:key_id>", api_keys.ApiKeyView.as_view()),
    path("audit-log", audit.AuditLogView.as_view()),
    path("admin/", include(admin_urls)),
    path("", include("billing.urls")),
    re_path(r"", fallback.NothingHereView.as_view()),
]
