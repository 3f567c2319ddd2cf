// Who is recommended to, what is recommended, and what is similar to an item.

import { button, element, nameOf } from "./elements.js";
import { drawInputs, valuesOf } from "./inputs.js";
import { keyForm } from "./key.js";
import { Picker } from "./picker.js";
import { drawRules, rulesIn } from "./rules.js";
import { ask } from "./service.js";

const at = id => document.getElementById(id);
const MOST_SHOWN = 5; // attributes beside an item
const say = text => { at("said").textContent = text; };
const key = keyForm(begin);
const shared = { say, failed, similar: showSimilar };
const basket = new Picker(at("basket"), "Items", { ...shared, changed: recommend });
const never = new Picker(at("never"), "Never recommend", { ...shared, changed: recommend });
const only = new Picker(at("only"), "Recommend only these", { ...shared, changed: recommend });
let isUser = false;
let about = { parts: [] }; // what the model says of itself
let shown = []; // attributes beside an item: the most telling ones, which come first
let inputs = []; // what is known beside items
let heldOut = new Set(); // ids of the shown user's items that were set aside
let pending; // the request that the shown recommendations wait for
let opener; // what has the focus when the similar items close

function failed(error) {
  if (error.name === "AbortError") return;
  at("error").textContent = error.message;
  at("error").hidden = false;
  if (error.status === 401) askForToken();
}

function askForToken() {
  at("main").hidden = at("footer").hidden = true;
  key.ask();
}

async function begin() {
  try {
    await describe();
  } catch (error) {
    return failed(error);
  }
  at("error").hidden = true;
  key.hide();
  at("main").hidden = at("footer").hidden = false;
  (about.reads_items ? basket.input : at("fields").querySelector("input")).focus();
  recommend();
}

/** Says in the footer which model answers; returns whether it is another one than before. */
async function describe() {
  const before = about;
  const differs = name => JSON.stringify(about[name]) !== JSON.stringify(before[name]);
  about = await ask("v1/model");
  if (differs("attributes")) drawRules(at("rules"), about.attributes, recommend);
  shown = Object.keys(about.attributes).filter(each => !each.includes(",")).slice(0, MOST_SHOWN);
  for (const picker of [basket, never, only]) picker.attributes = shown;
  if (differs("fields")) inputs = drawInputs(at("fields"), about.fields, { changed: recommend, failed });
  basket.askValues(about.reads_values);
  at("items-kind").textContent = about.reads_items ? "Somebody who has these items" : "Somebody described here";
  showKind();
  at("run").textContent = about.run;
  at("fingerprint").textContent = about.fingerprint.slice(0, 12);
  at("fingerprint").title = about.fingerprint;
  at("count").textContent = about.num_items.toLocaleString("en");
  at("kinds").hidden = !about.has_users;
  return differs("fingerprint");
}

/** Shows what describes a basket, or a user. */
function showKind() {
  at("basket").hidden = isUser || !about.reads_items;
  at("fields").hidden = isUser;
  at("user").hidden = !isUser;
  at("before").hidden = !isUser || !about.parts.length;
}

/** Returns who is recommended to, as fields of a request; nothing if nobody is named. */
function person() {
  if (isUser) return at("id").value && { user: at("id").value };
  const items = basket.items.length ? { items: basket.ids, ...(about.reads_values && { values: basket.values }) } : {};
  const known = { ...items, ...valuesOf(inputs) };
  return Object.keys(known).length && known;
}

function request() {
  const common = { k: Number(at("k").value), include_seen: at("seen").checked, unknown: "skip", attributes: shown, ...rulesIn(at("rules")) };
  if (never.items.length) common.never = never.ids;
  if (only.items.length) common.only = only.ids;
  if (isUser && at("part").checked) common.part = about.parts.at(-1);
  return person() && { ...common, ...person() };
}

async function recommend() {
  pending?.abort();
  pending = new AbortController();
  at("error").hidden = true;
  const rules = Object.values(rulesIn(at("rules"))).reduce((sum, rule) => sum + (Object.keys(rule).length || 1), 0);
  const filters = never.items.length + only.items.length + Number(at("seen").checked) + rules;
  at("filters").firstElementChild.textContent = filters ? `Filters (${filters})` : "Filters";
  const wanted = request();
  if (!wanted) {
    const first = about.reads_items ? "Add an item" : `Say ${about.fields.map(each => each.name).join(", ")}`;
    return show([], `${isUser ? "Name a user" : first} to see recommendations.`);
  }
  try {
    const answer = await ask("v1/recommend", wanted, pending.signal);
    heldOut = new Set(answer.held_out?.map(each => each.item));
    show(answer.items, noteOn(answer));
    say(`${answer.items.length} recommended.`);
    if (!answer.fingerprint.startsWith(at("fingerprint").textContent)) await describe();
  } catch (error) {
    if (error.status === 422 && (await describe().catch(() => false))) return recommend(); // perhaps a newer one has other attributes
    if (error.name !== "AbortError") show([], "");
    failed(error);
  }
}

