// Harm to a simulated ship, and what the ship did about it. Only for an operator, in the demo and with
// `ground page --chaos`: elsewhere the server refuses, and there is nothing to see here. The room votes
// for the next fault; its counts stand on the operator's buttons.
import { element, say } from "../lib/dom.js";
import { age } from "../lib/format.js";

const PROCESSES = [
  ["kill-worker", "Kill the worker"],
  ["kill-flight", "Kill the flight process"],
  ["stop-broker", "Stop the broker"],
  ["cut-link", "Cut the link"],
  ["blind-position", "Blind the position"],
  ["hold-ship", "Hold the ship still"],
  ["let-go", "Let go of the ship"],
];
const SENSOR = [
  ["blind-sensor", "Blind it"],
  ["freeze-sensor", "Freeze it"],
  ["lie-sensor", "Lie with it"],
];
const AIR = [
  ["gust", "Gust from ahead", "m/s"],
  ["heat", "Heat the air", "K"],
  ["leak", "Leak", "g of lift"],
];
const FIRST_SHARE = 0.5; // of the limit: what stands in a field at first
const SHOWN = 6;

// Of the page, and not of the panel: another view is opened while an action goes on.
const reports = element("ol", { class: "chaos-reports", "data-testid": "chaos-reports", "aria-live": "polite" });

export const panel = {
  name: "chaos",
  title: "Chaos: harm to the simulated ship",
  views: ["present"],
  mount(box, page) {
    const section = box.closest("section");
    section.hidden = true;
    let made = null;
    return {
      hear(kind, content) {
        if (kind === "votes") return made?.count(content);
        if (kind !== "hello") return;
        const { about, may_command, votable } = content;
        section.hidden = !(about.chaos && (may_command || votable.length));
        if (section.hidden) return;
        if (made) return made.greetAgain();
        made = may_command ? new Chaos(box, page) : new Ballot(box, page, votable);
        if (!may_command) say(section.querySelector("h2"), "Vote: which fault is next?");
      },
    };
  },
};

/** How many want each fault next, on its button. */
function showCounts(buttons, counts) {
  for (const [name, button] of buttons) {
    const badge = button.querySelector(".votes") ?? button.appendChild(element("span", { class: "votes" }));
    badge.hidden = !counts[name];
    say(badge, counts[name] ? ` ${counts[name]}` : "");
  }
}

/** What a viewer may do: vote, again and again, and only the last vote counts. */
class Ballot {
  constructor(box, page, names) {
    const titles = Object.fromEntries(PROCESSES);
    const vote = (name) => {
      page.ask("vote", { action: name });
      this.mark(name);
    };
    this.buttons = new Map(
      names.map((name) => [name, element("button", { type: "button", "data-testid": `vote-${name}`, on: { click: () => vote(name) } }, titles[name])]),
    );
    this.mark("");
    box.append(element("div", { class: "row" }, ...this.buttons.values()));
  }

  mark(name) {
    for (const [one, button] of this.buttons) button.setAttribute("aria-pressed", String(one === name));
  }

  /** A fault begins a new round, in which nobody has voted. */
  count({ round, counts }) {
    if (round !== (this.round ?? round)) this.mark("");
    this.round = round;
    showCounts(this.buttons, counts);
  }

  /** A new connection has no vote. */
  greetAgain() {
    this.mark("");
  }
}

class Chaos {
  constructor(box, page) {
    this.page = page;
    this.offers = {};
    this.fields = {};
    this.caps = {};
    this.buttons = new Map();
    this.sensor = element("select", { "aria-label": "which sensor", "data-testid": "chaos-sensor", on: { change: () => this.limit() } });
    this.reports = reports;
    this.empty = element("p", { class: "note" }, "Each is undone by itself, but for a leak and a ship that is held. What the ship did about it stands here.");
    const row = (...children) => element("div", { class: "row" }, ...children);
    box.append(
      element(
        "div",
        { class: "chaos-acts" },
        row(...PROCESSES.map(([name, text]) => this.button(name, text)), this.button("replay-command", "Replay a command")),
        row(
          element("label", {}, element("span", {}, "a sensor"), this.sensor),
          ...SENSOR.map(([name, text]) => this.button(name, text, () => ({ device: this.sensor.value }))),
        ),
        element("div", { class: "row chaos-air" }, ...AIR.map((one) => this.amount(...one))),
      ),
      element("div", { class: "chaos-done" }, this.empty, this.reports),
    );
    this.empty.hidden = reports.children.length > 0;
    this.limit();
    this.ask();
  }

