// A recording: play and pause, the place in it, the speed, and marks of what happened. Without a
// recording there is nothing to see of it. What a person asks for goes to the server, which plays.
import { element, say } from "../lib/dom.js";
import { clock, number } from "../lib/format.js";

const SPEEDS = [0.5, 1, 2, 5, 20];
const HELD_MS = 400; // after the slider was moved: what the server still says is older
const AT_S = 0.05;

export const panel = {
  name: "replay",
  mount(_, page) {
    return new Replay(page);
  },
};

class Replay {
  constructor(page) {
    this.page = page;
    this.marks = [];
    this.position_s = 0;
    this.speed = 0;
    this.heldMs = -Infinity;
  }

  hear(kind, content) {
    if (kind === "hello" && !content.is_live) this.greet(content);
    else if (kind === "recording") this.open(content);
    else if (kind === "replay") this.take(content);
  }

  greet({ role }) {
    if (!this.root) this.make();
    for (const one of this.root.querySelectorAll("button, input, select")) one.disabled = role !== "operator";
    this.page.ask("begin");
  }

  make() {
    const button = (name, text, click) =>
      element("button", { type: "button", "data-testid": `replay-${name}`, on: { click } }, text);
    this.button = button("play", "Play", () => this.play(this.speed ? 0 : this.chosen));
    this.slider = element("input", {
      type: "range", min: 0, max: 1, step: "any", value: 0, "aria-label": "place in the recording",
      "data-testid": "replay-slider", on: { input: () => this.seek(Number(this.slider.value)) },
    });
    this.ticks = element("div", { class: "ticks", "aria-hidden": "true" });
    this.time = element("output", { class: "number", "data-testid": "replay-time" }, "–");
    this.choice = element("select", {
      "data-testid": "replay-speed", on: { change: () => this.speed && this.play(this.chosen) },
    });
    this.offer(SPEEDS, 1);
    this.words = element("p", { class: "mark-words", "data-testid": "replay-mark" });
    this.name = element("span", { class: "file" });
    this.root = element(
      "section",
      { id: "replay", "data-testid": "replay", "aria-label": "recording" },
      this.button,
      button("before", "◀ mark", () => this.step(-1)),
      button("after", "mark ▶", () => this.step(1)),
      element("div", { class: "slider" }, this.ticks, this.slider),
      this.time,
      element("label", {}, "speed", this.choice),
      element("div", { class: "about" }, this.words, this.name),
    );
    document.getElementById("panels").after(this.root);
  }

  open({ name, started, duration_s, speed, marks }) {
    this.duration_s = duration_s;
    this.marks = marks;
    this.slider.max = duration_s;
    say(this.name, `${name}, ${started.slice(0, 16).replace("T", " ")} UTC`);
    this.offer(SPEEDS.includes(speed) || !speed ? SPEEDS : [...SPEEDS, speed].sort((a, b) => a - b), speed || 1);
    const ticks = marks.map(({ t_s, is_fault }) => {
      const tick = element("span", { class: is_fault ? "fault" : "" });
      tick.style.left = `${(100 * t_s) / duration_s}%`;
      return tick;
    });
    this.ticks.replaceChildren(...ticks);
    this.show();
  }

  take({ position_s, speed }) {
    if (speed && speed !== this.speed && [...this.choice.options].some((one) => Number(one.value) === speed)) {
      this.choice.value = speed;
    }
    this.speed = speed;
    say(this.button, speed ? "Pause" : "Play");
    if (performance.now() - this.heldMs < HELD_MS) return;
    this.position_s = position_s;
    this.slider.value = position_s;
    this.show();
  }

  get chosen() {
    return Number(this.choice.value);
  }

  offer(speeds, chosen) {
    this.choice.replaceChildren(
      ...speeds.map((one) => element("option", { value: one, selected: one === chosen }, `${one}×`)),
    );
  }

  play(speed) {
    this.page.ask("play", { speed });
  }

  seek(t_s) {
    this.heldMs = performance.now();
    this.position_s = t_s;
    this.slider.value = t_s;
    this.page.ask("seek", { t_s });
    this.show();
  }

  /** Go to the next mark, or to the one before. */
  step(direction) {
    const here = this.position_s;
    const found =
      direction > 0
        ? this.marks.find(({ t_s }) => t_s > here + AT_S)
        : this.marks.findLast(({ t_s }) => t_s < here - AT_S - this.speed); // one just passed is not it
    if (found) this.seek(found.t_s);
  }

  show() {
    if (this.duration_s === undefined) return;
    const text = `${clock(this.position_s)} of ${clock(this.duration_s)}`;
    say(this.time, text);
    this.slider.setAttribute("aria-valuetext", text);
    const last = this.marks.findLast(({ t_s }) => t_s <= this.position_s + AT_S);
    const sinceS = last && this.position_s - last.t_s;
    say(this.words, last ? `${last.is_fault ? "⚠ " : ""}${last.text}, ${number(Math.max(0, sinceS), 1)} s ago` : "");
  }
}
