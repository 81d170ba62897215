// Every shown value carries the age of its source, which grows here, without the server's help:
// grey after 1 s, hatched and with its age after 3.5 s, never silently frozen.
import { age as ageText } from "./format.js";
import { element, say } from "./dom.js";

export const STALE_S = 1.0;
export const OLD_S = 3.5;
const TICK_MS = 100;

const now = () => performance.now() / 1000;
const values = new Set();

/** One value on the page. `set(text, ageS)` shows it; it ages by itself from then on. */
export class Value {
  constructor({ testid, label, unit = "", large = false }) {
    this.text = element("output", { class: "number" }, "–");
    this.mark = element("small", { class: "age", "aria-hidden": "true" });
    this.root = element(
      "div",
      { class: large ? "value large" : "value", "data-testid": testid, role: "group", "aria-label": label },
      element("span", { class: "label", "aria-hidden": "true" }, label),
      this.text,
      unit ? element("span", { class: "unit" }, unit) : "",
      this.mark,
    );
    this.since = now();
    values.add(this);
    this.tick();
  }

  set(text, ageS) {
    say(this.text, text);
    this.root.classList.remove("unknown");
    this.since = now() - ageS;
    this.tick();
  }

  /** Say why there is no number, in its place. */
  setUnknown(why, ageS) {
    this.set(why, ageS);
    this.root.classList.add("unknown");
  }

  /** Show no age beside it: it is an age itself. */
  get ageS() {
    return now() - this.since;
  }

  tick() {
    const ageS = this.ageS;
    this.root.dataset.ageS = ageS.toFixed(2);
    this.root.classList.toggle("stale", ageS >= STALE_S);
    this.root.classList.toggle("old", ageS >= OLD_S);
    say(this.mark, ageS >= OLD_S ? `${ageText(ageS)} old` : "");
    this.ticked?.(ageS);
  }
}

setInterval(() => {
  for (const value of values) {
    if (value.root.isConnected) value.tick();
  }
}, TICK_MS);
