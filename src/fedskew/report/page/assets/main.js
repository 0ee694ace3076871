(() => {
  const root = document.documentElement, button = document.getElementById("theme");
  const data = JSON.parse(document.getElementById("data").textContent);
  const drawers = { curves: (host, f) => [new Curves(host, f)], heat: drawHeat, partition: drawPartition };
  const drawn = [], waiting = new Set(document.querySelectorAll(".drawing"));
  const kept = (() => { try { return localStorage.getItem("fedskew-theme"); } catch { return null; } })();

  function theme(name) {
    root.dataset.theme = name;
    button.setAttribute("aria-pressed", name === "dark");
    for (const each of drawn) each.draw();
  }
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = kept;
  const wanted = () => chosen || (system.matches ? "dark" : "light");
  system.onchange = () => theme(wanted());
  button.onclick = () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("fedskew-theme", chosen); } catch { /* a page opened from a file may have no storage */ }
    theme(chosen);
  };

  /* Draw what comes near the window only: a page may have hundreds of sections. */
  function fill(host) {
    if (!waiting.delete(host)) return;
    observer.unobserve(host);
    drawn.push(...drawers[host.dataset.kind](host, data[host.dataset.federation]));
  }
  const observer = new IntersectionObserver((seen) => {
    for (const each of seen) if (each.isIntersecting) fill(each.target);
  }, { rootMargin: "800px" });
  addEventListener("beforeprint", () => { [...waiting].forEach(fill); theme("light"); });
  addEventListener("afterprint", () => theme(wanted()));
  theme(wanted());
  waiting.forEach((host) => observer.observe(host));
})();
