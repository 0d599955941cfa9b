// Pages that ask again and again: seldom while hidden, never where nothing is to be followed; and what they say when
// nobody answers.
"use strict";

(() => {
  const HIDDEN_EVERY_MS = 10000;
  const PATIENCE_MS = 10000; // a request that hangs (a stopped server behind a proxy) is given up, and sent anew
  const FAILURES_BEFORE_A_WORD = 2; // a server that restarts is back before anybody needs to know
  const askedAt = new Map(); // an element's id -> when it asked last
  let failures = 0;

  const polls = (elt) => Boolean(elt) && (elt.getAttribute("hx-trigger") || "").startsWith("every");

  document.addEventListener("htmx:configRequest", (event) => {
    if (polls(event.detail.elt)) event.detail.timeout = PATIENCE_MS;
  });

  document.addEventListener("htmx:beforeRequest", (event) => {
    const elt = event.detail.elt;
    if (!polls(elt)) return;
    const early = Date.now() - (askedAt.get(elt.id) || 0) < HIDDEN_EVERY_MS;
    if (document.hidden && (early || "idle" in elt.dataset)) event.preventDefault();
    else askedAt.set(elt.id, Date.now());
  });

  const say = (unreachable) => {
    const notice = document.querySelector("#unreachable p");
    if (notice && notice.hidden === unreachable) notice.hidden = !unreachable;
  };

  const failed = (event) => {
    if (!polls(event.detail.elt)) return;
    failures += event.type === "htmx:timeout" ? FAILURES_BEFORE_A_WORD : 1;
    if (failures >= FAILURES_BEFORE_A_WORD) say(true);
  };
  document.addEventListener("htmx:sendError", failed);
  document.addEventListener("htmx:timeout", failed);
  document.addEventListener("htmx:responseError", (event) => {
    const elt = event.detail.elt;
    if (event.detail.xhr.status >= 500) failed(event);
    else if (!polls(elt)) return;
    // What the page says already stays to be read; an element that is gone asks no more.
    else if (document.querySelector("[data-stage=gone]")) elt.remove();
    // The run is gone, or may no longer be seen: the whole page says which.
    else window.location.reload();
  });
  document.addEventListener("htmx:afterRequest", (event) => {
    if (!event.detail.successful || !polls(event.detail.requestConfig.elt)) return;
    failures = 0;
    say(false);
  });
})();
