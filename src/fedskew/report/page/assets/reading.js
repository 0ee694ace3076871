/* Reading values off curves and zooming, by pointer and by keyboard. */
function attachReading(chart) {
  const { svg } = chart;
  let from = null;
  const place = (event) => {
    const box = svg.getBoundingClientRect();
    const px = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    return Math.min(chart.box.right, Math.max(chart.box.left, px));
  };
  svg.onpointerdown = (event) => { if (event.button === 0) { from = place(event); svg.setPointerCapture(event.pointerId); } };
  svg.onpointermove = (event) => {
    const px = place(event);
    moveTo(chart, nearest(chart.rounds, chart.round(px)));
    if (from !== null) chart.overlay.append(make("rect", { class: "select", x: Math.min(from, px), y: chart.box.top, width: Math.abs(px - from), height: chart.box.bottom - chart.box.top }));
  };
  svg.onpointerup = (event) => {
    const px = place(event), start = from;
    from = null;
    if (start !== null && Math.abs(px - start) > 8) zoom(chart, chart.round(Math.min(start, px)), chart.round(Math.max(start, px)));
  };
  svg.onpointercancel = () => { from = null; read(chart); };
  svg.onpointerleave = () => { if (from === null) chart.set({ cursor: null }); };
  svg.ondblclick = () => chart.set({ range: chart.full });
  svg.onkeydown = (event) => { if (!event.ctrlKey && !event.metaKey && pressed(chart, event.key)) event.preventDefault(); };
}

function pressed(chart, key) {
  const rounds = chart.rounds, [a, b] = chart.state.range;
  const now = chart.state.cursor === null ? rounds.length - 1 : nearest(rounds, chart.state.cursor);
  const middle = chart.state.cursor ?? (a + b) / 2, half = (b - a) / 2;
  const actions = {
    ArrowLeft: () => moveTo(chart, Math.max(0, now - 1)), ArrowRight: () => moveTo(chart, Math.min(rounds.length - 1, now + 1)),
    Home: () => moveTo(chart, 0), End: () => moveTo(chart, rounds.length - 1),
    "+": () => zoom(chart, middle - half / 2, middle + half / 2), "-": () => zoom(chart, middle - half * 2, middle + half * 2),
    0: () => chart.set({ range: chart.full }), Escape: () => chart.set({ range: chart.full, cursor: null }),
  };
  actions["="] = actions["+"];
  if (!(key in actions)) return false;
  actions[key]();
  chart.spoken.textContent = spoken(chart);
  return true;
}

/* Show a span of rounds, at least two rounds wide and within the run. */
function zoom(chart, low, high) {
  const [first, last] = chart.full, width = Math.min(last - first, Math.max(2, high - low));
  const start = Math.min(Math.max(first, low), last - width);
  chart.set({ range: [start, start + width] });
}

function moveTo(chart, position) {
  chart.state.cursor = chart.rounds[position] ?? null;
  read(chart);
}

function valueAt(chart, method) {
  const { curve } = method, { cursor, measure } = chart.state;
  const i = cursor === null ? curve.round.length - 1 : curve.round.indexOf(cursor);
  const value = curve[measure][i] ?? null, std = curve[`${measure}_std`]?.[i] ?? null;
  return { value, std, round: curve.round[i] };
}

function asText({ value, std }, measure) {
  const digits = measure === "loss" ? 3 : 2;
  if (value === null) return "–";
  return value.toFixed(digits) + (std === null ? "" : ` ± ${std.toFixed(digits)}`);
}

function spoken(chart) {
  const values = chart.shown.map((m) => `${m.name} ${asText(valueAt(chart, m), chart.state.measure)}`);
  return `${chart.at.textContent}: ${values.join(", ")}`;
}

/* The cursor line, its dots, and each method's value beside its name. */
function read(chart) {
  const { cursor, measure, hidden } = chart.state;
  chart.at.textContent = cursor === null ? "last round" : `round ${cursor}`;
  chart.overlay.replaceChildren();
  if (cursor !== null) chart.overlay.append(make("line", { class: "cursor", x1: chart.x(cursor), x2: chart.x(cursor), y1: chart.box.top, y2: chart.box.bottom }));
  chart.methods.forEach((method, i) => {
    const button = chart.legend.children[i], found = valueAt(chart, method);
    button.setAttribute("aria-pressed", !hidden.has(i));
    button.querySelector(".value").textContent = hidden.has(i) ? "" : asText(found, measure);
    if (cursor === null || hidden.has(i) || found.value === null) return;
    const dot = make("circle", { class: "dot method", cx: chart.x(cursor), cy: chart.y(found.value), r: 4 });
    dot.style.setProperty("--base", method.color);
    chart.overlay.append(dot);
  });
}
