// The ship on the bench: motors one by one, the airframe's check, the computer's, and its parameters.
import { element, say } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { table } from "../lib/table.js";

const MARK = { ok: "✓", warning: "!", error: "✗" };
const PERCENT = 15;
const SETTING = "The airframe’s numbers, as it flies. A ship that is disarmed takes a new one if it can fly with it, and keeps it. A mission sets speed, geofence and ceiling for its own flight.";
const SECONDS = 1;
const DOCTOR = [
  "This computer can fly a ship.",
  "A ship with real chips would not fly from this computer: see ✗ below. A simulated one needs none of it.",
];

export const panel = {
  name: "setup",
  title: "Setup, on the bench",
  views: ["setup"],
  mount(box, page) {
    return new Setup(box, page);
  },
};

class Setup {
  constructor(box, page) {
    this.page = page;
    this.motors = element("div", { class: "row", "data-testid": "setup-motors" });
    this.off = element("input", { type: "checkbox", id: "props-off", "data-testid": "setup-props-off", on: { change: () => this.able() } });
    this.percent = element("input", { type: "number", min: -100, max: 100, value: PERCENT, "aria-label": "throttle, percent" });
    this.answer = element("p", { class: "note", role: "status", "data-testid": "setup-answer" }, "Tick first that the propellers are off. The flight process turns a motor only if it was started with --bench, and is disarmed.");
    this.checks = table("What was found", ["state", "check", "found", "cure"]);
    this.filter = element("input", { type: "search", placeholder: "speed, battery …", "data-testid": "setup-find", on: { input: () => this.show() } });
    this.found = table("All parameters", ["parameter", "value", "unit", "limits", ""]);
    this.wanted = element("input", { type: "text", inputmode: "decimal", "aria-labelledby": "setup-name", "data-testid": "setup-value" });
    this.name = element("span", { id: "setup-name" });
    this.set = element("button", { type: "submit", "data-commands": "", "data-testid": "setup-set" }, "Set");
    this.form = element("form", { class: "row acts", hidden: true, on: { submit: (event) => this.submit(event) } }, element("label", {}, this.name, this.wanted), this.set);
    this.setAnswer = element("p", { class: "note", role: "status", "data-testid": "setup-set-answer" }, SETTING);
    this.parameters = [];
    this.thrusters = [];
    const run = (name, text) =>
      element("button", { type: "button", "data-testid": `setup-${name}`, "data-controls": "", on: { click: (event) => this.run(name, event.target) } }, text);
    this.status = element("p", { class: "note", role: "status", "data-testid": "setup-status" }, "Neither moves anything.");
    box.append(
      element("h3", {}, "Motor test"),
      element("div", { class: "row acts middle" }, element("label", { class: "tick", for: "props-off" }, this.off, element("span", {}, "the propellers are off")), this.percent, element("span", { class: "unit" }, `% for ${SECONDS} s`)),
      this.motors,
      this.answer,
      element("h3", {}, "Checks"),
      element("div", { class: "row acts" }, run("check", "Check the airframe"), run("doctor", "Run doctor")),
      this.status,
      this.checks.root,
      element("h3", {}, "Parameters"),
      element("div", { class: "row" }, element("label", {}, element("span", {}, "find"), this.filter)),
      this.form,
      this.setAnswer,
      this.found.root,
    );
    this.checks.root.hidden = true;
    this.ask();
    this.timer = setInterval(() => this.able(), 200);
  }

  hear(kind) {
    if (kind === "hello") this.addMotors();
  }

  addMotors() {
    const names = this.page.about.airframe?.thruster.map((one) => one.name) ?? this.thrusters;
    const button = (name) =>
      element("button", { type: "button", "data-testid": `setup-motor-${name}`, "data-commands": "", on: { click: () => this.turn(name) } }, `Turn ${name}`);
    this.motors.replaceChildren(...names.map(button));
    this.able();
  }

  /** Nothing turns while propellers may be on, or while it is armed. */
  able() {
    const isDisarmed = this.page.state && !this.page.state.armed;
    for (const one of this.motors.children) one.dataset.off = this.off.checked && isDisarmed ? "" : "yes";
    this.set.dataset.off = isDisarmed && this.chosen ? "" : "yes";
    this.page.able();
  }

