"""The settings, with an outbox: `DJANGO_SETTINGS_MODULE=shop.outbox_settings`, after `pip install 'django-jaiminho>=2.2'`."""

from .settings import *  # noqa: F403
from .settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "jaiminho"]
# The other strategy writes a row only when a publish has failed: it loses the event of a process that is killed before that.
JAIMINHO_CONFIG = {"PUBLISH_STRATEGY": "keep-order", "DELETE_AFTER_SEND": True}
