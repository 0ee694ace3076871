"use strict";

/* An SVG or HTML element; text is only ever set as text. */
function make(name, attributes = {}, ...children) {
  const drawn = ["svg", "g", "path", "line", "rect", "circle", "text", "clipPath"].includes(name);
  const node = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function makeButton(attributes, text, press) {
  const node = make("button", { type: "button", ...attributes }, text);
  node.onclick = press;
  return node;
}

/* About `count` round numbers between two values. */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) found.push(Number((k * step).toPrecision(6)));
  return found;
}

/* The line through known points; a gap where one is not known. */
function linePath(xs, ys, at) {
  let path = "", pen = "M";
  xs.forEach((x, i) => {
    if (ys[i] === null) { pen = "M"; return; }
    const [px, py] = at(x, ys[i]);
    path += `${pen}${px.toFixed(1)} ${py.toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/* The position of the value nearest to x in a sorted list. */
function nearest(values, x) {
  let best = 0;
  values.forEach((value, i) => { if (Math.abs(value - x) < Math.abs(values[best] - x)) best = i; });
  return best;
}
