"""Every state of the Training pages by axe-core, and by a ruler: light and dark, wide and at 390 px."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from states import State, Study, states

pytestmark = pytest.mark.django_db(transaction=True)

WIDE, NARROW = 1280, 390
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# What is found does not change with the width, but for what lies beside what: so the narrow page is asked for all.
LOOKS: dict[str, tuple[str, int, list[str]]] = {
    "light, wide": ("light", WIDE, []),
    "light, narrow": ("light", NARROW, RULES),
    "dark, narrow": ("dark", NARROW, ["color-contrast"]),
}
# Which between them show every colour; to measure contrasts takes most of the time.
IN_THE_DARK = ("form-errors", "check-report", "succeeded", "log-search", "compared", "failed", "index-running")
# Or a colour is seen on its way to another; made this way a style needs nobody's leave by a Content-Security-Policy.
STILL = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { transition: none !important; }");
  document.adoptedStyleSheets = [sheet];
}"""
SERIOUS = ("serious", "critical")


@pytest.fixture(scope="session")
def axe() -> str:
    base = pytest.importorskip("axe_playwright_python.base", reason="axe-playwright-python is not installed")
    return str(base.AXE_SCRIPT)


def test_no_state_of_a_page_has_a_serious_finding_or_scrolls_sideways(
    browse: Any, settings: Any, owner: Any, tmp_path: Path, axe: str
) -> None:
    study = Study(tmp_path, settings, owner)
    page, findings = browse(), []
    for state in states(study):
        show(page, state)
        for look, (theme, width, rules) in LOOKS.items():
            if theme == "dark" and state.name not in IN_THE_DARK:
                continue
            page.emulate_media(color_scheme=theme)
            page.set_viewport_size({"width": width, "height": 900})
            findings += [f"{state.name}, {look}: {fault}" for fault in faults(page, axe, rules, width)]
    browse.wrong[:] = [said for said in browse.wrong if "status of 4" not in said]  # 404 and 422 are such states
    assert findings == []


def show(page: Any, state: State) -> None:
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.emulate_media(color_scheme="light")
    page.goto(state.address)
    state.act(page)
    page.wait_for_selector(state.until)


def faults(page: Any, axe: str, rules: list[str], width: int) -> list[str]:
    """What axe finds of weight by these rules; and the page's width, where it is more than the window's."""
    wide = page.evaluate("document.documentElement.scrollWidth")
    return [*(findings_of_axe(page, axe, rules) if rules else []), *([f"{wide} px wide"] if wide > width else [])]


def findings_of_axe(page: Any, axe: str, rules: list[str]) -> list[str]:
    page.evaluate(STILL)
    page.evaluate(axe)  # by the debugger's door, which a Content-Security-Policy does not close
    found = page.evaluate("rules => axe.run(document, {runOnly: rules, resultTypes: ['violations']})", rules)
    return [
        f"{violation['id']} ({violation['impact']}): {node['target']} {node['html'][:200]} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in SERIOUS
        for node in violation["nodes"][:3]
    ]
