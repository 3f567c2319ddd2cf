// Form controls for rules: how many items of a category, and only those with a value.

import { element } from "./elements.js";

/** Draws controls for each attribute that rules may name; calls changed after a change. */
export function drawRules(root, attributes, changed) {
  const field = (id, label, control) => element("p", { class: "rule" }, element("label", { for: id }, label), control);
  const usable = Object.entries(attributes).filter(([, { values }]) => values.length);
  const fields = usable.flatMap(([name, { values }], place) => {
    const options = values.map(value => element("option", { value: JSON.stringify(value) }, String(value)));
    const only = element("select", { id: `where-${place}`, "data-where": name, change: changed },
      element("option", { value: "" }, "any"), ...options);
    const most = element("input", { id: `most-${place}`, "data-most": name, type: "number", min: "1", max: "1000", placeholder: "any number", change: changed });
    return [field(only.id, `Only with ${name}`, only), field(most.id, `At most of each ${name}`, most)];
  });
  root.replaceChildren(...fields);
}

/** Returns the rules that are set, as fields of a request. */
export function rulesIn(root) {
  const where = {}, at_most = {};
  for (const each of root.querySelectorAll("[data-where]")) if (each.value) where[each.dataset.where] = valueOf(each.value);
  for (const each of root.querySelectorAll("[data-most]")) if (Number(each.value) >= 1) at_most[each.dataset.most] = Math.floor(Number(each.value));
  return { ...(Object.keys(where).length && { where }), ...(Object.keys(at_most).length && { at_most }) };
}

/** Returns a condition: true, false, or a list of one text. */
function valueOf(text) {
  const value = JSON.parse(text);
  return typeof value === "boolean" ? value : [value];
}
