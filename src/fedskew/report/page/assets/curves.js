const MEASURES = { accuracy: "accuracy %", balanced_accuracy: "balanced accuracy %", loss: "loss" };
const MOST_BANDS = 4;

/* Learning curves of one federation: `state` says what is shown, `draw` shows it. */
class Curves {
  constructor(host, federation) {
    this.methods = federation.methods;
    this.file = federation.file;
    this.full = [0, Math.max(1, ...this.methods.flatMap((m) => m.curve.round))];
    this.state = { measure: "accuracy", hidden: new Set(), range: this.full, cursor: null };
    this.svg = make("svg", { class: "curves", tabindex: 0, role: "group", "aria-label": "Learning curves. Left and right arrows read values, plus and minus zoom, zero resets." });
    this.at = make("p", { class: "at" });
    this.spoken = make("p", { class: "hidden", "aria-live": "polite" });
    this.legend = make("div", { class: "legend", role: "group", "aria-label": "Methods" }, ...this.methods.map((m, i) => this.key(m, i)));
    this.note = make("p", { class: "hint note" });
    const hint = make("p", { class: "hint" }, "Hover or use the arrow keys to read values; drag across, or + and −, to zoom.");
    host.append(this.bar(), make("div", { class: "chart" }, make("div", {}, this.svg, this.note, hint), make("div", {}, this.at, this.legend)), this.spoken);
    attachReading(this);
    new ResizeObserver(() => this.draw()).observe(this.svg.parentNode);
  }

  get shown() { return this.methods.filter((_, i) => !this.state.hidden.has(i)); }
  get rounds() {
    const [a, b] = this.state.range;
    return [...new Set(this.shown.flatMap((m) => m.curve.round))].filter((r) => r >= a && r <= b).sort((x, y) => x - y);
  }
  set(changes) { Object.assign(this.state, changes); this.draw(); }

  bar() {
    const measured = (name) => this.methods.some((m) => m.curve[name].some((value) => value !== null));
    const shown = Object.keys(MEASURES).filter((name) => name === "accuracy" || measured(name));
    this.switches = shown.map((name) => makeButton({ "data-measure": name }, name.replace("_", " "), () => this.set({ measure: name })));
    const all = makeButton({ "data-all": "" }, "all methods", () => this.set({ hidden: new Set() }));
    const none = makeButton({ "data-none": "" }, "no method", () => this.set({ hidden: new Set(this.methods.keys()) }));
    const half = makeButton({ "data-half": "" }, "last half", () => zoom(this, this.full[1] / 2, this.full[1]));
    this.reset = makeButton({ "data-reset": "" }, "all rounds", () => { this.set({ range: this.full }); this.svg.focus(); });
    const svg = makeButton({ "data-svg": "" }, "download SVG", () => downloadSvg(this, `${this.file}-${this.state.measure}`));
    const png = makeButton({ "data-png": "" }, "download PNG", () => downloadPng(this, `${this.file}-${this.state.measure}`));
    const measure = make("div", { class: "bar", role: "group", "aria-label": "Measure" }, ...this.switches);
    return make("div", { class: "bar" }, measure, make("span", { class: "gap" }), all, none, half, this.reset, svg, png);
  }

  key(method, i) {
    const swatch = make("svg", { viewBox: "0 0 32 12", "aria-hidden": "true" }, make("line", { x1: 0, x2: 32, y1: 6, y2: 6, class: "line", "stroke-dasharray": method.dash }));
    const name = method.name + (method.state === "done" ? "" : ` (${method.state})`);
    const button = make("button", { type: "button", class: "method", "data-method": method.name }, swatch, make("span", { class: "name" }, name), make("span", { class: "value" }));
    button.style.setProperty("--base", method.color);
    button.onclick = () => {
      const hidden = new Set(this.state.hidden);
      if (!hidden.delete(i)) hidden.add(i);
      this.set({ hidden });
    };
    return button;
  }

  /* The smallest and largest value in view, with bands where they are drawn, and some air. */
  extent() {
    const { measure, range } = this.state;
    const bands = this.shown.length <= MOST_BANDS;
    let low = Infinity, high = -Infinity;
    for (const { curve } of this.shown) curve.round.forEach((r, i) => {
      const value = curve[measure][i];
      if (value === null || r < range[0] || r > range[1]) return;
      const spread = (bands && curve[`${measure}_std`]?.[i]) || 0;
      low = Math.min(low, value - spread); high = Math.max(high, value + spread);
    });
    if (low > high) return [0, measure === "loss" ? 1 : 100];
    const air = (high - low) * 0.06 || 1;
    return [Math.max(0, low - air), measure === "loss" ? high + air : Math.min(100, high + air)];
  }

