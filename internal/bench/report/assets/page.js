"use strict";
// The page reads without this script. It lets readers choose the theme, hide a
// series by its name in the legend, and print all that is folded.
(() => {
  const root = document.documentElement;

  // Names in a legend are buttons, for the keyboard too.
  for (const key of document.querySelectorAll("svg .key")) {
    const name = key.classList[1];
    key.setAttribute("role", "button");
    key.setAttribute("tabindex", "0");
    key.setAttribute("aria-pressed", "true");
    const press = () => {
      const on = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", String(on));
      for (const mark of key.closest("svg").querySelectorAll(`.${name}:not(.key)`)) mark.style.display = on ? "" : "none";
    };
    key.addEventListener("click", press);
    key.addEventListener("keydown", (e) => {
      if (e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      press();
    });
  }

  const setTheme = (name) => {
    if (name) root.dataset.theme = name;
    else delete root.dataset.theme;
  };
  const themes = { "": "as the system's", light: "light", dark: "dark" };
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    setTheme(next);
    theme.textContent = "theme: " + themes[next];
  });

  // Paper is white, and has every row.
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    setTheme("light");
    before.closed.forEach((d) => (d.open = true));
  });
  addEventListener("afterprint", () => {
    setTheme(before.theme);
    before.closed.forEach((d) => (d.open = false));
  });
})();
