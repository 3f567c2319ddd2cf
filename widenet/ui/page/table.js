// Sorts and searches the table of runs, and leads to the comparison of those that are chosen.

const at = id => document.getElementById(id);
const rows = at("rows");
const MOST = 200; // rows that the stylesheet shows at first

if (rows) {
  for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sort(button));
  at("find").addEventListener("input", find);
  at("metric").addEventListener("change", () => {
    location.search = new URLSearchParams({ metric: at("metric").value });
  });
  rows.addEventListener("change", choose);
  at("all").addEventListener("click", () => {
    rows.classList.add("all");
    at("all").hidden = true;
    rows.children[MOST].querySelector("a").focus();
  });
  at("clear").addEventListener("click", () => {
    for (const box of boxes()) box.checked = false;
    choose();
    at("find").focus();
  });
  document.addEventListener("taken", () => { find(); choose(); });
  find();
  choose();
}

function boxes() {
  return [...rows.querySelectorAll("input:checked")];
}

/** Sorts by a column: numbers begin with the largest, texts with the first of the alphabet; a second click turns. */
function sort(button) {
  const head = button.parentElement;
  const isNumber = button.dataset.kind === "number";
  const before = head.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending";
  const order = before === first ? (isNumber ? "ascending" : "descending") : first;
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const turn = order === "ascending" ? 1 : -1;
  const keyed = [...rows.children].map(row => [row.children[head.cellIndex].dataset.sort, row]);
  keyed.sort(([a], [b]) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // what has no number comes last
    return turn * (isNumber ? a - b : a.localeCompare(b, "en", { numeric: true }));
  });
  rows.append(...keyed.map(([, row]) => row));
}

/** Hides the rows that lack a word that is looked for. */
function find() {
  const words = at("find").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const row of rows.children) {
    const text = words.length ? row.textContent.toLowerCase() : "";
    row.hidden = !words.every(word => text.includes(word));
    shown += !row.hidden;
  }
  at("all").hidden = shown <= MOST || rows.classList.contains("all");
  at("all").textContent = `Show all ${shown.toLocaleString("en")}`;
  at("found").textContent = words.length ? `${shown.toLocaleString("en")} found.` : "";
}

function choose() {
  const chosen = boxes().map(box => box.value);
  at("chosen").hidden = !chosen.length;
  at("number").textContent = `${chosen.length} chosen${chosen.length === 1 ? ": choose another to compare" : "."}`;
  at("compare").hidden = chosen.length < 2;
  at("compare").href = `compare?${new URLSearchParams(chosen.map(name => ["run", name]))}`;
}
