"""The settings of a small shop; yours are longer."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "only for the example")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "shop"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware", "django.contrib.auth.middleware.AuthenticationMiddleware"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DATABASE", "shop.sqlite3")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Where events go: None is the private Redis of a gateway in this folder. The secret proves who a browser is, to the gateway too.
HEADGATE_REDIS_URL = os.environ.get("HEADGATE_REDIS_URL")
HEADGATE_TOKEN_SECRET = os.environ["HEADGATE_TOKEN_SECRET"]
