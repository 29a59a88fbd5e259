"""Django settings. Everything that differs between installations comes from `CONTROL_*`."""

from importlib.util import find_spec
from pathlib import Path

from django.templatetags.static import static
from django.urls import reverse_lazy

from controlplane.configuration import django_database, read_configuration
from controlplane.logs import logging_settings
from controlplane.mail import mail_settings

BASE_DIR = Path(__file__).resolve().parent.parent
CONFIGURATION = read_configuration()

SECRET_KEY = CONFIGURATION.secret_key
DEBUG = CONFIGURATION.debug
ALLOWED_HOSTS = list(CONFIGURATION.allowed_hosts)
PUBLIC_API_URL = CONFIGURATION.public_api_url
CONSOLE_URL = CONFIGURATION.console_url

# --- applications --------------------------------------------------------------------------
_CONSOLE = ["controlplane.console"] if find_spec("controlplane.console") else []

# Everything that is asked across tenants, or by another key than the tenant, is shared.
SHARED_APPS = [
    "django_tenants",
    "controlplane.tenants",
    "controlplane.topology",
    "controlplane.events",
    "controlplane.api",
    "controlplane.apps.ControlPlaneConfig",
    "billing",
    *_CONSOLE,
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "controlplane.moves",
    "controlplane.evacuations",
    "controlplane.rehearsals",
    "controlplane.notifications",
    "controlplane.custody",
    "controlplane.operators",  # behind allauth, whose admin pages it replaces
]
# The console's workspace, one schema per tenant; see controlplane/workspace/README.md.
TENANT_APPS = ["controlplane.workspace"]
INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "controlplane.console.middleware.PageHeaders",
    "controlplane.console.inputs.TextOnly",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    # The only place that activates a tenant's schema, and only below /t/.
    "controlplane.workspace.middleware.WorkspaceMiddleware",
]
ROOT_URLCONF = "controlplane.urls"
WSGI_APPLICATION = "controlplane.wsgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # Before those of unfold, whose frame they complete.
        "DIRS": [Path(__file__).parent / "operators" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.debug",
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- databases -----------------------------------------------------------------------------
# Threads keep their connection, but not for long: a backend that has visited thousands of
# tenant schemas holds all their catalogue entries in memory.
DATABASES = {
    "default": {
        "ENGINE": "django_tenants.postgresql_backend",
        **django_database(CONFIGURATION.database_url),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
    },
}
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
TENANT_MODEL = "tenants.Tenant"
TENANT_DOMAIN_MODEL = "tenants.Domain"
TENANT_LIMIT_SET_CALLS = False
PUBLIC_SCHEMA_URLCONF = ROOT_URLCONF
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
#: How many unclaimed workspace schemas are kept ready.
WORKSPACE_POOL_SIZE = 8

# --- people --------------------------------------------------------------------------------
AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
# scrypt: as strong as the default, a tenth of its time on our sign-ins.
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.ScryptPasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
ACCOUNT_ADAPTER = "controlplane.tenants.accounts.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "none"  # accounts begin with an invitation, which reached its address
ACCOUNT_CHANGE_EMAIL = True  # one address; a new one takes over once it is confirmed
ACCOUNT_EMAIL_NOTIFICATIONS = True  # whoever changes an account's locks, its owner hears of it
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_REAUTHENTICATION_REQUIRED = True
ACCOUNT_REAUTHENTICATION_METHODS = {"password", "mfa"}
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = False
ACCOUNT_LOGIN_ON_PASSWORD_RESET = False  # the second factor is still asked for
ACCOUNT_PREVENT_ENUMERATION = True
ACCOUNT_SESSION_REMEMBER = None
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "20/m/ip,5/300s/key"}
MFA_ADAPTER = "controlplane.tenants.accounts.MfaAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Clockhouse"
MFA_TOTP_TOLERANCE = 1  # clocks of telephones are half a minute off
# allauth guards against sign-ups under others' addresses; here nobody signs up.
MFA_ALLOW_UNVERIFIED_EMAIL = True
USERSESSIONS_TRACK_ACTIVITY = False  # a write for every page is more than it is worth
LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGOUT_REDIRECT_URL = "/accounts/login/"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
_SECURE = CONFIGURATION.console_url.startswith("https://")
SESSION_COOKIE_SECURE = _SECURE
CSRF_COOKIE_SECURE = _SECURE
CSRF_TRUSTED_ORIGINS = [CONFIGURATION.console_url]
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if _SECURE else None
SECURE_HSTS_SECONDS = 31_536_000 if _SECURE else 0
X_FRAME_OPTIONS = "DENY"

globals().update(mail_settings(CONFIGURATION.email_url))
DEFAULT_FROM_EMAIL = CONFIGURATION.email_from
SERVER_EMAIL = DEFAULT_FROM_EMAIL

