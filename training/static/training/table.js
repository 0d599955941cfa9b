// The table of runs: what was ticked stays ticked when the table is drawn anew, and Compare waits for two ticks.
"use strict";

(() => {
  const FEWEST = 2;
  const MOST = 6;
  let ticked = [];

  const boxes = () => Array.from(document.querySelectorAll("#runs input[name=run]"));
  const judge = () => {
    const button = document.getElementById("compare");
    const n = boxes().filter((box) => box.checked).length;
    if (button) button.disabled = n < FEWEST || n > MOST;
  };

  document.addEventListener("htmx:beforeSwap", () => {
    ticked = boxes().filter((box) => box.checked).map((box) => box.value);
  });
  document.addEventListener("htmx:afterSwap", () => {
    boxes().forEach((box) => { if (ticked.includes(box.value)) box.checked = true; });
    judge();
  });
  document.addEventListener("change", (event) => { if (event.target.name === "run") judge(); });
  document.addEventListener("DOMContentLoaded", judge);
  window.addEventListener("pageshow", judge);
})();
