"""The site for a WSGI server; it does not start where the project file has errors, and their lines say why."""

from __future__ import annotations

import os
import sys

from django.core.wsgi import get_wsgi_application


def refuse_a_faulty_project() -> None:
    """Print what `potato validate` prints of the project file; end the process where that holds errors (SPEC V3)."""
    from potato_site.refusal import refuse
    from training.config import current, problems_text
    from training.errors import ConfigError

    try:
        loaded = current()
    except ConfigError as error:
        refuse(problems_text(error))
    else:
        if warnings := problems_text(loaded):
            print(warnings, file=sys.stderr, flush=True)


os.environ.setdefault("DJANGO_SETTINGS_MODULE", "potato_site.settings")
application = get_wsgi_application()
refuse_a_faulty_project()
