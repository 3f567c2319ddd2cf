// A list of items that somebody chooses by title: an ARIA combobox, and what was chosen.

import { button, element, nameOf } from "./elements.js";
import { ask } from "./service.js";

const PAUSE = 120; // milliseconds without a key before a search

export class Picker {
  attributes = []; // names of those that found items have

  /**
   * root: where it goes. label: its name. changed: called after a change. say: tells a screen reader.
   * failed: called with the error of a search. similar: called with an item.
   */
  constructor(root, label, { changed, say, failed, similar }) {
    Object.assign(this, { changed, say, failed, similar, items: [], found: [], active: -1 });
    const id = root.id;
    this.input = element("input", {
      id: `${id}-input`, type: "text", role: "combobox", autocomplete: "off", spellcheck: "false",
      "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": `${id}-found`,
      placeholder: "Type a title or an id", maxlength: "200",
      input: () => this.searchSoon(), keydown: event => this.key(event), blur: () => this.close(),
    });
    this.list = element("ul", { id: `${id}-found`, role: "listbox", "aria-label": `${label}: found` });
    this.note = element("p", { class: "note" });
    this.drop = element("div", { class: "drop", hidden: "" }, this.list, this.note);
    this.drop.addEventListener("mousedown", event => event.preventDefault()); // the input keeps the focus
    this.chosen = element("ul", { class: "chosen", "aria-label": label });
    root.append(element("label", { for: this.input.id }, label),
      element("div", { class: "combobox" }, this.input, this.drop), this.chosen);
  }

  get ids() {
    return this.items.map(each => each.item);
  }

  get values() {
    return this.items.map(each => each.value ?? 1);
  }

  /** Says whether each chosen item has a number. */
  askValues(asks) {
    if (asks === this.asksValues) return;
    this.asksValues = asks;
    this.draw();
  }

  searchSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.search(), PAUSE);
  }

  async search() {
    this.search_?.abort();
    const text = this.input.value.trim();
    if (!text) return this.close();
    this.search_ = new AbortController();
    try {
      const asked = new URLSearchParams({ search: text, attributes: this.attributes });
      const { items } = await ask(`v1/items?${asked}`, null, this.search_.signal);
      this.show(items.filter(each => !this.ids.includes(each.item)));
    } catch (error) {
      this.close();
      this.failed(error);
    }
  }

  show(found) {
    this.found = found;
    this.list.replaceChildren(...found.map((each, place) => element("li", {
      id: `${this.list.id}-${place}`, role: "option", "aria-selected": "false", click: () => this.add(each),
    }, nameOf(each))));
    const several = found.length === 1 ? "1 item" : `${found.length} items`;
    this.note.textContent = found.length ? `${several} found` : "No further item has this title or id.";
    this.say(this.note.textContent);
    this.drop.hidden = false;
    this.input.setAttribute("aria-expanded", String(found.length > 0));
    this.mark(found.length ? 0 : -1);
  }

  close() {
    clearTimeout(this.timer);
    this.search_?.abort();
    this.found = [];
    this.list.replaceChildren();
    this.drop.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
    this.mark(-1);
  }

  /** Makes an option the one that Enter takes. */
  mark(place) {
    this.list.children[this.active]?.setAttribute("aria-selected", "false");
    this.active = place;
    const option = this.list.children[place];
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    if (event.isComposing) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const count = this.found.length;
    if (step && count) this.mark((this.active + step + count) % count);
    else if (event.key === "ArrowDown" && this.drop.hidden) this.search();
    else if (event.key === "Enter" && count) this.add(this.found[this.active]);
    else if (event.key === "Escape" && !this.drop.hidden) this.close();
    else if (event.key === "Escape") this.input.value = "";
    else return;
    event.preventDefault();
  }

  add(item) {
    this.input.value = "";
    this.close();
    if (this.ids.includes(item.item)) return;
    this.items.push(item);
    this.draw();
    this.say(`${item.title} added.`);
    this.changed();
  }

  remove(item) {
    const place = this.items.indexOf(item);
    this.items.splice(place, 1);
    this.draw();
    const next = this.chosen.children[Math.min(place, this.items.length - 1)];
    (next?.querySelector(".remove") ?? this.input).focus();
    this.say(`${item.title} removed.`);
    this.changed();
  }

  draw() {
    this.chosen.replaceChildren(...this.items.map(each => {
      const remove = button("Remove", each, () => this.remove(each), "remove");
      const value = element("input", {
        type: "number", class: "value", step: "any", value: each.value ?? 1, "aria-label": `Value of ${each.title}`,
        change: event => { each.value = event.target.value === "" ? 1 : Number(event.target.value); this.changed(); },
      });
      return element("li", {}, nameOf(each), ...(this.asksValues ? [value] : []), button("Similar", each, () => this.similar(each), "quiet"), remove);
    }));
  }
}
