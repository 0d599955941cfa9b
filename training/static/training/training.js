// What the Training pages need beyond htmx: a question before a cancel, one start for one click.
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
