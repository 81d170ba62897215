// Dark or light, for a dark room or a bright one: as the system prefers, until the switch is pressed.
import { element, say } from "./dom.js";

const KEY = "blimp-theme";
const OTHER = { dark: "light", light: "dark" };
const system = matchMedia("(prefers-color-scheme: light)");

/** Choose the theme, and return the button that switches it. changed: called after each change. */
export function themeSwitch(changed = () => {}) {
  const root = document.documentElement;
  const button = element("button", { type: "button", id: "theme", "data-testid": "theme" });
  const set = () => {
    root.dataset.theme = kept() ?? (system.matches ? "light" : "dark");
    say(button, root.dataset.theme === "dark" ? "Light" : "Dark");
    button.setAttribute("aria-label", `${button.textContent} colours`);
  };
  const change = () => {
    set();
    changed();
  };
  button.addEventListener("click", () => {
    keep(OTHER[root.dataset.theme]);
    change();
  });
  system.addEventListener("change", change);
  set();
  return button;
}

/** The colour of that name in base.css, in the theme that is shown. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

let chosen = null; // for a browser that keeps nothing

function kept() {
  try {
    return localStorage.getItem(KEY) ?? chosen;
  } catch {
    return chosen;
  }
}

function keep(theme) {
  chosen = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // For this page only, then.
  }
}
