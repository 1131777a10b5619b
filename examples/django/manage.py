"""Django's own commands: `python manage.py runserver`."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