  async turn(name) {
    const percent = Number(this.percent.value);
    say(this.answer, `${name}: ${percent} % …`);
    const outcome = await this.page.command("motor", { name, percent, seconds: SECONDS });
    say(this.answer, outcome.state === "SUCCESS" ? `${name} was driven at ${percent} % for ${SECONDS} s: did it turn the right way?` : `${name}: ${outcome.state}: ${outcome.reason}`);
  }

  async run(name, button) {
    const ship = encodeURIComponent(this.page.vehicle);
    button.dataset.busy = "yes";
    this.page.able();
    say(this.status, `${button.textContent}: goes on …`);
    const { state, reason, result } = await this.page.post(`api/setup/${name}?vehicle=${ship}`);
    button.dataset.busy = "";
    if (state !== "SUCCESS") return say(this.status, `${name}: ${reason}`);
    const rows = name === "check" ? figures(result) : result.findings.map((one) => [`${MARK[one.state] ?? ""} ${one.state}`, one.check, one.found, one.cure]);
    const words = name === "check" ? ["It can fly.", "Flying is refused as it is: see below."] : DOCTOR;
    say(this.status, result.ok ? words[0] : words[1]);
    this.checks.root.hidden = false;
    this.checks.fill(rows, "nothing");
  }

  async ask() {
    try {
      const { parameters, motors, reason } = await this.page.get(`api/setup?vehicle=${encodeURIComponent(this.page.vehicle)}`);
      this.parameters = parameters;
      this.thrusters = motors;
      this.addMotors();
      this.show(reason);
    } catch {
      // The age of the link says it already.
    }
  }

  show(none = "") {
    const words = this.filter.value.toLowerCase().split(/\s+/);
    const rows = this.parameters
      .map((one) => [`${one.section}.${one.name}`, String(one.value), one.unit, one.limits, this.chooser(one)])
      .filter(([name]) => words.every((word) => name.includes(word)));
    this.found.fill(rows, none || "no parameter has such a name");
  }

  chooser(one) {
    const path = `${one.section}.${one.name}`;
    return element("button", { type: "button", "data-testid": `setup-choose-${path}`, "aria-label": `Set ${path}`, on: { click: () => this.choose(path, one) } }, "Set …");
  }

  choose(path, one) {
    this.chosen = path;
    say(this.name, `${path}, ${one.limits} ${one.unit}`.trim());
    this.wanted.value = one.value;
    this.form.hidden = false;
    say(this.setAnswer, SETTING);
    this.able();
    this.wanted.focus();
  }

  async submit(event) {
    event.preventDefault();
    const name = this.chosen;
    const value = Number(this.wanted.value.trim().replace(",", ".") || NaN);
    if (Number.isNaN(value)) return say(this.setAnswer, `${name}: ${this.wanted.value || "nothing"} is no number`);
    say(this.setAnswer, `${name}: being set …`);
    this.set.dataset.busy = "yes";
    this.page.able();
    const { state, reason, result } = await this.page.command("param", { name, value });
    this.set.dataset.busy = "";
    const warned = result?.warnings?.length ? ` Mind: ${result.warnings.join("; ")}.` : "";
    say(this.setAnswer, state === "SUCCESS" ? `${name} is ${value}, and the ship flies with it.${warned}` : `${name}: ${state}: ${reason}`);
    await this.ask();
  }

  close() {
    clearInterval(this.timer);
  }
}

/** The airframe's report as rows like those of doctor. */
function figures({ errors, warnings, max_wind_mps, ballast_g, thrust_margin, swing_hz, static_lift_n }) {
  const found = [
    ["holds wind", `${number(max_wind_mps, 2)} m/s, nose into it`],
    ["to float", `${number(Math.abs(ballast_g), 1)} g ${ballast_g > 0 ? "more" : "less"}`],
    ["lift", `${number(static_lift_n, 3)} N at home`],
    ["thrust margin", thrust_margin === null ? "unbounded" : `${number(thrust_margin, 1)} times what its limits take`],
    ["swing", `${number(swing_hz, 3)} Hz`],
  ];
  return [
    ...errors.map((text) => [`${MARK.error} error`, "airframe", text, ""]),
    ...warnings.map((text) => [`${MARK.warning} warning`, "airframe", text, ""]),
    ...(max_wind_mps === null ? [] : found.map(([name, text]) => [MARK.ok, name, text, ""])),
  ];
}
