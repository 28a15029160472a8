// Light, dark, or as the system has it. A classic script in the head: it must run before anything is painted.
(() => {
  const NAMES = { auto: "Auto", light: "Light", dark: "Dark" };
  const ORDER = Object.keys(NAMES);

  const kept = () => {
    try { return localStorage.getItem("ridgerank-theme"); } catch { return null; } // storage may be forbidden
  };
  const keep = (theme) => {
    try { localStorage.setItem("ridgerank-theme", theme); } catch { /* lasts as long as the page, then */ }
  };
  const apply = (theme) => { document.documentElement.dataset.theme = theme; };

  const first = kept();
  apply(first in NAMES ? first : "auto");

  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => {
      const theme = document.documentElement.dataset.theme;
      document.getElementById("theme-name").textContent = NAMES[theme];
      button.setAttribute("aria-label", `Theme: ${NAMES[theme]}`);
      button.title = "Light, dark, or as the system has it";
    };
    button.addEventListener("click", () => {
      const now = document.documentElement.dataset.theme;
      const next = ORDER[(ORDER.indexOf(now) + 1) % ORDER.length];
      apply(next);
      keep(next);
      show();
    });
    show();
  });
})();
