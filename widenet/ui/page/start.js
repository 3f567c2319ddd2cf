// Starts the training whose documents stand on the page; the service checks them.

import { send } from "./pages.js";

const at = id => document.getElementById(id);
const form = at("draft");
const lost = at("lost");

async function start() {
  if (!form.reportValidity()) return;
  at("start").disabled = true;
  const texts = Object.fromEntries([...form.querySelectorAll("textarea")].map(each => [each.id, each.value]));
  try {
    await send("start", { name: at("name").value, data: at("data").value, ...texts });
    location.assign(`run?${new URLSearchParams({ name: at("name").value })}`);
  } catch (error) {
    at("start").disabled = false;
    lost.textContent = error.message;
    lost.hidden = false;
    lost.scrollIntoView({ block: "center" });
  }
}

if (form) {
  at("data").addEventListener("change", () => { location.search = new URLSearchParams({ data: at("data").value }); });
  form.addEventListener("submit", event => {
    event.preventDefault();
    start();
  });
}
