// The charts of a run come anew while it goes on: what a reader has opened beside them stays open.
"use strict";

(() => {
  let open = [];
  document.addEventListener("htmx:beforeSwap", () => {
    open = Array.from(document.querySelectorAll("#curves details[open]"), (details) => details.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    open.forEach((id) => {
      const details = document.getElementById(id);
      if (details) details.open = true;
    });
    open = [];
  });
})();
