"""What the site's log says of a request that was refused: one line."""

from __future__ import annotations

import logging


class OneLineOfARefusal(logging.Filter):
    """Django adds a traceback to a request that it refuses (403, 400); it is the request's fault, and no mistake."""

    def filter(self, record: logging.LogRecord) -> bool:
        if 400 <= getattr(record, "status_code", 0) < 500:
            record.exc_info = record.exc_text = None
        return True
