/* Files and texts that leave the page. */
function download(name, content, type) {
  const link = make("a", { download: name, href: URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/* A page opened from a disk may have no clipboard of its own. */
async function copyText(text) {
  try { await navigator.clipboard.writeText(text); return; } catch { /* the older way */ }
  const field = make("textarea", { class: "hidden" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

function textButtons(host, { file, latex, csv }) {
  const said = make("span", { class: "hint", role: "status" });
  const copied = () => { said.textContent = "copied, for a paper that loads booktabs"; };
  const copy = makeButton({ "data-copy": "" }, "copy LaTeX", () => copyText(latex).then(copied));
  const save = makeButton({ "data-csv": "" }, "download CSV", () => download(`${file}.csv`, csv, "text/csv"));
  host.append(copy, save, said);
}

/* A drawing that needs no style sheet, on the paper's colour, with the legend under it. */
function standalone(svg, legend) {
  const copy = svg.cloneNode(true), { width, height: plain } = svg.viewBox.baseVal, line = 20, ink = getComputedStyle(document.body).color;
  const keys = [...legend.querySelectorAll("[aria-pressed=true]")], height = plain + line * keys.length + 8;
  const from = [...svg.querySelectorAll("*")];
  copy.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-family", "text-anchor"]) node.style.setProperty(name, style.getPropertyValue(name));
  });
  copy.querySelectorAll(".overlay").forEach((node) => node.remove());
  keys.forEach((key, i) => {
    const stroke = getComputedStyle(key.querySelector("line")), y = plain + line * (i + 0.5);
    const text = make("text", { x: 84, y: y + 4, style: `fill: ${ink}; font: 12px sans-serif` }, key.querySelector(".name").textContent);
    copy.append(make("line", { x1: 44, x2: 76, y1: y, y2: y, style: `stroke: ${stroke.stroke}; stroke-width: 2; stroke-dasharray: ${stroke.strokeDasharray}` }), text);
  });
  copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
  copy.prepend(make("rect", { width, height, fill: getComputedStyle(document.body).backgroundColor }));
  for (const [key, value] of Object.entries({ width, height, xmlns: "http://www.w3.org/2000/svg" })) copy.setAttribute(key, value);
  return new XMLSerializer().serializeToString(copy);
}

function downloadSvg({ svg, legend }, name) { download(`${name}.svg`, standalone(svg, legend), "image/svg+xml"); }

function downloadPng({ svg, legend }, name, dense = 3) {
  const image = new Image();
  image.onload = () => {
    const canvas = make("canvas", { width: image.width * dense, height: image.height * dense });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.toBlob((blob) => download(`${name}.png`, blob));
  };
  image.src = `data:image/svg+xml,${encodeURIComponent(standalone(svg, legend))}`;
}
