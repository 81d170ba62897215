// Flying by hand: a gamepad, or the keyboard. The sticks are sent 20 times a second while one is
// pushed; the newest wins. Who lets go, looks away or loses the gamepad leaves a ship that holds.
import { element, say } from "../lib/dom.js";
import { number } from "../lib/format.js";

const PERIOD_MS = 50;
const DEAD = 0.12; // of a gamepad's stick, around its middle
const MODES = { STABILIZE: "push it, heading kept", ALTHOLD: "push it, height kept", VELOCITY: "a speed over ground", MANUAL: "each motor" };
const STICKS = ["forward", "right", "up", "turn"];
const SPEED_MPS = { speed: 0.3, climb: 0.2, descent: 0.2 }; // of a ship whose shape is not known
// Keys by their place on the keyboard, not by their letter; what each adds to a stick.
const KEYS = {
  KeyW: ["forward", 1], KeyS: ["forward", -1], KeyD: ["turn", 1], KeyA: ["turn", -1],
  KeyE: ["right", 1], KeyQ: ["right", -1], ArrowUp: ["up", 1], ArrowDown: ["up", -1],
  ArrowRight: ["turn", 1], ArrowLeft: ["turn", -1],
};

export const panel = {
  name: "joystick",
  title: "By hand",
  views: ["pilot"],
  mount(box, page) {
    return new Joystick(box, page);
  },
};

class Joystick {
  constructor(box, page) {
    this.page = page;
    this.isTaken = false;
    this.grip = "";
    this.mine = new Set();
    this.keys = new Set();
    this.padIndex = null;
    this.mode = element(
      "select",
      { name: "joystick-mode", "data-testid": "joystick-mode", "data-commands": "", on: { change: () => this.letGo("") } },
      ...Object.entries(MODES).map(([mode, words]) => element("option", { value: mode }, `${mode}: ${words}`)),
    );
    this.button = element(
      "button",
      {
        type: "button",
        "aria-pressed": "false",
        "data-testid": "joystick-take",
        "data-commands": "",
        on: { click: () => (this.isTaken ? this.letGo("") : this.take()) },
      },
      "Take the sticks",
    );
    this.pads = STICKS.map((stick) => {
      const mark = element("span", { class: "mark" });
      const text = element("span", { class: "figure" });
      return { stick, mark, text, root: element("div", { class: "stick" }, element("span", {}, stick), element("span", { class: "groove" }, mark), text) };
    });
    this.words = element("p", { class: "joystick-words", role: "status", "data-testid": "joystick-words" });
    box.append(
      element("div", { class: "row" }, element("label", {}, element("span", {}, "mode"), this.mode), this.button),
      element("div", { class: "sticks" }, ...this.pads.map((one) => one.root)),
      this.words,
    );
    this.ending = new AbortController();
    const { signal } = this.ending;
    window.addEventListener("keydown", (event) => this.press(event), { signal });
    window.addEventListener("keyup", (event) => this.keys.delete(event.code), { signal });
    window.addEventListener("blur", () => this.letGo("The window lost the focus: the ship holds."), { signal });
    document.addEventListener("visibilitychange", () => this.letGo("The page is hidden: the ship holds."), { signal });
    window.addEventListener("gamepaddisconnected", () => this.padLost(), { signal });
    this.timer = setInterval(() => this.send(), PERIOD_MS);
    this.explain("");
    page.able();
  }

  take() {
    this.isTaken = true;
    this.button.setAttribute("aria-pressed", "true");
    say(this.button, "Let go");
    this.explain("");
  }

  /** End it; a ship that was flown holds. why: what to say, where there was something to end. */
  letGo(why) {
    if (!this.isTaken) return;
    this.release();
    this.isTaken = false;
    this.padIndex = null;
    this.keys.clear();
    this.button.setAttribute("aria-pressed", "false");
    say(this.button, "Take the sticks");
    this.explain(why);
    this.show(null);
  }

  release() {
    if (this.grip) this.page.ask("sticks", { grip: this.grip, mode: this.mode.value, release: true });
    this.grip = "";
  }

  padLost() {
    if (this.padIndex !== null && !this.pad()) this.letGo("The gamepad is gone: the ship holds.");
  }

  press(event) {
    if (!this.isTaken || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.code === "Escape") return this.letGo("");
    if (!KEYS[event.code] || ["INPUT", "SELECT"].includes(event.target.tagName)) return;
    event.preventDefault();
    this.keys.add(event.code);
  }

  /** The gamepad whose sticks were used last; any that is pushed now, if there was none. */
  pad() {
    const pads = [...(navigator.getGamepads?.() ?? [])].filter((one) => one?.connected);
    if (this.padIndex !== null) return pads.find((one) => one.index === this.padIndex) ?? null;
    return pads.find((one) => one.axes.some((axis) => Math.abs(axis) > DEAD)) ?? null;
  }

