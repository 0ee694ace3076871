/* A grid of shaded cells that can be read by pointer and by arrow keys. */
class Grid {
  constructor({ name, values, top, counts = false, say, output, across }) {
    this.labels = make("div", { class: "labels", "aria-hidden": "true" });
    Object.assign(this, { values, top, counts, say, output });
    this.rows = values.length;
    this.columns = values[0].length;
    this.canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": `${name}. Arrow keys read single cells.` });
    this.node = make("figure", { class: "map" }, make("figcaption", {}, name), make("div", { class: "labelled" }, this.labels, this.canvas), make("div", { class: "ends" }, ...across.map((text) => make("span", {}, text))));
    this.at = [0, 0];
    this.canvas.onpointermove = (event) => this.point(event);
    this.canvas.onkeydown = (event) => this.key(event);
    new ResizeObserver(() => this.draw()).observe(this.node);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const at = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
    this.show(at((event.clientY - box.top) / box.height, this.rows), at((event.clientX - box.left) / box.width, this.columns));
  }

  key(event) {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    this.show(Math.min(this.rows - 1, Math.max(0, this.at[0] + step[0])), Math.min(this.columns - 1, Math.max(0, this.at[1] + step[1])));
  }

  show(row, column) {
    this.at = [row, column];
    this.output.textContent = this.say(row, column, this.values[row][column]);
  }

  draw() {
    const wide = this.canvas.clientWidth, cell = Math.min(22, Math.max(3, Math.min(this.columns > 30 ? 12 : 22, 480 / this.rows)));
    const dense = window.devicePixelRatio || 1, high = Math.round(cell * this.rows);
    if (!wide) return;
    this.canvas.style.height = `${high}px`;
    const every = Math.max(1, Math.ceil(13 / cell));
    this.labels.replaceChildren(...this.values.map((_, r) => r).filter((r) => r % every === 0).map((r) => {
      const label = make("span", {}, String(r));
      label.style.top = `${(r + 0.5) * high / this.rows}px`;
      return label;
    }));
    this.canvas.width = Math.round(wide * dense);
    this.canvas.height = Math.round(high * dense);
    const paint = this.canvas.getContext("2d"), shade = shades();
    const w = this.canvas.width / this.columns, h = this.canvas.height / this.rows;
    const numbers = this.counts && w > 24 * dense && h > 13 * dense, gap = w > 8 * dense && h > 8 * dense ? dense : 0;
    paint.font = `${10 * dense}px system-ui, sans-serif`;
    paint.textAlign = "center";
    paint.textBaseline = "middle";
    this.values.forEach((row, r) => row.forEach((value, c) => {
      const share = value === null ? null : this.counts ? Math.sqrt(value / this.top) : value / this.top;
      paint.fillStyle = shade(share);
      const x = Math.round(c * w), y = Math.round(r * h);
      paint.fillRect(x, y, Math.round((c + 1) * w) - x - gap, Math.round((r + 1) * h) - y - gap);
      if (!numbers || !value) return;
      paint.fillStyle = shade.ink(share);
      paint.fillText(value, (c + 0.5) * w, (r + 0.5) * h);
    }));
  }
}

/* Colours from the style sheet: h0 for nothing, h1 for half, h2 for all. */
function shades() {
  const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
  const stops = ["--h0", "--h1", "--h2"].map((name) => [1, 3, 5].map((i) => parseInt(get(name).slice(i, i + 2), 16)));
  const mix = (share) => {
    const [low, high] = share < 0.5 ? [stops[0], stops[1]] : [stops[1], stops[2]], part = share < 0.5 ? 2 * share : 2 * share - 1;
    return low.map((v, i) => Math.round(v + part * (high[i] - v)));
  };
  const bright = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b;
  const shade = (share) => share === null ? get("--none") : `rgb(${mix(share)})`;
  shade.ink = (share) => bright(mix(share)) > 130 ? "#000" : "#fff";
  return shade;
}

/* A small multiple per method; they share one line that says what is under the pointer. */
function drawHeat(host, federation) {
  const output = make("output", { class: "hint", "aria-live": "polite" }, "Point at a cell, or focus a map and use the arrow keys.");
  const grids = federation.methods.filter((m) => m.heat).map((method) => new Grid({
    name: method.name, values: method.heat.values, top: 100, output,
    across: ["class", `round ${method.heat.round[0]} to ${method.heat.round.at(-1)}`, ""],
    say: (row, column, value) => `${method.name}, class ${row}, round ${method.heat.round[column]}: ${value === null ? "not measured" : value + " %"}`,
  }));
  if (!grids.length) { host.append(make("p", {}, "No run has accuracies per class.")); return grids; }
  const scale = make("p", { class: "hint" }, "0 %", make("span", { class: "scale" }), "100 %");
  host.append(scale, make("div", { class: "maps" }, ...grids.map((grid) => grid.node)), output);
  return grids;
}

function drawPartition(host, { partition }) {
  const { counts, clients } = partition, values = counts[0].map((_, c) => counts.map((row) => row[c]));
  const top = Math.max(1, ...values.map((row) => Math.max(...row)));
  const output = make("output", { class: "hint", "aria-live": "polite" }, "Point at a cell, or focus the map and use the arrow keys.");
  const cut = counts.length < clients ? ` (first ${counts.length} of ${clients})` : "";
  const grid = new Grid({
    name: `Examples of each class held by each client${cut}`, values, top, counts: true, output,
    across: ["class", `client 0 to ${counts.length - 1}`, ""],
    say: (row, column, value) => `client ${column}, class ${row}: ${value} examples`,
  });
  host.append(make("p", { class: "hint" }, "0", make("span", { class: "scale" }), `${top} examples (square root scale)`), make("div", { class: "maps one" }, grid.node), output);
  return [grid];
}
