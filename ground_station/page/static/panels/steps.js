// The first flight, step by step, on a phone: what is next, and which button that is.
import { element, say } from "../lib/dom.js";
import { number } from "../lib/format.js";

const NEAR_M = 0.3; // of the pad
const STEPS = ["Arm", "Take off", "Hover", "Land"];
const COMING_DOWN = ["LAND", "DESCEND", "RTL"];

export class Steps {
  /** buttons: of the commands, by name. */
  constructor(box, buttons) {
    this.buttons = buttons;
    this.hasHovered = false;
    this.list = STEPS.map((one) => element("li", {}, one));
    this.words = element("p", { "data-testid": "step", "aria-live": "polite" });
    box.append(element("div", { class: "steps" }, element("ol", { "aria-label": "first flight" }, ...this.list), this.words));
  }

  take(state) {
    const { at, next, words } = step(state, this.hasHovered);
    this.hasHovered = state.armed && (this.hasHovered || at === 2);
    for (const [k, item] of this.list.entries()) {
      item.classList.toggle("done", k < at);
      if (k === at) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    }
    for (const [name, button] of Object.entries(this.buttons)) button.classList.toggle("next", name === next);
    say(this.words, words);
  }
}

function step({ killed, armed, mode, altitude_m: height_m, active_command: active }, hasHovered) {
  if (killed) return { at: 0, next: "", words: "Stopped. Look at the ship first; Arm lets its motors turn again." };
  if (!armed) return { at: 0, next: "arm", words: "Nobody near the propellers? Then Arm." };
  const isUp = height_m > NEAR_M;
  if (COMING_DOWN.includes(mode)) return { at: 3, next: "", words: isUp ? "It comes down." : "Down: it disarms by itself." };
  // A command is under way until the ship says that it is done.
  if (active) return { at: hasHovered ? 2 : 1, next: "", words: `On its way, at ${number(height_m, 1)} m: wait, or Hold.` };
  if (!isUp) return { at: 1, next: "takeoff", words: "Armed. Take off climbs to the altitude below, and stays there." };
  return { at: 2, next: "land", words: `It hovers at ${number(height_m, 1)} m. Land, or press on the map where it is to go.` };
}
