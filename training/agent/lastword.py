"""The end of a run that this machine's disk can say nothing of: one error event and a result, from memory alone."""

from .client import Client
from .errors import EventsMissing, GaveUp, Unfit
from .outbox import Batch
from .protocol import Event

MOST_REWINDS = 5  # of a server that changes its mind about what it has


def event_of(unfit: Unfit) -> Event:
    fields = {"code": unfit.code, "message": unfit.message}
    return Event("error", dict(fields, hint=unfit.hint) if unfit.hint else fields)


def say(client: Client, run_id: str, unfit: Unfit, log: str = "") -> None:
    """Tell the server behind whatever it has; tried until it answers. Raises GaveUp, RunOver, TokenRefused, Refused."""
    for _ in range(MOST_REWINDS):
        try:
            first = _reported(client, run_id, Batch(0))
            line = event_of(unfit).to_line().rstrip(b"\n")
            n_events = _reported(client, run_id, Batch(first, [line]))
            client.result(run_id, {"exit_code": unfit.exit_code, "n_events": n_events, "artifact_uri": "", "log": log})
            return
        except EventsMissing:  # between two of these requests: it was restored from a backup, say
            continue
    raise GaveUp("The server asks for other events at each report")


def _reported(client: Client, run_id: str, batch: Batch) -> int:
    """How many events the server has, after these."""
    try:
        answer = client.persist(lambda: client.report(run_id, batch.body()))
    except EventsMissing as missing:
        if batch.lines:
            raise
        return missing.n_events
    n_events = answer.get("n_events")
    return n_events if isinstance(n_events, int) else batch.first + len(batch.lines)
