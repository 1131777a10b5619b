"""Django's own commands: `python manage.py runserver`."""

import os
import sys

try:
    import jaiminho  # noqa: F401
    from django.core.management import execute_from_command_line
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None
if "HEADGATE_TOKEN_SECRET" not in os.environ:
    raise SystemExit(
        "HEADGATE_TOKEN_SECRET is not set: export HEADGATE_TOKEN_SECRET=$(openssl rand -hex 32), the same for the gateway"
    )

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
