// Follows the runs: reads the page anew when they change, and replaces what is marked with data-live.

import { read } from "./pages.js";

const FOCUSABLE = "a, button, input, select, summary, [tabindex]";
const lost = document.getElementById("lost");
const sent = new Map([...document.querySelectorAll("[data-live]")].map(part => [part, part.innerHTML]));
let version = document.body.dataset.version;
let stream;
let reading = Promise.resolve();

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

/** Reads the page anew, one change after the other. */
async function follow() {
  take(await read(location));
  document.dispatchEvent(new Event("taken"));
}

/** Asks for the token if a process that began later wants it. */
async function askWhoMayLook() {
  const answer = await fetch(location, { cache: "no-store" }).catch(() => undefined);
  if (answer?.status === 401) location.reload();
}

function listen() {
  stream = new EventSource(`events?since=${version}`);
  stream.onopen = () => { lost.hidden = true; };
  stream.onerror = () => {
    if (stream.readyState === EventSource.CLOSED) askWhoMayLook(); // a refusal closes the stream
    lost.textContent = "The pages are not kept up to date: widenet ui does not answer.";
    lost.hidden = false;
  };
  stream.onmessage = ({ data }) => {
    version = data;
    reading = reading.then(follow).catch(() => undefined);
  };
}

// A browser opens few connections to a host: hidden pages hold none.
document.addEventListener("visibilitychange", () => {
  stream?.close();
  if (!document.hidden) listen();
});
if (!document.hidden) listen();
