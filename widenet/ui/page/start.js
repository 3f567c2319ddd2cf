// Writes the documents of a training: mistakes and the plan while one types, and what may stand at the caret.

import { choices, placeOf } from "./completion.js";
import { send } from "./pages.js";

const at = id => document.getElementById(id);
const WAIT = 400; // milliseconds without a letter
const MOST = 80; // choices that are shown
const form = at("draft");
const lost = at("lost");
const fields = form?.dataset.fields.split(" ").filter(Boolean);
const editors = form ? [...form.querySelectorAll("textarea")] : [];
const schemas = {};
let timer, last = 0;

function draft() {
  const texts = Object.fromEntries(editors.map(each => [each.id, each.value]));
  return { name: at("name").value, data: at("data").value, ...texts, processes: Number(at("processes").value) };
}

function fail(error) {
  lost.textContent = error.message;
  lost.hidden = false;
}

/** Shows the sentence about each document that is wrong, or else the plan. */
async function check() {
  const turn = ++last;
  try {
    const page = await send("plan", draft());
    if (turn !== last) return;
    lost.hidden = true;
    for (const name of ["", ...editors.map(each => each.id)]) {
      const sentence = page.querySelector(`[data-mistake="${name}"]`)?.textContent ?? "";
      at(`mistake-${name}`).textContent = sentence;
      at(`mistake-${name}`).hidden = !sentence;
      at(name)?.setAttribute("aria-invalid", String(Boolean(sentence)));
    }
    const isOpen = at("plan").querySelector("details")?.open;
    at("plan").replaceChildren(...[...page.getElementById("plan").childNodes].map(node => document.adoptNode(node)));
    if (isOpen) at("plan").querySelector("details")?.setAttribute("open", "");
    at("measure").disabled = at("start").disabled = Boolean(page.querySelector("[data-mistake]"));
  } catch (error) {
    if (turn === last) fail(error);
  }
}

function checkSoon() {
  clearTimeout(timer);
  timer = setTimeout(check, WAIT);
}

async function measure() {
  at("measure").disabled = true;
  at("measured").hidden = false;
  at("measured").textContent = "A few steps are timed. This takes some seconds.";
  try {
    at("measured").textContent = (await send("measure", draft())).getElementById("measured").textContent.trim();
  } catch (error) {
    at("measured").textContent = error.message;
  }
  at("measure").disabled = false;
}

async function start() {
  if (!form.reportValidity()) return;
  at("start").disabled = true;
  try {
    await send("start", draft());
    location.assign(`run?${new URLSearchParams({ name: at("name").value })}`);
  } catch (error) {
    at("start").disabled = false;
    fail(error);
    lost.scrollIntoView({ block: "center" });
  }
}

/** Shows what may stand at the caret of an editor. */
async function complete(editor) {
  schemas[editor.id] ??= fetch(`schema?document=${editor.id}`).then(answer => answer.json());
  let schema;
  try {
    schema = await schemas[editor.id];
  } catch {
    return void (schemas[editor.id] = undefined);
  }
  const place = placeOf(editor.value, editor.selectionStart);
  const list = at(`fields-${editor.id}`);
  list.replaceChildren(...choices(schema, place, fields).slice(0, MOST).map(each => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = each.name;
    button.title = each.about;
    button.addEventListener("click", () => insert(editor, place, each.text));
    return button;
  }));
}

function insert(editor, { isKey, start, stop }, text) {
  const hasColon = isKey && /^\s*:/.test(editor.value.slice(stop));
  editor.setRangeText(hasColon ? text.slice(0, text.lastIndexOf(":")) : text, start, stop, "end");
  editor.focus();
  complete(editor);
  checkSoon();
}

function toList(editor) {
  at(`fields-${editor.id}`).querySelector("button")?.focus();
}

/** The arrow keys go through the choices, Escape leads back. */
function inList(event, editor) {
  const buttons = [...event.currentTarget.children];
  const place = buttons.indexOf(document.activeElement);
  const next = { ArrowRight: place + 1, ArrowDown: place + 1, ArrowLeft: place - 1, ArrowUp: place - 1, Home: 0, End: -1 }[event.key];
  if (event.key === "Escape") editor.focus();
  else if (next === undefined) return;
  else buttons.at(next % buttons.length).focus();
  event.preventDefault();
}

for (const editor of editors) {
  editor.addEventListener("input", () => { complete(editor); checkSoon(); });
  for (const kind of ["keyup", "click", "focus"]) editor.addEventListener(kind, () => complete(editor));
  editor.addEventListener("keydown", event => {
    if (!(event.ctrlKey && event.key === " ")) return;
    event.preventDefault();
    toList(editor);
  });
  at(`fields-${editor.id}`).addEventListener("keydown", event => inList(event, editor));
}
if (form) {
  const begin = () => { location.search = new URLSearchParams({ data: at("data").value, like: at("like").value }); };
  at("like").addEventListener("change", begin);
  at("data").addEventListener("change", () => {
    if (editors.every(each => each.value === each.defaultValue)) begin(); // the default documents depend on the data
    else checkSoon();
  });
  at("processes").addEventListener("input", checkSoon);
  at("measure").addEventListener("click", measure);
  form.addEventListener("submit", event => {
    event.preventDefault();
    start();
  });
  check();
}
