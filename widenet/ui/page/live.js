// Follows the runs: reads the page anew when they change, and replaces what is marked with data-live.

import { read } from "./pages.js";

const MOST_ROWS = 50;
const FOCUSABLE = "a, button, input, select, summary, [tabindex]";
const lost = document.getElementById("lost");
const sent = new Map([...document.querySelectorAll("[data-live]")].map(part => [part, part.innerHTML]));
const query = new URLSearchParams(location.search);
const subject = [...query.getAll("name"), ...query.getAll("run")]; // the runs that the page is about; none: all
let version = document.body.dataset.version;
let stream;
let reading = Promise.resolve();

/** Replaces the live parts of this page that differ in another. */
export function take(other) {
  const parts = new Map([...document.querySelectorAll("[data-live]")].map(part => [part.dataset.live, part]));
  const rows = document.getElementById("rows");
  for (const fresh of other.querySelectorAll("[data-live]")) {
    const part = parts.get(fresh.dataset.live);
    if (part && part.tagName === "TR") takeCells(part, fresh);
    else if (part) takeContent(part, fresh);
    else if (fresh.tagName === "TR" && rows) rows.prepend(document.adoptNode(fresh));
    else return location.reload();
  }
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

/** Reads what has changed, one change after the other. */
async function follow(change) {
  if (subject.length && !change.all && ![...change.changed, ...change.gone].some(name => subject.includes(name))) return;
  const address = new URL(location);
  if (!subject.length && !change.all && change.changed.length <= MOST_ROWS) {
    for (const name of change.changed.length ? change.changed : [""]) address.searchParams.append("only", name);
  }
  take(await read(address));
  for (const row of document.querySelectorAll("#rows > tr")) {
    if (change.gone.includes(row.dataset.live.slice("run ".length))) row.remove();
  }
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
    const change = JSON.parse(data);
    version = change.version;
    reading = reading.then(() => follow(change)).catch(() => undefined);
  };
}

// A browser opens few connections to a host: hidden pages hold none.
document.addEventListener("visibilitychange", () => {
  stream?.close();
  if (!document.hidden) listen();
});
if (!document.hidden) listen();
