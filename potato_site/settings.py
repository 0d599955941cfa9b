"""The environment, read into Django's settings."""

from __future__ import annotations

import os
from pathlib import Path

from potato_site.database_url import database_of
from potato_site.languages import languages_of, time_zone_of
from potato_site.project_files import DATABASE, make_private, mark_of, secret_key, training_folder

HERE = Path(__file__).resolve().parent


def _words(variable: str, default: str = "") -> list[str]:
    """The words of an environment variable that holds a list, separated by commas."""
    return [word.strip() for word in os.environ.get(variable, default).split(",") if word.strip()]


def _flag(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in ("1", "true", "yes", "on")


# The project file that this site serves; everything about training is read from it.
POTATO_CONFIG = os.environ.get("POTATO_CONFIG", "")
_TRAINING = training_folder(POTATO_CONFIG)

# A site without a project has nothing to keep: its database is in memory, and its commands still load.
_DATABASE_URL = os.environ.get("DATABASE_URL", "")
_OWN_DATABASE = {
    "ENGINE": "django.db.backends.sqlite3",
    "NAME": str(_TRAINING / DATABASE) if _TRAINING else ":memory:",
    "CONN_MAX_AGE": 60,
}
DATABASES = {"default": database_of(_DATABASE_URL) if _DATABASE_URL else _OWN_DATABASE}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["OPTIONS"] = {
        # Readers go on while one writes; a writer takes its lock at once and waits its turn, so that no
        # transaction is half done when it meets another writer.
        "transaction_mode": "IMMEDIATE",
        "timeout": 30,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
# What the project's folder is marked with; before anything is made in it, for the database may be the wrong one.
DATABASE_MARK = mark_of(_TRAINING, DATABASES["default"]) if _TRAINING is not None else None
if _TRAINING is not None:
    make_private(_TRAINING, with_database=not _DATABASE_URL)

DEBUG = _flag("DJANGO_DEBUG")
SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY") or secret_key(_TRAINING)
ALLOWED_HOSTS = _words("DJANGO_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = _words("DJANGO_CSRF_TRUSTED_ORIGINS")

if _flag("DJANGO_SECURE"):  # the site is reached by https alone, through a proxy that sets X-Forwarded-Proto
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = int(os.environ.get("DJANGO_HSTS_SECONDS") or 0)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "training",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "potato_site.content_policy.ContentPolicy",
    "potato_site.hosts.KnownHosts",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "potato_site.site_language.SiteLanguage",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

ROOT_URLCONF = "potato_site.urls"
WSGI_APPLICATION = "potato_site.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        # In a checkout the templates are the top folder's; the wheel carries them inside this package.
        "DIRS": [HERE.parent / "templates", HERE / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# The first is for browsers that want none of them; one alone is everybody's, and there is no menu.
LANGUAGES = languages_of(_words("POTATO_LANGUAGES"))
LANGUAGE_CODE = LANGUAGES[0][0]
LANGUAGE_COOKIE_SECURE = _flag("DJANGO_SECURE")
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LOCALE_PATHS = [HERE.parent / "training" / "locale"]
FORMAT_MODULE_PATH = ["potato_site.formats"]
TIME_ZONE = time_zone_of(os.environ.get("POTATO_TIME_ZONE") or "UTC")  # of what people see; kept is UTC
USE_I18N = True
USE_TZ = True
# Off, for an id in an address or a number in an attribute would get one; people's numbers pass the filter `figure`.
USE_THOUSAND_SEPARATOR = False

# Static files are found in the packages themselves at start, so nothing has to be collected; DJANGO_STATIC_ROOT is
# for an administrator who serves them by a web server.
STATIC_URL = "/static/"
STATIC_ROOT = os.environ.get("DJANGO_STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "filters": {"refusals": {"()": "potato_site.request_log.OneLineOfARefusal"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["refusals"]}},
    "root": {"handlers": ["stderr"], "level": os.environ.get("DJANGO_LOG_LEVEL", "WARNING").upper()},
    "loggers": {
        "training": {"level": os.environ.get("DJANGO_LOG_LEVEL", "INFO").upper()},
        "gunicorn.http.wsgi": {"level": "ERROR"},  # it warns of each HEAD, say of a probe, whose body it leaves out
    },
}

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
}

SPECTACULAR_SETTINGS = {
    "TITLE": "Training API of potato_site",
    "DESCRIPTION": "Runs of a Potato project: asked for, followed, cancelled, their predictions read and taken back. "
    "Send the project's admin key in X-API-Key, or use a staff session. Errors are `{error, code, hint?, field?}`. "
    "Machines that train speak to `/api/training/` with a bearer token, as docs/agent-protocol.md tells.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/admin/training/api",
    # The page of the documents comes from the sidecar's files; nothing is fetched from elsewhere.
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
}
