// The log: follows its end for whoever is there, and moves for nobody else.
"use strict";

(() => {
  const MOST_LINES = 3000; // on the page; the earlier ones are loaded again when asked for
  const NEAR_PX = 40;
  const log = () => document.getElementById("log");
  const box = () => document.getElementById("log-follow");
  const atEnd = (list) => list.scrollHeight - list.scrollTop - list.clientHeight < NEAR_PX;
  const toEnd = () => { const list = log(); if (list) list.scrollTop = list.scrollHeight; };
  const follows = () => Boolean(box() && box().checked);

  document.addEventListener("DOMContentLoaded", () => {
    const list = log();
    if (!list || !box()) return;
    toEnd();
    // Scrolled away from the end, a reader is left alone; back at the end, followed again. What arrives makes no
    // scroll event of its own: it lies below.
    let before = list.scrollTop;
    list.addEventListener("scroll", () => {
      if (list.scrollTop < before && !atEnd(list)) box().checked = false;
      else if (list.scrollTop > before && atEnd(list)) box().checked = true;
      before = list.scrollTop;
    });
    box().addEventListener("change", () => { if (follows()) toEnd(); });
  });

  // Lines that are put before the first one push nobody down.
  let fromEnd = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const list = log();
    if (list && event.detail.target === list) fromEnd = list.scrollHeight - list.scrollTop;
  });

  // A found line stands in the middle of its neighbours.
  document.addEventListener("htmx:afterSettle", (event) => {
    const list = event.detail.elt;
    const hit = list && list.matches && list.matches("ol.around") ? list.querySelector("li.hit") : null;
    if (hit) list.scrollTop = hit.offsetTop - (list.clientHeight - hit.clientHeight) / 2;
  });

  const shorten = (list) => {
    const first = document.getElementById("log-before");
    while (list.children.length > MOST_LINES) list.firstElementChild.remove();
    if (first && list.firstElementChild && first.value !== list.firstElementChild.dataset.id) {
      first.value = list.firstElementChild.dataset.id;
      document.getElementById("earlier").hidden = false;
    }
  };

  document.addEventListener("htmx:afterSettle", () => {
    const list = log();
    if (!list) return;
    const empty = document.getElementById("log-empty");
    if (empty && list.children.length) empty.remove();
    if (fromEnd !== null) {
      list.scrollTop = list.scrollHeight - fromEnd;
      fromEnd = null;
    } else if (follows()) {
      if (list.children.length > MOST_LINES) shorten(list);
      toEnd();
    }
  });
})();
