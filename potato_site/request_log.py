"""What the site's log says of a request that was refused: one line."""

from __future__ import annotations

import logging


class OneLineOfARefusal(logging.Filter):
    """Django adds a traceback to a request that it refuses (403, 400); it is the request's fault, and no mistake.

    A database that cannot be used (503) is none of the site either: the line has the database's own words.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 0)
        if status == 503 and record.exc_info and record.exc_info[1]:
            record.msg = f"{record.getMessage()}: {str(record.exc_info[1]).strip().partition(chr(10))[0]}"
            record.args = ()
        if status == 503 or 400 <= status < 500:
            record.exc_info = record.exc_text = None
        return True
