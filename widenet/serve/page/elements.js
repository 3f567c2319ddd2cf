// Makes elements. Text becomes text, never HTML.

const MOST_LETTERS = 40; // of a value of an attribute

/** Returns an element with attributes, listeners (functions) and children; undefined attributes are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Returns an item's title, its id beside it where they differ, and its attributes below. */
export function nameOf({ item, title, attributes = {} }) {
  const name = element("span", { class: "name" }, title);
  if (item !== title) name.append(" ", element("small", {}, item));
  const known = Object.entries(attributes).map(([what, value]) => `${what}: ${brief(value)}`);
  if (known.length) name.append(" ", element("small", { class: "attributes" }, known.join(" · ")));
  return name;
}

/** Returns a value of an attribute, shortened: a list, or a time that is a day, as people write it. */
function brief(value) {
  const text = [value].flat().join(", ").replace(/^(\d{4}-\d\d-\d\d)T00:00:00$/, "$1");
  return text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS)}…` : text;
}

/** Returns a button; `what` it does is written, what it does it to is said. */
export function button(what, { title }, click, style) {
  return element("button", { type: "button", class: style, "aria-label": `${what} ${title}`, click }, what);
}
