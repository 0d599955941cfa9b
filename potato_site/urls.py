"""Where everything of the site is."""

from django.contrib import admin
from django.templatetags.static import static
from django.urls import include, path
from django.views.generic import RedirectView
from django.views.i18n import set_language

from potato_site.health import healthz

handler500 = "potato_site.failures.failed"

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="training:index")),
    path("favicon.ico", RedirectView.as_view(url=static("training/icon.svg"))),
    path("healthz", healthz, name="healthz"),
    path("admin/training/api/", include("training.api.urls")),
    path("api/training/", include("training.api.agent_urls")),
    path("admin/language", set_language, name="set_language"),
    path("admin/", include("training.urls")),
    path("admin/", admin.site.urls),
]