function noteOn(answer) {
  const notes = answer.is_personal ? [] : ["Nothing is known here of this person, so this list is not personal."];
  return [...notes, noteOnItems(answer)].filter(Boolean).join(" ");
}

function noteOnItems({ items, unknown, held_out: set }) {
  if (set) {
    const hits = items.filter(each => heldOut.has(each.item)).length;
    return `Items that were set aside: ${set.length}; of these here: ${hits}.`;
  }
  if (unknown.length) return `The model does not know ${unknown.join(", ")}.`;
  return items.length ? "" : "No item is left to recommend.";
}

function show(items, note) {
  at("none").textContent = note;
  at("none").hidden = !note;
  const why = each => (about.can_explain ? [button("Why", each, () => showWhy(each))] : []);
  draw(at("items"), items, each => [...why(each), button("Never", each, () => leaveOut(each))]);
}

/** Draws items with their scores; a button that has the focus keeps it at its place of the list. */
function draw(list, items, furtherButtons) {
  const rows = [...list.children];
  const place = rows.findIndex(row => row.contains(document.activeElement));
  const what = place < 0 ? "" : document.activeElement.textContent;
  const most = Math.max(...items.map(each => each.score));
  const isShare = items.every(each => each.score >= 0) && most > 0;
  list.replaceChildren(...items.map(each => {
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.width = isShare ? `${(100 * each.score) / most}%` : "0";
    const score = element("span", { class: "score", title: `Score ${each.score}` },
      element("span", { class: "unseen" }, "score "), each.score.toPrecision(3));
    const actions = element("span", { class: "actions" });
    if (!isUser && about.reads_items && !basket.ids.includes(each.item)) actions.append(button("Add", each, () => basket.add(each)));
    actions.append(button("Similar", each, () => showSimilar(each)), ...furtherButtons(each));
    const name = nameOf(each);
    if (list === at("items") && heldOut.has(each.item)) name.append(" ", element("mark", {}, "set aside"));
    return element("li", {}, name, score, actions, bar);
  }));
  if (place < 0) return;
  const row = list.children[Math.min(place, items.length - 1)];
  const same = [...(row?.querySelectorAll("button") ?? [])].find(each => each.textContent === what);
  (same ?? at(list.parentElement.getAttribute("aria-labelledby"))).focus();
}

function leaveOut(item) {
  at("filters").open = true;
  never.add(item);
}

function showSimilar(item) {
  const asked = { item: item.item, k: Number(at("k").value), attributes: shown };
  return showBeside("v1/similar", asked, `Similar to ${item.title}`, "");
}

function showWhy(item) {
  const note = "What each item of the history adds to the score, before it is made a probability.";
  return showBeside("v1/explain", { item: item.item, unknown: "skip", ...person() }, `Why ${item.title}`, note);
}

/** Shows the items of an answer in a section of their own. */
async function showBeside(route, asked, title, note) {
  try {
    const { items } = await ask(route, asked);
    at("error").hidden = true;
    if (at("similar").hidden) opener = document.activeElement;
    at("similar").hidden = false;
    at("like").textContent = title;
    at("because").textContent = note;
    at("because").hidden = !note;
    draw(at("neighbours"), items, () => []);
    at("like").focus();
  } catch (error) {
    failed(error);
  }
}

function closeSimilar() {
  at("similar").hidden = true;
  (opener?.isConnected ? opener : at("best")).focus();
}

at("kinds").addEventListener("change", event => {
  isUser = event.target.value === "user";
  showKind();
  recommend();
});
at("user").addEventListener("submit", event => {
  event.preventDefault();
  recommend();
});
at("k").addEventListener("change", recommend);
at("seen").addEventListener("change", recommend);
at("part").addEventListener("change", recommend);
at("close").addEventListener("click", closeSimilar);
at("similar").addEventListener("keydown", event => {
  if (event.key === "Escape") closeSimilar();
});
begin();
