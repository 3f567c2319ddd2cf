// Draws curves with uPlot: values at the pointer or at the arrow keys, zoom, and all numbers as a table.

/* global uPlot */
const HEIGHT = 210;
const WHOLE = [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap(power => [power, 2 * power, 5 * power]); // distances of epochs
const ZOOM = 0.5; // share of the visible range that remains after one step
const plots = new Map(); // by figure
const sizes = new ResizeObserver(entries => {
  for (const { target, contentRect } of entries) plots.get(target)?.setSize({ width: Math.floor(contentRect.width), height: HEIGHT });
});
const seen = new IntersectionObserver(entries => {
  for (const { target, isIntersecting } of entries) if (isIntersecting) draw(target);
}, { rootMargin: "400px" });

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const write = number => (number == null ? "\u2013" : Math.abs(number) >= 1e4 || Number.isInteger(number) ? number.toLocaleString("en", { maximumFractionDigits: 1 }) : String(+number.toPrecision(6)));
const make = (name, look, ...children) => {
  const element = Object.assign(document.createElement(name), look);
  element.append(...children);
  return element;
};

/** Draws the figures of a part of the page as soon as they come near the window; keeps those that are drawn. */
function prepare(part) {
  for (const figure of plots.keys()) if (!figure.isConnected) forget(figure);
  for (const figure of part.querySelectorAll("figure.plot")) {
    if (plots.has(figure)) renew(figure);
    else seen.observe(figure);
  }
}

function forget(figure) {
  plots.get(figure).destroy();
  plots.delete(figure);
  sizes.unobserve(figure);
}

const numbersOf = figure => JSON.parse(figure.dataset.numbers);
const dataOf = ({ xs, ys }) => [xs, ...ys];

function draw(figure) {
  if (plots.has(figure)) return;
  seen.unobserve(figure);
  const numbers = numbersOf(figure);
  const back = make("button", { type: "button", textContent: "Whole range", hidden: true });
  const place = make("div", {});
  const said = make("output", { className: "unseen" });
  const list = make("details", {}, make("summary", { textContent: "Numbers" }));
  figure.querySelector("figcaption").append(back);
  figure.append(place, said, list);
  const plot = new uPlot(optionsOf(figure, numbers, back), dataOf(numbers), place);
  plots.set(figure, plot);
  sizes.observe(figure);
  Object.assign(plot.over, { tabIndex: 0, role: "img" });
  name(plot, figure);
  plot.over.addEventListener("keydown", event => key(event, plot, figure, said));
  plot.over.addEventListener("blur", () => setTimeout(() => leave(plot, said))); // a live page gives the focus back at once
  back.addEventListener("click", () => { whole(plot); plot.over.focus(); });
  list.addEventListener("toggle", () => fill(list, numbersOf(figure)));
  if (numbers.names.length > 1) for (const [at, label] of [...place.querySelectorAll(".u-label")].entries()) if (at) press(label, plot, at);
}

function leave(plot, said) {
  if (document.activeElement === plot.over) return;
  said.textContent = "";
  plot.setCursor({ left: -10, top: -10 });
}

/** Names a plot for who cannot see it. */
function name(plot, figure) {
  const { mark } = numbersOf(figure);
  plot.over.ariaLabel = [figure.dataset.title, ...(mark ? [mark[1]] : []), "The arrow keys read the curve, plus and minus zoom."].join(". ");
}

/** Lets the keyboard show and hide a line by its name in the legend. */
function press(label, plot, at) {
  const say = () => { label.ariaPressed = String(plot.series[at].show); };
  Object.assign(label, { tabIndex: 0, role: "button" });
  label.addEventListener("keydown", event => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    plot.setSeries(at, { show: !plot.series[at].show });
  });
  plot.hooks.setSeries = [...(plot.hooks.setSeries ?? []), say];
  say();
}

const powers = (_, marks) => marks.map(each => (Number.isInteger(+Math.log10(each).toFixed(9)) ? each : null)); // lines of logarithmic axes

function optionsOf(figure, { across, names, colours, logarithmic }, back) {
  const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--rule"), width: 1, ...(logarithmic && { filter: powers }) }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const scale = logarithmic ? { distr: 3 } : {};
  return {
    width: Math.floor(figure.clientWidth),
    height: HEIGHT,
    padding: [18, logarithmic ? 24 : 12, 0, 0],
    scales: { x: { time: false, ...scale }, y: scale },
    axes: [
      { ...axis, size: 28, ...(!logarithmic && { incrs: WHOLE }), values: (_, marks) => marks.map(each => (each == null ? "" : write(each))) },
      { ...axis, size: 58, values: (_, marks) => marks.map(each => (each == null ? "" : write(+each.toPrecision(6)))) },
    ],
    series: [
      { label: across, value: (_, x) => write(x) },
      ...names.map((label, at) => ({ label, stroke: colours[at], width: 2, spanGaps: true, points: { size: 5, fill: colours[at] }, value: (_, y) => write(y) })),
    ],
    cursor: { sync: { key: across, scales: ["x", null] }, focus: { prox: 30 }, points: { size: 7 } },
    focus: { alpha: 0.35 },
    legend: { markers: { fill: (_, at) => colours[at - 1] } },
    hooks: {
      draw: [plot => drawMark(plot, numbersOf(figure).mark)], // of now: the kept epoch moves
      setScale: [(plot, name) => { if (name === "x") back.hidden = isWhole(plot); }],
    },
  };
}