  count({ counts }) {
    showCounts(this.buttons, counts);
  }

  greetAgain() {}

  /** Ask for limits and sensors; they change with the wind that blows and the gas that is left. */
  async ask() {
    try {
      const { offers, reason } = await this.page.get("api/chaos");
      if (!offers) return say(this.empty, reason ?? "no answer");
      this.offers = Object.fromEntries(offers.map((one) => [one.name, one]));
    } catch {
      return; // the link's age says it
    }
    const names = [...new Set(SENSOR.flatMap(([name]) => this.offers[name]?.devices ?? []))];
    const chosen = this.sensor.value || names.find((one) => one === "baro");
    this.sensor.replaceChildren(...names.map((one) => element("option", { value: one, selected: one === chosen }, one)));
    const flight = this.buttons.get("kill-flight");
    if (this.offers["kill-flight"]?.why) flight.title = this.offers["kill-flight"].why;
    for (const [name] of AIR) this.cap(this.offers[name]);
    this.limit();
  }

  amount(name, text, unit) {
    const field = element("input", {
      type: "number", min: 0, step: "any", "data-testid": `chaos-${name}-amount`, "data-commands": "",
      "aria-label": `${text}, ${unit}`,
    });
    this.fields[name] = field;
    const cap = element("small", { class: "cap", "data-testid": `chaos-${name}-cap` }, "asks for its limit …");
    this.caps[name] = cap;
    return element(
      "div",
      { class: "chaos-amount" },
      element("span", { class: "row" }, field, element("span", { class: "unit" }, unit), this.button(name, text, () => ({ amount: Number(field.value) }))),
      cap,
    );
  }

  cap({ name, most, unit, why }) {
    const field = this.fields[name];
    field.max = most;
    if (!field.value) field.value = Number((FIRST_SHARE * most).toPrecision(2));
    if (Number(field.value) > most) field.value = most;
    say(this.caps[name], `0 to ${most} ${unit}: ${why}`);
    this.caps[name].title = this.caps[name].textContent;
  }

  /** A sensor cannot fail in every way. */
  limit() {
    for (const [name] of AIR) this.buttons.get(name).dataset.off = this.offers[name]?.most > 0 ? "" : "yes";
    for (const [name] of SENSOR) {
      this.buttons.get(name).dataset.off = this.offers[name]?.devices?.includes(this.sensor.value) ? "" : "yes";
    }
    this.page.able();
  }

  button(name, text, content = () => ({})) {
    const made = element(
      "button",
      { type: "button", "data-testid": `chaos-${name}`, "data-commands": "", on: { click: () => this.act(name, text, content()) } },
      text,
    );
    this.buttons.set(name, made);
    return made;
  }

  async act(name, text, content) {
    this.busy("yes");
    const what = content.device ? `${text}: ${content.device}` : text;
    const entry = element("li", {}, element("strong", {}, what), element("span", { class: "back" }, "goes on …"));
    this.reports.prepend(entry);
    while (this.reports.children.length > SHOWN) this.reports.lastChild.remove();
    this.empty.hidden = true;
    const outcome = await this.page.post(`api/chaos/${name}`, content);
    entry.replaceChildren(element("strong", {}, what), ...words(outcome));
    this.busy("");
    await this.ask();
  }

  busy(text) {
    for (const one of this.buttons.values()) one.dataset.busy = text;
    this.page.able();
  }
}

/** What the server says of it, as terminal, caption and end card do; and what the ship reported. */
function words({ state, reason, result }) {
  if (state !== "SUCCESS") return [element("span", { class: "back bad" }, `${state}: ${reason}`)];
  const { back_ms, seen, lost, sentence } = result;
  const did = seen.map(({ after_ms, text }) => element("li", {}, element("span", { class: "after" }, age(after_ms / 1000)), ` ${text}`));
  return [
    element("span", { class: back_ms === null || lost ? "back bad" : "back" }, sentence),
    element("ul", { "aria-label": "what the ship did" }, ...(did.length ? did : [element("li", {}, "the ship reported nothing")])),
  ];
}
