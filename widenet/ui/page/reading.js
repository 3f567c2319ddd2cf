// Reads figures: pointing at one, or the arrow keys in it, says the numbers of an epoch below its title.

const SVG = "http://www.w3.org/2000/svg";

function prepare(part) {
  for (const figure of part.querySelectorAll("figure")) {
    const drawing = figure.querySelector("svg[role=img]"); // its last 36 units are the axis
    const columns = columnsOf(drawing);
    if (!columns.length) continue;
    const said = document.createElement("output");
    said.className = "said";
    figure.append(said);
    const line = document.createElementNS(SVG, "line");
    for (const [name, value] of [["stroke", "currentColor"], ["stroke-opacity", "0.45"], ["y1", "0"], ["y2", drawing.viewBox.baseVal.height - 36]]) {
      line.setAttribute(name, value);
    }
    drawing.tabIndex = 0;
    let at = -1;
    const show = place => {
      at = Math.max(0, Math.min(columns.length - 1, place));
      line.setAttribute("x1", columns[at].x);
      line.setAttribute("x2", columns[at].x);
      drawing.append(line);
      said.textContent = columns[at].texts.join(" \u00b7 ");
    };
    const hide = () => { at = -1; line.remove(); said.textContent = ""; };
    drawing.addEventListener("pointermove", event => {
      const box = drawing.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * drawing.viewBox.baseVal.width;
      const far = columns.map(column => Math.abs(column.x - x));
      show(far.indexOf(Math.min(...far)));
    });
    drawing.addEventListener("pointerleave", () => { if (document.activeElement !== drawing) hide(); });
    drawing.addEventListener("blur", hide);
    drawing.addEventListener("keydown", event => {
      const last = columns.length - 1;
      const place = { ArrowRight: at + 1, ArrowLeft: at < 0 ? last : at - 1, Home: 0, End: last }[event.key];
      if (place === undefined) return;
      event.preventDefault();
      show(place);
    });
  }
}

/** Returns the dots of a drawing by their place across, from left to right. */
function columnsOf(drawing) {
  const columns = new Map();
  for (const dot of drawing?.querySelectorAll("circle") ?? []) {
    const x = Number(dot.getAttribute("cx"));
    if (!columns.has(x)) columns.set(x, { x, texts: [] });
    columns.get(x).texts.push(dot.querySelector("title")?.textContent ?? "");
  }
  return [...columns.values()].sort((a, b) => a.x - b.x);
}

prepare(document);
document.addEventListener("replaced", event => prepare(event.target));
