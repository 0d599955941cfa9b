// The charts of a run come anew while it goes on: what a reader has opened beside them stays open.
"use strict";

let openCharts = [];
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "curves") return;
  openCharts = [...event.detail.target.querySelectorAll("details[open]")].map((details) => details.id);
});
document.addEventListener("htmx:afterSwap", () => {
  openCharts.forEach((id) => { const details = document.getElementById(id); if (details) details.open = true; });
  openCharts = [];
});
