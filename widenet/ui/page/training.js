// Stops the training of a run, and reads the page again while something is pending.

import { take } from "./live.js";
import { read, send } from "./pages.js";

const WAIT = 1000; // milliseconds between two looks at what is pending
const lost = document.getElementById("lost");

function showEnd() {
  for (const output of document.querySelectorAll("[data-live=training] pre")) output.scrollTop = output.scrollHeight;
}

async function refresh() {
  if (document.hidden || !document.querySelector("[data-live=training] [data-pending]")) return;
  try {
    take(await read(location));
    lost.hidden = true;
  } catch (error) {
    lost.textContent = error.message;
    lost.hidden = false;
  }
}

document.addEventListener("click", async event => {
  const { action, run } = event.target.dataset;
  if (!action) return;
  event.target.disabled = true;
  try {
    await send(action, { run });
    lost.hidden = true;
    take(await read(location));
  } catch (error) {
    event.target.disabled = false;
    lost.textContent = error.message;
    lost.hidden = false;
  }
});
document.addEventListener("replaced", showEnd);
setInterval(refresh, WAIT);
showEnd();
