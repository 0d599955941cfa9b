// The living part of a run's page: what is new is told to who listens, and nobody loses their place.
"use strict";

(() => {
  const NEWS_EVERY_MS = 5000; // a step may come each moment, and nobody can listen so fast
  let said = "", saidAt = 0, waiting = 0;

  const text = (selector) => {
    const element = document.querySelector(selector);
    return element ? element.textContent.trim() : "";
  };
  const state = () => ["#live-now .status", "#live-now .phase", "#live-now .step-line", "#live-now .error-text",
    "#live-now .unsupervised strong"]
    .map(text).filter(Boolean).join(". ");

  const tell = () => {
    const news = document.getElementById("news");
    window.clearTimeout(waiting);
    const now = state();
    if (!news || !now || now === said) return;
    const left = NEWS_EVERY_MS - (Date.now() - saidAt);
    if (left > 0) { waiting = window.setTimeout(tell, left); return; }
    said = now;
    saidAt = Date.now();
    news.textContent = now;
  };
  document.addEventListener("DOMContentLoaded", () => { said = state(); });
  document.addEventListener("htmx:afterSettle", tell);

  // Whoever stood on a button that is gone stands at the status, and not at the top of the page.
  let stood = "";
  document.addEventListener("htmx:beforeSwap", () => {
    stood = document.activeElement && document.activeElement.closest("#live") ? document.activeElement.id : "";
  });
  document.addEventListener("htmx:afterSettle", () => {
    const title = document.getElementById("live-title");
    if (stood && title && !document.getElementById(stood)) title.focus({ preventScroll: true });
    stood = "";
  });

  // A tab that is looked at again asks at once.
  document.addEventListener("visibilitychange", () => {
    const now = document.getElementById("live-now");
    if (now && !document.hidden && now.hasAttribute("hx-get")) window.htmx.trigger(now, "look");
  });
})();
