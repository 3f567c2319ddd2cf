// What is known of a person beside items: ids of categories, numbers, or a file with numbers or a picture.

import { element } from "./elements.js";
import { numbersIn } from "./numbers.js";

const MOST_TYPED = 64; // numbers that somebody types

/** Draws an input for each field; calls changed after a change, and failed with the error of a file. */
export function drawInputs(root, fields, callbacks) {
  root.replaceChildren();
  return fields.map((field, place) => {
    const part = element("div", { class: "field", role: "group", "aria-label": field.name });
    root.append(part);
    return field.kind === "dense" ? numbersInput(part, field, place, callbacks) : idsInput(part, field, place, callbacks);
  });
}

/** Returns the values of all inputs that have one, as `fields` of a request; nothing without any. */
export function valuesOf(inputs) {
  const given = inputs.filter(each => each.value().length);
  return given.length ? { fields: Object.fromEntries(given.map(each => [each.name, each.value()])) } : {};
}

function typed(part, field, place, what, changed) {
  const input = element("input", {
    id: `field-${place}`, type: "text", autocomplete: "off", spellcheck: "false", placeholder: what, change: changed,
  });
  part.append(element("label", { for: input.id }, field.name), input);
  return input;
}

function idsInput(part, field, place, { changed }) {
  const input = typed(part, field, place, "Ids, with commas between them", changed);
  const value = () => input.value.split(",").map(id => id.trim()).filter(id => id);
  return { name: field.name, value };
}

function numbersInput(part, field, place, { changed, failed }) {
  let numbers = [];
  let latest; // the file that was given last
  const isPicture = field.shape.length === 3 && [1, 3].includes(field.shape[0]);
  const note = element("p", { class: "note" });
  const picture = element("canvas", { class: "picture", role: "img", "aria-label": `The picture of ${field.name}`, hidden: "" });
  const take = async file => {
    if (!file) return;
    latest = file;
    numbers = [];
    try {
      const found = await numbersIn(file, field, isPicture ? picture : null);
      if (file !== latest) return;
      numbers = found;
      note.textContent = `${numbers.length.toLocaleString("en")} numbers of ${file.name}`;
      if (input) input.value = "";
      clear.hidden = false;
      changed();
    } catch (error) {
      note.textContent = "";
      changed();
      failed(error);
    }
  };
  const input = field.width > MOST_TYPED ? null : typed(part, field, place, `Numbers: ${field.width}`, () => {
    numbers = input.value.split(/[\s,;]+/).filter(text => text).map(Number);
    const wrong = numbers.some(each => !Number.isFinite(each));
    if (wrong) numbers = [];
    note.textContent = chosen.value = "";
    picture.hidden = clear.hidden = true;
    changed();
    if (wrong) failed(Error(`${field.name} takes numbers.`));
  });
  const chosen = element("input", {
    id: `file-${place}`, type: "file", accept: `.npy,.csv,.txt,.json${isPicture ? ",image/*" : ""}`,
    change: () => take(chosen.files[0]),
  });
  const clear = element("button", { type: "button", class: "quiet", hidden: "", click: () => {
    numbers = [];
    note.textContent = chosen.value = "";
    picture.hidden = clear.hidden = true;
    chosen.focus();
    changed();
  } }, `Remove ${field.name}`);
  const what = isPicture ? "A picture, or a file of numbers (.npy, .csv)" : "A file of numbers (.npy, .csv)";
  part.append(element("label", { for: chosen.id }, input ? what : `${field.name}: ${what}`), chosen, picture, note, clear);
  part.addEventListener("dragover", event => { event.preventDefault(); part.classList.add("over"); });
  part.addEventListener("dragleave", () => part.classList.remove("over"));
  part.addEventListener("drop", event => {
    event.preventDefault();
    part.classList.remove("over");
    chosen.files = event.dataTransfer.files;
    take(chosen.files[0]);
  });
  return { name: field.name, value: () => numbers };
}
