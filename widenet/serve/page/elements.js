// Makes elements. Text becomes text, never HTML.

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

/** Returns an item's title, and its id beside it where they differ. */
export function nameOf({ item, title }) {
  const name = element("span", { class: "name" }, title);
  if (item !== title) name.append(" ", element("small", {}, item));
  return name;
}

/** Returns a button; `what` it does is written, what it does it to is said. */
export function button(what, { title }, click, style) {
  return element("button", { type: "button", class: style, "aria-label": `${what} ${title}`, click }, what);
}