# Counters of sign-in throttling: shared by all processes, and never without an engine.
CACHES = {
    "default": {
        "BACKEND": "controlplane.caching.SharedCache",
        "LOCATION": CONFIGURATION.valkey_url,
        "KEY_PREFIX": "cache",
        "TIMEOUT": 300,
        "OPTIONS": {"instead": "database"},
    },
    "database": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "django_cache",
        "TIMEOUT": 300,
        "OPTIONS": {"MAX_ENTRIES": 10_000},
    },
}

# --- time, language, files -----------------------------------------------------------------
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "/static/"
# Served from the packages themselves: there is nothing to collect before a start.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
WHITENOISE_MAX_AGE = 3600 if not DEBUG else 0

# --- the management API --------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["controlplane.api.authentication.RouterAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["controlplane.api.permissions.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["controlplane.api.parsing.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "controlplane.api.schema.ApiSchema",
    "EXCEPTION_HANDLER": "controlplane.api.problems.problem_response",
    "UNAUTHENTICATED_USER": None,
    "DATETIME_FORMAT": "%Y-%m-%dT%H:%M:%SZ",
    "COERCE_DECIMAL_TO_STRING": True,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Clockhouse management API",
    "DESCRIPTION": "Tenants, members, keys, quotas, placement, usage and cost.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SCHEMA_PATH_PREFIX": "/v1",
    "PREPROCESSING_HOOKS": ["controlplane.api.schema.only_public_paths"],
    "SERVERS": [{"url": PUBLIC_API_URL}],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_NAME_OVERRIDES": {
        "DefaultRegionPolicyEnum": ["HOME_ASYNC", "STRICT", "SINGLE_REGION"],
        "EvacuationKindEnum": ["EVACUATE", "FAIL_BACK"],
        "KindEnum": "controlplane.topology.models.CellKind.choices",
        "PricedRegionPolicyEnum": ["*", "HOME_ASYNC", "STRICT", "SINGLE_REGION"],
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024
# More ticked rows than an operation takes are answered with words, not with a bare 400.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000

# --- moves ---------------------------------------------------------------------------------
OWNERS_MAY_MOVE = CONFIGURATION.owners_may_move

# --- notifications -------------------------------------------------------------------------
NOTIFICATIONS = {
    "egress_allow": CONFIGURATION.egress_allow,
    "lease_seconds": 60,  # longer than a try can take; a sender that is silent for longer is dead
    "patience_seconds": 15,  # that a receiver has to answer
}

# --- exports of everything a tenant has ----------------------------------------------------
_FILES = {"kept_days": 7, "lease_seconds": 60, "rows_per_file": 20_000, "bytes_per_file": 256 << 20}
# Between the wish to erase a tenant and its beginning; and what certificates say of backups.
CUSTODY = {**_FILES, "grace_seconds": 72 * 3600, "backups_kept_days": 35}

# --- billing: what it needs to know about the world, handed in ------------------------------
BILLING_TENURES = "controlplane.topology.tenures.tenures_of"
BILLING_STORES = "controlplane.topology.tenures.stores_of"
BILLING_CELLS = "controlplane.topology.witness.CellWitness"
BILLING_RESIDENTS = "controlplane.topology.tenures.residents_of"
BILLING_CELL_REGIONS = "controlplane.topology.tenures.regions_of_cells"
BILLING_AUDIT = "controlplane.events.recording.record"
BILLING_READ = "controlplane.operators.reads.record_read"
BILLING_WANT = "controlplane.events.recording.want"
BILLING_PEOPLE = "controlplane.tenants.billed.people_of"
BILLING_GOING = "controlplane.custody.going.is_going"
BILLING_DELAY_LOW = "controlplane.tenants.actions.tenants.delay_low"
BILLING_CURRENCY = "USD"  # of tenants whose billing account says nothing else
#: Who writes invoices. Numbers are counted by `key`, without gaps.
BILLING_ISSUER = {"key": "clockhouse", "prefix": "CH-", **CONFIGURATION.issuer}
BILLING_DUE_DAYS = 14
#: Days a draft lies open for operators before it becomes final by itself.
BILLING_REVIEW_DAYS = 2
BILLING_STRIPE = {
    "key": CONFIGURATION.stripe_key,
    "webhook_secret": CONFIGURATION.stripe_webhook_secret,
    "url": CONFIGURATION.stripe_url,
}
BILLING_EXPORTS = {
    "url": CONFIGURATION.exports,
    "endpoint": CONFIGURATION.exports_endpoint,
    "kept_days": 30,
    "lease_seconds": 60,  # a worker that is silent for longer is taken for dead
    "rows_per_file": 250_000,
}
#: The cells' history: a copy of what `CELL_LAKE` and `CELL_LAKE_ENDPOINT` say there.
BILLING_LAKE = {
    "url": CONFIGURATION.lake,
    "endpoint": CONFIGURATION.lake_endpoint,
    "seconds": 20,  # a report that takes longer is given up
    "memory": "512MB",
    "most_bytes": 4 * 1024**3,  # of files that one report may read
}

