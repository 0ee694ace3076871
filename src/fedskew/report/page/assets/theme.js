"use strict";
/* Before anything is shown: the theme chosen last, or the system's. */
const theme = {
  system: matchMedia("(prefers-color-scheme: dark)"),
  chosen: (() => { try { return localStorage.getItem("fedskew-theme"); } catch { return null; } })(),
  get wanted() { return this.chosen || (this.system.matches ? "dark" : "light"); },
  choose(name) {
    this.chosen = name;
    try { localStorage.setItem("fedskew-theme", name); } catch { /* a page opened from a file may have no storage */ }
  },
  show(name) { document.documentElement.dataset.theme = name; },
};
theme.show(theme.wanted);
