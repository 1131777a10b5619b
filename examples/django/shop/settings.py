"""The settings of a small shop; yours are longer."""

import os

DEBUG = True
ROOT_URLCONF = "shop.views"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "jaiminho", "shop"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
]
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# The other strategy writes a row only when a publish has failed: it loses the event of a process that is killed before that.
JAIMINHO_CONFIG = {"PUBLISH_STRATEGY": "keep-order", "DELETE_AFTER_SEND": True}
# The gateway as browsers reach it. It has the same secret, and knows by it who a browser is. Yours differs from Django's.
GATEWAY_URL = os.environ.get("GATEWAY_URL", "http://127.0.0.1:8000")
HEADGATE_TOKEN_SECRET = SECRET_KEY = os.environ["HEADGATE_TOKEN_SECRET"]
