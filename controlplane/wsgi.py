"""`granian --interface wsgi controlplane.wsgi:application`.

WSGI, not ASGI: every view is synchronous (a tenant's schema belongs to a thread's connection),
and under ASGI each request would open a connection of its own.
"""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
application = get_wsgi_application()
