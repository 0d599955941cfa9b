"""Runs of a served study, asked for and followed by its API."""

from __future__ import annotations

import http.client
from typing import Any

from waiting import until

from tests.e2e.conftest import Site


class Follower:
    """Whoever has a `site` whose runs are watched."""

    site: Site

    def asked(self, wanted: dict[str, Any]) -> str:
        """The id of a new run."""
        run = self.api("POST", "/runs", wanted)
        assert "run_id" in run, run
        return str(run["run_id"])

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, also of a site that is being started."""

        def answered() -> Any:
            try:
                return self.site.api(method, path, body)
            except (OSError, http.client.HTTPException):
                return None

        return until(answered, 60, "the site to answer")[1]

    def run(self, run_id: str) -> dict[str, Any]:
        return self.api("GET", f"/runs/{run_id}")  # type: ignore[no-any-return]

    def lines(self, run_id: str) -> list[str]:
        """The run's log, in the order in which it was written."""
        return [line["text"] for line in self.api("GET", f"/runs/{run_id}/steps?limit=500")["results"]]

    def until_it_trains(self, run_id: str, steps: float = 3) -> dict[str, Any]:
        def trains() -> Any:
            run = self.run(run_id)
            assert run["status"] in ("queued", "running"), (run["error"], self.lines(run_id))
            shown = run["progress"]
            return run if shown["phase"] == "train" and (shown["current"] or 0) >= steps else None

        return until(trains, 40, f"{run_id} to train")  # type: ignore[no-any-return]

    def finished(self, run_id: str) -> dict[str, Any]:
        """The run's document once it is over and settled."""

        def ended() -> Any:
            run = self.run(run_id)
            return run if run["settled_at"] else None

        return until(ended, 60, f"the end of {run_id}")  # type: ignore[no-any-return]
