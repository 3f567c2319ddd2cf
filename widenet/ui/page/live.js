// Follows the runs: reads the page anew when they change, and replaces what is marked with data-live.

import { read } from "./pages.js";

const FOCUSABLE = "a, button, input, select, summary, [tabindex]";
const lost = document.getElementById("lost");
const sent = new Map([...document.querySelectorAll("[data-live]")].map(part => [part, part.innerHTML]));
const WAIT = 1500; // milliseconds between two questions
let version = document.body.dataset.version;

/** Replaces the live parts of this page that differ in another. */
export function take(other) {
  const parts = new Map([...document.querySelectorAll("[data-live]")].map(part => [part.dataset.live, part]));
  const rows = document.getElementById("rows");
  for (const fresh of other.querySelectorAll("[data-live]")) {
    const part = parts.get(fresh.dataset.live);
    parts.delete(fresh.dataset.live);
    if (part && part.tagName === "TR") takeCells(part, fresh);
    else if (part) takeContent(part, fresh);
    else if (fresh.tagName === "TR" && rows) rows.prepend(document.adoptNode(fresh));
    else return location.reload();
  }
  for (const part of parts.values()) if (part.tagName === "TR") part.remove(); // a run that is gone
}

function takeCells(row, fresh) {
  [...fresh.children].forEach((cell, place) => {
    const old = row.children[place];
    if (!old.isEqualNode(cell)) old.replaceWith(document.adoptNode(cell));
  });
}

/** Replaces the content of a part; what is open stays open, and the focus stays at its place. */
function takeContent(part, fresh) {
  if (sent.get(part) === fresh.innerHTML) return;
  sent.set(part, fresh.innerHTML);
  const place = [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  const open = [...part.querySelectorAll("details")].map(each => each.open);
  const content = document.createDocumentFragment();
  content.append(...[...fresh.childNodes].map(node => document.adoptNode(node)));
  part.replaceChildren(content);
  [...part.querySelectorAll("details")].forEach((each, at) => { each.open = open[at] ?? false; });
  part.dispatchEvent(new Event("replaced", { bubbles: true }));
  if (place >= 0) part.querySelectorAll(FOCUSABLE)[place]?.focus();
}

/** Reads the page anew if the runs have changed; a refusal, such as of a new process with a token, reloads it. */
async function follow() {
  if (document.hidden) return;
  const answer = await fetch("version", { cache: "no-store" }).catch(() => undefined);
  if (answer?.status === 401) location.reload();
  lost.hidden = Boolean(answer?.ok);
  if (!answer?.ok) lost.textContent = "The pages are not kept up to date: widenet ui does not answer.";
  const now = answer?.ok ? await answer.text() : version;
  if (now === version) return;
  take(await read(location));
  version = now;
  document.dispatchEvent(new Event("taken"));
}

async function followAlways() {
  await follow().catch(() => undefined);
  setTimeout(followAlways, WAIT);
}

document.addEventListener("visibilitychange", follow);
setTimeout(followAlways, WAIT);
