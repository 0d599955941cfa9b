// Publishing: says that the upload is on its way before its page begins, and sends no form twice while it is.
"use strict";

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!form.matches("[data-upload]") || event.defaultPrevented) return;
  const uploading = document.getElementById("uploading");
  if (uploading) uploading.textContent = uploading.dataset.words;
  const button = form.querySelector("button[type=submit]");
  if (button) button.disabled = true;
});

// Back from the page of the upload: the form as it was, and it can be sent again.
window.addEventListener("pageshow", () => {
  const uploading = document.getElementById("uploading");
  if (uploading) uploading.textContent = "";
  document.querySelectorAll("[data-upload] button[type=submit]").forEach((button) => { button.disabled = false; });
});
