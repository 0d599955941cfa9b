// The start form: the chosen place's notes, a look that can be left, what differs from the defaults, one start.
"use strict";

const byId = (id) => document.getElementById(id);

// Only the chosen place's notes show.
const choosePlace = (name) => {
  document.querySelectorAll("#place-notes [data-place]").forEach((note) => { note.hidden = note.dataset.place !== name; });
};

const markChanged = (control) => {
  const row = control.closest(".row");
  const value = control.type === "checkbox" ? (control.checked ? "on" : "") : control.value.trim();
  const initial = control.dataset.default.trim();
  const same = value === initial || (control.type === "number" && value !== "" && Number(value) === Number(initial));
  if (row) row.classList.toggle("changed", !same);
};

const count = () => { if (byId("preview")) htmx.trigger("#preview", "count"); };

document.addEventListener("change", (event) => {
  if (event.target.matches("#id_backend, #id_trainer")) {
    htmx.trigger("#check", "htmx:abort"); // a look at what was chosen before
    byId("report").replaceChildren();
  }
  if (event.target.id === "id_backend") choosePlace(event.target.value);
  if (event.target.matches("#schemas input, [name=param-min_instances]")) count();
});
document.addEventListener("input", (event) => {
  if (event.target.matches("#start-form [data-default]")) markChanged(event.target);
});

// A look may take half a minute, and nobody has to wait for it.
document.addEventListener("click", (event) => {
  const leave = event.target.closest("#leave-check");
  if (!leave) return;
  htmx.trigger("#check", "htmx:abort");
  byId("report").textContent = leave.dataset.said;
  byId("check").focus();
});

// What did not come is said where it would have stood.
["htmx:responseError", "htmx:sendError", "htmx:timeout"].forEach((name) => {
  document.addEventListener(name, (event) => {
    const target = event.detail.target;
    if (target && target.dataset.failed) target.textContent = target.dataset.failed;
  });
});

// Another trainer's parameters: unfolded if the last one's were, and counted anew.
let unfolded = false;
document.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.id !== "parameters") return;
  const more = document.querySelector("details.parameters");
  if (more) unfolded = more.open;
});
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target.id !== "parameters") return;
  const more = document.querySelector("details.parameters");
  if (more && unfolded) more.open = true;
});
document.addEventListener("htmx:afterSettle", (event) => {
  if (event.detail.target.id !== "parameters") return;
  if (byId("id_backend")) choosePlace(byId("id_backend").value);
  count();
});

// The click is seen at once; a page that comes back from the browser's memory can be sent again.
document.addEventListener("submit", (event) => {
  const button = event.target.id === "start-form" && byId("start-button");
  if (!button || event.defaultPrevented) return;
  button.dataset.words = button.textContent;
  button.textContent = button.dataset.busy;
});
window.addEventListener("pageshow", () => {
  const button = byId("start-button");
  if (button && button.dataset.words) button.textContent = button.dataset.words;
});

// The first control with an error; a browser leaves autofocus out where the address names a part of the page.
document.addEventListener("DOMContentLoaded", () => {
  const first = document.querySelector("#start [autofocus]");
  if (first) first.focus();
});