  draw() {
    const wide = Math.max(260, this.svg.parentNode.clientWidth), high = wide < 500 ? 240 : 360;
    const [x0, x1] = this.state.range, [y0, y1] = this.extent();
    this.box = { left: 44, right: wide - 10, top: 20, bottom: high - 36 };
    const { left, right, top, bottom } = this.box;
    this.x = (round) => left + (right - left) * (round - x0) / (x1 - x0);
    this.y = (value) => bottom - (bottom - top) * (value - y0) / (y1 - y0);
    this.round = (px) => x0 + (x1 - x0) * (px - left) / (right - left);
    const clip = make("clipPath", { id: `clip-${this.id ??= Curves.count++}` }, make("rect", { x: left, y: 0, width: right - left, height: bottom + 2 }));
    const lines = make("g", { "clip-path": `url(#clip-${this.id})` }, ...this.shown.map((m) => this.curve(m)));
    this.overlay = make("g", { class: "overlay" });
    this.svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
    this.svg.replaceChildren(clip, this.axes([x0, x1], [y0, y1], wide, high), lines, this.overlay);
    this.reset.disabled = x0 === this.full[0] && x1 === this.full[1];
    for (const button of this.switches) button.setAttribute("aria-pressed", button.dataset.measure === this.state.measure);
    const banded = this.shown.length <= MOST_BANDS && this.shown.some((m) => m.curve[`${this.state.measure}_std`]);
    const dense = this.shown.some((m) => m.line);
    this.note.textContent = [banded ? "Band: ± one standard deviation over seeds." : "", dense ? "Dots are evaluated rounds; the last ten, all evaluated, are drawn as their mean." : "", y0 > 0 ? "The upright axis does not begin at zero." : ""].filter(Boolean).join(" ");
    read(this);
  }

  axes([x0, x1], [y0, y1], wide, high) {
    const { left, right, top, bottom } = this.box, g = make("g");
    for (const value of ticks(y0, y1, 5)) g.append(
      make("line", { class: "grid", x1: left, x2: right, y1: this.y(value), y2: this.y(value) }),
      make("text", { x: left - 6, y: this.y(value) + 4, "text-anchor": "end" }, String(value)));
    for (const round of ticks(x0, x1, wide < 500 ? 4 : 8)) g.append(
      make("line", { class: "grid", x1: this.x(round), x2: this.x(round), y1: bottom, y2: bottom + 4 }),
      make("text", { x: this.x(round), y: bottom + 17, "text-anchor": "middle" }, String(round)));
    if (y0 > 0) for (const up of [6, 11]) g.append(make("line", { class: "break", x1: left - 4, x2: left + 4, y1: bottom - up + 3, y2: bottom - up - 3 }));
    g.append(make("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }), make("text", { x: 2, y: top - 8 }, MEASURES[this.state.measure]), make("text", { x: right, y: high - 4, "text-anchor": "end" }, "communication round"));
    return g;
  }

  curve(method) {
    const { measure } = this.state, curve = method.line ?? method.curve, at = (r, v) => [this.x(r), this.y(v)];
    const g = make("g", { class: "method", "data-curve": method.name });
    g.style.setProperty("--base", method.color);
    const std = curve[`${measure}_std`];
    if (std && this.shown.length <= MOST_BANDS) {
      const known = curve.round.map((_, i) => i).filter((i) => curve[measure][i] !== null && std[i] !== null);
      const edge = (list, sign) => linePath(list.map((i) => curve.round[i]), list.map((i) => curve[measure][i] + sign * std[i]), at);
      if (known.length) g.append(make("path", { class: "band", d: edge(known, 1) + edge([...known].reverse(), -1).replace("M", "L") + "Z" }));
    }
    g.append(make("path", { class: "line", d: linePath(curve.round, curve[measure], at), "stroke-dasharray": method.dash }));
    if (method.line) method.curve.round.forEach((r, i) => {
      if (method.curve[measure][i] !== null) g.append(make("circle", { class: "seen", cx: this.x(r), cy: this.y(method.curve[measure][i]), r: 2 }));
    });
    return g;
  }
}
Curves.count = 0;