  /** Where the sticks are, -1 to 1, or null if none is pushed. */
  sticks() {
    const found = Object.fromEntries(STICKS.map((stick) => [stick, 0]));
    const pad = this.pad();
    if (this.padIndex !== null && !pad) return this.padLost() ?? null;
    if (pad) {
      this.padIndex = pad.index;
      const [turn, up, right, forward] = pad.axes.map(live);
      Object.assign(found, { turn, up: -up, right: right ?? 0, forward: -(forward ?? 0) });
    }
    for (const code of this.keys) {
      const [stick, value] = KEYS[code];
      found[stick] = Math.max(-1, Math.min(1, found[stick] + value));
    }
    return STICKS.some((stick) => found[stick]) ? found : null;
  }

  send() {
    if (!this.isTaken) return;
    if (this.page.isLost || !this.page.mayCommand) return this.letGo("No link: the ship goes by its own rules.");
    const sticks = this.sticks();
    if (!this.isTaken) return;
    this.show(sticks);
    if (!sticks) return this.release();
    const values = this.values(sticks);
    if (!values) return this.letGo("MANUAL needs the ship’s shape, which is known on its own machine only.");
    if (!this.grip) {
      this.grip = Math.random().toString(36).slice(2);
      this.mine.add(this.grip);
    }
    this.page.ask("sticks", { grip: this.grip, mode: this.mode.value, values });
  }

  /** What the ship is asked for, in the arguments of its commands. */
  values({ forward, right, up, turn }) {
    if (this.mode.value === "VELOCITY") {
      const limits = this.page.about.airframe?.limits;
      const yaw = this.page.state.attitude_rad.yaw;
      const top = limits?.speed_mps ?? SPEED_MPS.speed;
      const speed = top / Math.max(1, Math.hypot(forward, right));
      return {
        north_mps: speed * (forward * Math.cos(yaw) - right * Math.sin(yaw)),
        east_mps: speed * (forward * Math.sin(yaw) + right * Math.cos(yaw)),
        up_mps: up * (up > 0 ? (limits?.climb_mps ?? SPEED_MPS.climb) : (limits?.descent_mps ?? SPEED_MPS.descent)),
      };
    }
    if (this.mode.value !== "MANUAL") {
      return {
        forward_percent: 100 * forward,
        right_percent: 100 * right,
        up_percent: 100 * up,
        turn_percent: 100 * turn,
      };
    }
    const thrusters = this.page.about.airframe?.thruster;
    return thrusters && Object.fromEntries(thrusters.map((one) => [one.name, throttle(one, { forward, right, up, turn })]));
  }

  hear(kind, content) {
    if (kind !== "joystick") return;
    if (!this.mine.has(content.grip)) {
      if (content.flying) this.letGo("");
      this.explain(content.flying ? "It is flown by hand from another window." : "");
    } else if (!content.flying) {
      if (content.grip === this.grip) this.grip = "";
      if (content.reason) this.letGo(`Let go: ${content.reason}.`);
    }
  }

  explain(why) {
    const how = this.isTaken
      ? "A gamepad’s sticks, or W S forward, A D turn, Q E sideways, ↑ ↓ climb. Nothing pushed: the ship holds. Esc lets go."
      : "A gamepad or the keyboard flies it; with nothing pushed it holds.";
    say(this.words, [why, how].filter(Boolean).join(" "));
  }

  show(sticks) {
    for (const { stick, mark, text } of this.pads) {
      const value = sticks?.[stick] ?? 0;
      mark.style.left = `${50 + 50 * value}%`;
      mark.classList.toggle("pushed", value !== 0);
      say(text, value ? `${number(100 * value, 0)} %` : "0 %");
    }
  }

  close() {
    this.letGo("");
    this.ending.abort();
    clearInterval(this.timer);
  }
}

/** A stick without its slack middle. */
function live(axis) {
  return Math.abs(axis) <= DEAD ? 0 : (Math.sign(axis) * (Math.min(1, Math.abs(axis)) - DEAD)) / (1 - DEAD);
}

/** The share of one motor, %: as far as its thrust points where the sticks do, and turns that way. */
function throttle(thruster, { forward, right, up, turn }) {
  const [x, y, z] = thruster.axis;
  const [ahead, aside] = thruster.position_m;
  const turns = Math.sign(Math.round(1e3 * (ahead * y - aside * x)));
  const share = forward * x + right * y - up * z + turn * turns;
  return 100 * Math.max(-1, Math.min(1, share));
}
