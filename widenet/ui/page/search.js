// Searches users and items while one types.

import { read } from "./pages.js";

const form = document.getElementById("searching");
const field = document.getElementById("search");
const lost = document.getElementById("lost");
const WAIT = 200; // milliseconds without a letter
let timer, last = 0;

async function search() {
  const address = new URL(form.dataset.address, location);
  if (field.value) address.searchParams.set("search", field.value);
  const turn = ++last;
  try {
    const found = (await read(address)).getElementById("found");
    if (turn !== last) return;
    document.getElementById("found").replaceChildren(...[...found.childNodes].map(node => document.adoptNode(node)));
    history.replaceState(null, "", address);
    lost.hidden = true;
  } catch {
    lost.textContent = "The pages do not answer. Check that widenet ui runs.";
    lost.hidden = false;
  }
}

field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, WAIT);
});
form.addEventListener("submit", event => {
  event.preventDefault();
  clearTimeout(timer);
  search();
});
if (field.value !== field.defaultValue) search(); // somebody was faster than this script
