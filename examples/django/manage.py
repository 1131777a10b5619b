"""Django's own commands: `python manage.py runserver`."""

import os
import sys

try:
    from django.core.management import execute_from_command_line
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -r requirements.txt") from None

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
