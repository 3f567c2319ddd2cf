// Who is recommended to, what is recommended, and what is similar to an item.

import { button, element, nameOf } from "./elements.js";
import { Picker } from "./picker.js";
import { ask, useToken } from "./service.js";

const at = id => document.getElementById(id);
const say = text => { at("said").textContent = text; };
const shared = { say, failed, similar: showSimilar };
const basket = new Picker(at("basket"), "Items", { ...shared, changed: recommend });
const never = new Picker(at("never"), "Never recommend", { ...shared, changed: recommend });
const only = new Picker(at("only"), "Recommend only these", { ...shared, changed: recommend });
let isUser = false;
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
  at("key").hidden = false;
  at("token").focus();
}

async function begin() {
  try {
    await describe();
  } catch (error) {
    return failed(error);
  }
  at("error").hidden = at("key").hidden = true;
  at("main").hidden = at("footer").hidden = false;
  basket.input.focus();
}

/** Says in the footer which model answers. */
async function describe() {
  const about = await ask("v1/model");
  at("run").textContent = about.run;
  at("fingerprint").textContent = about.fingerprint.slice(0, 12);
  at("fingerprint").title = about.fingerprint;
  at("count").textContent = about.num_items.toLocaleString("en");
  at("kinds").hidden = !about.has_users;
}

function request() {
  const common = { k: Number(at("k").value), include_seen: at("seen").checked, unknown: "skip" };
  if (never.items.length) common.never = never.ids;
  if (only.items.length) common.only = only.ids;
  if (isUser) return at("id").value && { ...common, user: at("id").value };
  return basket.items.length && { ...common, items: basket.ids };
}

async function recommend() {
  pending?.abort();
  pending = new AbortController();
  at("error").hidden = true;
  const filters = never.items.length + only.items.length + Number(at("seen").checked);
  at("filters").firstElementChild.textContent = filters ? `Filters (${filters})` : "Filters";
  const wanted = request();
  if (!wanted) {
    return show([], isUser ? "Name a user to see recommendations." : "Add an item to see recommendations.");
  }
  try {
    const answer = await ask("v1/recommend", wanted, pending.signal);
    show(answer.items, noteOn(answer));
    say(`${answer.items.length} recommended.`);
    if (!answer.fingerprint.startsWith(at("fingerprint").textContent)) await describe();
  } catch (error) {
    if (error.name !== "AbortError") show([], "");
    failed(error);
  }
}

function noteOn({ items, unknown }) {
  if (unknown.length) return `The model does not know ${unknown.join(", ")}.`;
  return items.length ? "" : "No item is left to recommend.";
}

function show(items, note) {
  at("none").textContent = note;
  at("none").hidden = !note;
  draw(at("items"), items, each => [button("Never", each, () => leaveOut(each))]);
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
    if (!isUser && !basket.ids.includes(each.item)) actions.append(button("Add", each, () => basket.add(each)));
    actions.append(button("Similar", each, () => showSimilar(each)), ...furtherButtons(each));
    return element("li", {}, nameOf(each), score, actions, bar);
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

async function showSimilar(item) {
  try {
    const { items } = await ask("v1/similar", { item: item.item, k: Number(at("k").value) });
    at("error").hidden = true;
    if (at("similar").hidden) opener = document.activeElement;
    at("similar").hidden = false;
    at("like").textContent = `Similar to ${item.title}`;
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
  at("basket").hidden = isUser;
  at("user").hidden = !isUser;
  recommend();
});
at("user").addEventListener("submit", event => {
  event.preventDefault();
  recommend();
});
at("key").addEventListener("submit", event => {
  event.preventDefault();
  useToken(at("token").value);
  at("token").value = "";
  begin();
});
at("k").addEventListener("change", recommend);
at("seen").addEventListener("change", recommend);
at("close").addEventListener("click", closeSimilar);
at("similar").addEventListener("keydown", event => {
  if (event.key === "Escape") closeSimilar();
});
begin();