/** Draws a dashed line at the kept epoch, with its name on the side that has more room. */
function drawMark(plot, mark) {
  if (!mark) return;
  const [at, text] = mark;
  const { left, top, width, height } = plot.bbox;
  const x = Math.round(plot.valToPos(at, "x", true));
  if (x < left || x > left + width) return;
  const isLeft = x < left + width / 2;
  const gap = 4 * devicePixelRatio;
  const context = plot.ctx;
  context.save();
  context.strokeStyle = context.fillStyle = colour("--soft");
  context.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  context.beginPath();
  context.moveTo(x, top);
  context.lineTo(x, top + height);
  context.stroke();
  context.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  context.textAlign = isLeft ? "left" : "right";
  context.textBaseline = "bottom";
  context.fillText(text, isLeft ? x + gap : x - gap, top - gap / 2);
  context.restore();
}

const ends = plot => [plot.data[0][0], plot.data[0].at(-1)];
const whole = plot => plot.setData(plot.data); // which also resets the scales
const isWhole = plot => plot.scales.x.min <= ends(plot)[0] && plot.scales.x.max >= ends(plot)[1];

/** Takes new numbers; what is zoomed and open stays so. */
function renew(figure) {
  const plot = plots.get(figure);
  const numbers = numbersOf(figure);
  const wasWhole = isWhole(plot);
  if (numbers.names.join() !== plot.series.slice(1).map(line => line.label).join()) return drawAnew(figure, plot, wasWhole);
  plot.setData(dataOf(numbers), wasWhole);
  if (!wasWhole) plot.redraw();
  name(plot, figure);
  const list = figure.querySelector("details");
  if (list.open) fill(list, numbers);
}

/** Draws a curve that has got a further line. */
function drawAnew(figure, { scales: { x: { min, max } } }, wasWhole) {
  const wasOpen = figure.querySelector("details").open;
  forget(figure);
  const caption = figure.querySelector("figcaption");
  caption.querySelector("button").remove();
  figure.replaceChildren(caption);
  draw(figure);
  const plot = plots.get(figure);
  if (!wasWhole) plot.setScale("x", { min, max });
  figure.querySelector("details").open = wasOpen;
}

function key(event, plot, figure, said) {
  const xs = plot.data[0];
  const last = xs.length - 1;
  const at = plot.cursor.idx;
  const place = { ArrowRight: at == null ? 0 : at + 1, ArrowLeft: at == null ? last : at - 1, Home: 0, End: last }[event.key];
  if (event.key === "+" || event.key === "-") zoom(plot, at ?? last, event.key === "+" ? ZOOM : 1 / ZOOM);
  else if (event.key === "Escape") whole(plot);
  else if (place === undefined) return;
  else read(plot, Math.max(0, Math.min(last, place)), figure, said);
  event.preventDefault();
}

/** Shows and says the values at a place. */
function read(plot, place, figure, said) {
  const x = plot.data[0][place];
  const { min, max } = plot.scales.x;
  if (x < min || x > max) zoom(plot, place, 1);
  plot.setCursor({ left: plot.valToPos(x, "x"), top: plot.over.clientHeight / 2 });
  const { across, names, ys, mark } = numbersOf(figure);
  const values = names.map((name, at) => `${name} ${write(ys[at][place])}`);
  said.textContent = [`${across} ${write(x)}`, ...values, ...(mark?.[0] === x ? [mark[1]] : [])].join(", ");
}

/** Shows a range of a share of the visible one, around a place and within the whole. */
function zoom(plot, place, share) {
  const [first, last] = ends(plot);
  const { min, max } = plot.scales.x;
  const half = ((max - min) * share) / 2;
  const x = Math.max(first + half, Math.min(last - half, plot.data[0][place]));
  if (2 * half >= last - first) whole(plot);
  else plot.setScale("x", { min: x - half, max: x + half });
}

/** Lists all numbers as a table. */
function fill(list, { across, names, xs, ys }) {
  list.querySelector("div")?.remove();
  if (!list.open) return;
  const cell = (name, text) => make(name, { textContent: text, ...(name === "th" && { scope: "col" }) });
  const head = make("tr", {}, cell("th", across), ...names.map(name => cell("th", name)));
  const rows = xs.map((x, at) => make("tr", {}, cell("td", write(x)), ...ys.map(line => cell("td", write(line[at])))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  list.append(make("div", { className: "wide", tabIndex: 0, role: "group", ariaLabel: "Table" }, table));
}

prepare(document);
document.addEventListener("replaced", event => prepare(event.target));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const plot of plots.values()) plot.redraw(); });
