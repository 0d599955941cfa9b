// What the Training pages need beyond htmx: a question before a cancel, one start for one click, quiet hidden tabs.
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-confirm]");
  if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
});

// A form that is on its way is not sent again; the server knows its token in any case.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-once]")) return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "1";
  window.setTimeout(() => { delete form.dataset.sent; }, 5000);
});
window.addEventListener("pageshow", () => {
  document.querySelectorAll("[data-once]").forEach((form) => { delete form.dataset.sent; });
});

// A hidden tab asks once in ten times.
let skipped = 0;
document.addEventListener("htmx:beforeRequest", (event) => {
  const polls = (event.detail.elt.getAttribute("hx-trigger") || "").startsWith("every");
  if (polls && document.hidden && ++skipped % 10) event.preventDefault();
});

// The log stays at its end for whoever is there.
const atEnd = (log) => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
let following = true;
document.addEventListener("htmx:beforeSwap", () => {
  const log = document.getElementById("log");
  following = !log || atEnd(log);
});
const follow = () => {
  const log = document.getElementById("log");
  if (log && following) log.scrollTop = log.scrollHeight;
};
document.addEventListener("htmx:afterSettle", follow);
document.addEventListener("DOMContentLoaded", follow);
