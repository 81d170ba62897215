// The way of the last command, stage by stage, with the milliseconds of each; below it the last
// commands as a waterfall. The dot is slowed down: the way itself takes a few milliseconds.
import { element, say } from "../lib/dom.js";
import { isSuperseded, milliseconds, number, reason } from "../lib/format.js";

const STAGES = ["keyboard", "queue", "worker", "mailbox", "flight", "motor"];
const TITLES = { flight: "flight loop" };
const STEP_S = 0.25; // of the dot, from one stage to the next
const ROWS = 8;
const LEAST_MS = 20; // the waterfall's width at least

export const panel = {
  name: "journey",
  title: "The command’s journey",
  views: ["present", "pilot"],
  mount(box, page) {
    const journey = new Journey(box);
    return journey;
  },
};

class Journey {
  constructor(box) {
    this.commands = new Map();
    this.stations = STAGES.map((stage) => {
      const time = element("span", { class: "time" }, "–");
      const root = element(
        "li",
        { class: "station" },
        element("span", { class: "knot" }),
        element("span", { class: "name" }, TITLES[stage] ?? stage),
        time,
        element("span", { class: "life", role: "status" }),
      );
      return { stage, root, time };
    });
    this.dot = element("span", { class: "dot", "aria-hidden": "true" });
    this.what = element("p", { class: "what" }, "No command yet");
    this.way = element("ol", { class: "way" }, ...this.stations.map((one) => one.root));
    const track = element("div", { class: "track", "data-testid": "journey" }, this.what, element("div", { class: "rail" }, this.way, this.dot));
    this.list = element("ol", { class: "waterfall", "aria-label": "the last commands" });
    const legend = STAGES.slice(1).map((stage) => element("li", {}, element("span", { class: `bar ${stage}` }), `to ${TITLES[stage] ?? stage}`));
    Object.assign(box, { tabIndex: 0, role: "group", ariaLabel: "the last command and those before" }); // it may scroll
    box.append(track, element("ul", { class: "legend", "aria-label": "colours of the bars" }, ...legend), this.list);
    this.place = 0;
    this.goal = 0;
  }

  hear(kind, content) {
    if (kind === "commands") {
      this.commands = new Map(content.map((one) => [one.id, one]));
    } else if (kind === "command") {
      this.commands.set(content.id, content);
      while (this.commands.size > 3 * ROWS) this.commands.delete(this.commands.keys().next().value);
    } else {
      if (kind === "down") this.markDown(content);
      return;
    }
    this.show();
  }

  /** A stage whose process was killed, or that nobody reaches, says so; then, for a while, that it runs. */
  markDown(stages) {
    for (const { stage, root } of this.stations) {
      const isDown = stages.includes(stage);
      // Motors run once the ship is armed, and not because their process does.
      const runs = root.classList.contains("down") && !isDown && stage !== "motor";
      root.classList.toggle("down", isDown);
      root.classList.toggle("returned", runs);
      say(root.querySelector(".life"), isDown ? "✗ down" : runs ? "✓ runs" : "");
    }
  }

  show() {
    const all = [...this.commands.values()];
    const last = all.at(-1);
    if (!last) return this.forget();
    if (this.id !== last.id) {
      this.id = last.id;
      this.place = 0;
    }
    const passed = STAGES.map((stage) => last.stages[stage] !== undefined);
    this.goal = Math.max(0, passed.lastIndexOf(true));
    const isRefused = isBad(last);
    this.dot.classList.toggle("refused", isRefused);
    this.stations.forEach((one, index) => {
      one.root.classList.toggle("passed", passed[index]);
      one.root.classList.toggle("refused", isRefused && index === this.goal);
      say(one.time, index === 0 && passed[0] ? "sent" : milliseconds(last.stages[one.stage]));
    });
    say(this.what, `${words(last)}: ${ending(last)}`);
    this.list.replaceChildren(...all.slice(-ROWS).reverse().map((one) => this.row(one, all)));
  }

  /** Show no command: a recording has gone back to before the first. */
  forget() {
    this.id = undefined;
    this.place = this.goal = 0;
    say(this.what, "No command yet");
    this.list.replaceChildren();
    for (const { root, time } of this.stations) {
      root.classList.remove("passed", "refused");
      say(time, milliseconds(null));
    }
  }

  /** One command as bars, from sending to the motor, on a scale that all rows share. */
  row(command, all) {
    const longest = Math.max(LEAST_MS, ...all.slice(-ROWS).map((one) => lastStage(one)));
    const bars = STAGES.slice(1).map((stage, index) => {
      const from = command.stages[STAGES[index]];
      const to = command.stages[stage];
      if (from === undefined || to === undefined) return "";
      const bar = element("span", { class: `bar ${stage}`, title: `${stage}: ${milliseconds(to - from)}` });
      bar.style.left = `${(100 * from) / longest}%`;
      bar.style.width = `${(100 * Math.max(0.3, to - from)) / longest}%`;
      return bar;
    });
    return element(
      "li",
      { class: isBad(command) ? "bad" : "" },
      element("span", { class: "words" }, words(command)),
      element("span", { class: "bars" }, ...bars),
      element("span", { class: "end" }, ending(command)),
    );
  }

  draw(nowS) {
    const stepS = Math.min(0.1, nowS - (this.drawnS ?? nowS));
    this.drawnS = nowS;
    if (this.place < this.goal) this.place = Math.min(this.goal, this.place + stepS / STEP_S);
    const left = (100 * (this.place + 0.5)) / STAGES.length;
    this.dot.style.left = `${left}%`;
    this.dot.hidden = this.id === undefined;
  }
}

function isBad({ state, reason }) {
  return !["SUCCESS", "PROGRESS", "STARTED", "QUEUED"].includes(state) && !isSuperseded(reason);
}

function lastStage(command) {
  return Math.max(0, ...Object.values(command.stages));
}

function words(command) {
  const values = Object.values(command.arguments).filter((one) => typeof one !== "object");
  const texts = values.map((one) => (typeof one === "number" ? number(one, 1).replace(/\.0$/, "") : String(one)));
  return [command.command, ...texts].join(" ");
}

function ending(command) {
  const { state, stages, fraction } = command;
  const time = stages.flight === undefined ? "" : `on board after ${milliseconds(stages.flight)}`;
  if (state === "SUCCESS") return ["done", time].filter(Boolean).join(", ");
  if (state === "PROGRESS" && stages.flight !== undefined) {
    return [`${number(100 * (fraction ?? 0), 0)} %`, reason(command.reason ?? ""), time].filter(Boolean).join(", ");
  }
  if (["QUEUED", "STARTED", "PROGRESS"].includes(state)) return "on its way";
  if (isSuperseded(command.reason)) return reason(command.reason);
  return [state.toLowerCase(), reason(command.reason ?? "")].filter(Boolean).join(": ");
}
