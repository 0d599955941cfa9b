"""The registry in Django's admin: facts to read and search; what may be done to a run is done on its own page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from training.models import (
    AuditEntry,
    BackendToken,
    MetricPoint,
    Prediction,
    Run,
    RunItem,
    StepLine,
    SupervisorLease,
    Verdict,
)
from training.showing import OUTCOMES
from training.states import STATES


class Facts(admin.ModelAdmin):
    """Rows that the site writes and nobody edits: they are read, with the view permission."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


def one_of(column: str, heading: Any, values: Sequence[str]) -> type[admin.SimpleListFilter]:
    """A filter whose choices are known: Django would look through every row of a table of millions for them."""

    class OneOf(admin.SimpleListFilter):
        title = heading
        parameter_name = column

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [(value, value) for value in values]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            wanted = self.value()
            if wanted and wanted not in values:  # PostgreSQL would not even look for some of it
                return queryset.none()
            return queryset.filter(**{column: wanted}) if wanted else queryset

    return OneOf


@admin.register(Run)
class RunAdmin(Facts):
    list_display = ["id", "status", "trainer", "backend", "source", "requested_by", "created_at", "finished_at"]
    list_filter = [
        one_of("status", _("status"), STATES),
        one_of("source", _("source"), ("manual", "api", "auto")),
        "created_at",
    ]
    search_fields = ["id", "trainer", "backend", "requested_by", "error"]
    date_hierarchy = "created_at"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["page", *[field.name for field in Run._meta.fields]]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return self.get_readonly_fields(request, obj)

    @admin.display(description=_("Page"))
    def page(self, run: Run) -> str:
        return format_html('<a href="{}">{}</a>', reverse("training:run", args=[run.pk]), run.pk)


class OfARun(Facts):
    """Rows that belong to a run, of which there may be millions: listed by their ids, never counted."""

    list_select_related = ["run"]
    raw_id_fields = ["run"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).order_by("-pk")


@admin.register(StepLine)
class StepLineAdmin(OfARun):
    list_display = ["run", "at", "level", "text"]
    list_filter = [one_of("level", _("level"), ("step", "info", "warning", "error"))]
    search_fields = ["run__id__exact", "text"]


@admin.register(AuditEntry)
class AuditEntryAdmin(OfARun):
    list_display = ["at", "actor", "action", "run", "detail"]
    list_filter = [one_of("action", _("action"), ("started", "cancelled", "retracted", "published"))]
    search_fields = ["run__id__exact", "actor"]


@admin.register(MetricPoint)
class MetricPointAdmin(OfARun):
    list_display = ["run", "split", "name", "step", "value"]
    search_fields = ["run__id__exact", "name"]


@admin.register(RunItem)
class RunItemAdmin(OfARun):
    list_display = ["instance_id", "run", "split"]
    search_fields = ["run__id__exact", "instance_id__exact"]


@admin.register(Prediction)
class PredictionAdmin(OfARun):
    list_display = ["instance_id", "schema", "label", "confidence", "split", "outcome", "run"]
    list_filter = [one_of("outcome", _("outcome"), [name for name in OUTCOMES if name])]
    search_fields = ["run__id__exact", "instance_id__exact"]


@admin.register(Verdict)
class VerdictAdmin(admin.ModelAdmin):
    """Reviewers' words; one may be deleted, which lifts a rejection, and none is made or changed here."""

    list_display = ["instance_id", "schema", "verdict", "reviewer", "at"]
    list_filter = [one_of("verdict", _("verdict"), ("accept", "correct", "reject"))]
    search_fields = ["instance_id__exact", "reviewer"]
    raw_id_fields = ["run"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(BackendToken)
class BackendTokenAdmin(admin.ModelAdmin):
    """Tokens of agents: what is known of them, without the digest; deleting one makes it worthless at once."""

    list_display = ["backend", "issued_at", "last_seen", "host", "version"]
    search_fields = ["backend", "host"]
    fields = ["backend", "issued_at", "last_seen", "host", "version", "gpus"]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Not by the digest, which a filter by its first letters would give away bit by bit."""
        return not lookup.startswith("digest") and super().lookup_allowed(lookup, value, request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(SupervisorLease)
class SupervisorLeaseAdmin(Facts):
    list_display = ["holder", "taken_at", "renewed_at"]