# --- operators' pages ----------------------------------------------------------------------
_MAIL_PAGE = (
    [{"title": "Mails", "icon": "mail", "link": reverse_lazy("operators:mail")}]
    if CONFIGURATION.email_url.startswith("file:")
    else []
)
UNFOLD = {
    "SITE_TITLE": "Clockhouse operators",
    "SITE_HEADER": "Clockhouse",
    "SITE_SYMBOL": "schedule",
    "SITE_FAVICONS": [
        {"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("console/clock.svg")}
    ],
    "SHOW_HISTORY": False,
    "SHOW_VIEW_ON_SITE": False,
    "STYLES": [lambda request: static("operators/pages.css")],
    "SCRIPTS": [lambda request: static("operators/labels.js")],
    "SIDEBAR": {
        "show_search": True,
        "show_all_applications": True,
        "navigation": [
            {
                "title": "Operations",
                "separator": True,
                "items": [
                    {"title": "Topology", "icon": "hub", "link": reverse_lazy("operators:topology")},
                    {"title": "Regions", "icon": "public", "link": reverse_lazy("operators:regions")},
                    {"title": "Cells", "icon": "dns", "link": reverse_lazy("operators:cells")},
                    {"title": "Tenants", "icon": "apartment", "link": reverse_lazy("operators:tenants")},
                    {"title": "Moves", "icon": "swap_horiz", "link": reverse_lazy("operators:moves")},
                    {
                        "title": "Erasures",
                        "icon": "delete_forever",
                        "link": reverse_lazy("operators:erasures"),
                    },
                    {"title": "Placements", "icon": "pin_drop", "link": reverse_lazy("operators:placements")},
                    {"title": "Ownership", "icon": "key", "link": reverse_lazy("operators:ownership")},
                    {"title": "Returns", "icon": "undo", "link": reverse_lazy("operators:returns")},
                    {
                        "title": "Notifications",
                        "icon": "notifications",
                        "link": reverse_lazy("operators:notifications"),
                    },
                    {"title": "System", "icon": "monitor_heart", "link": reverse_lazy("operators:system")},
                    *_MAIL_PAGE,
                ],
            },
            {
                "title": "Money",
                "separator": True,
                "items": [
                    {"title": title, "icon": icon, "link": reverse_lazy(f"operators:{name}")}
                    for title, icon, name in (
                        ("Revenue and cost", "savings", "money"),
                        ("Invoices", "receipt_long", "invoices"),
                        ("Price books", "payments", "prices"),
                        ("Contracts", "handshake", "contracts"),
                        ("Exports", "download", "exports"),
                        ("Billing periods", "calendar_month", "periods"),
                        ("Meters", "speed", "meters"),
                    )
                ],
            },
            {
                "title": "Records",
                "separator": True,
                "items": [
                    {"title": title, "icon": icon, "link": reverse_lazy(f"admin:{model}_changelist")}
                    for title, icon, model in (
                        ("Audit log", "history", "events_auditevent"),
                        ("People", "person", "tenants_user"),
                        ("Members", "group", "tenants_membership"),
                        ("API keys", "key", "tenants_apikey"),
                        ("Support visits", "support_agent", "operators_supportvisit"),
                        ("Outbox", "outbox", "events_outboxitem"),
                        ("Usage by day", "bar_chart", "billing_usageday"),
                        ("All meter conflicts", "warning", "billing_meterconflict"),
                        ("All usage drift", "difference", "billing_driftfinding"),
                        ("Unit costs", "savings", "billing_pricebook"),
                        ("Credit notes", "undo", "billing_creditnote"),
                        ("Budget alerts", "notifications", "billing_budgetalert"),
                        ("Stripe differences", "balance", "billing_stripedifference"),
                    )
                ],
            },
        ],
    },
}

LOGGING = logging_settings(CONFIGURATION.log_level)

# --- outside effects: topic of an outbox row → what does it ---------------------------------
OUTBOX_HANDLERS = {
    "mail_invitation": "controlplane.tenants.mails.mail_invitation",
    "push_tenant": "controlplane.topology.push.push_tenant",
    "billing_mail_invoice": "billing.invoices.mails.mail_invoice",
    "billing_mail_credit_note": "billing.invoices.mails.mail_credit_note",
    "billing_mail_budget": "billing.budgets.watching.mail_budget",
    "mail_erasure": "controlplane.custody.mails.mail_erasure",
    "mail_notification_rule_stopped": "controlplane.notifications.mails.mail_stopped",
    "stripe_invoice": "billing.stripe.invoicing.push_invoice",
}
