(() => {
  const button = document.getElementById("theme");
  const data = JSON.parse(document.getElementById("data").textContent);
  const drawers = { curves: (host, f) => [new Curves(host, f)], heat: drawHeat, partition: drawPartition };
  const drawn = [], waiting = new Set(document.querySelectorAll(".drawing"));

  function show(name) {
    theme.show(name);
    button.setAttribute("aria-pressed", name === "dark");
    for (const each of drawn) each.draw();
  }
  theme.system.onchange = () => show(theme.wanted);
  button.onclick = () => { theme.choose(theme.wanted === "dark" ? "light" : "dark"); show(theme.wanted); };

  /* Draw what comes near the window only: a page may have hundreds of sections. */
  function fill(host) {
    if (!waiting.delete(host)) return;
    observer.unobserve(host);
    drawn.push(...drawers[host.dataset.kind](host, data[host.dataset.federation]));
  }
  const observer = new IntersectionObserver((seen) => {
    for (const each of seen) if (each.isIntersecting) fill(each.target);
  }, { rootMargin: "800px" });
  addEventListener("beforeprint", () => { [...waiting].forEach(fill); show("light"); });
  addEventListener("afterprint", () => show(theme.wanted));
  show(theme.wanted);
  for (const host of document.querySelectorAll("[data-texts]")) textButtons(host, data[host.dataset.texts]);
  waiting.forEach((host) => observer.observe(host));
})();
