// The way of the commands, stage by stage, with the milliseconds of the last one; below it the last
// commands as a waterfall. Each message is a dot, slowed down: the way itself takes a few milliseconds.
// One that waits stands in a queue, one that ends without success falls, and those whose worker died
// go back to the queue.
import { element, say } from "../lib/dom.js";
import { isSuperseded, milliseconds, number, reason } from "../lib/format.js";

const STAGES = ["keyboard", "queue", "worker", "mailbox", "flight", "motor"];
const TITLES = { flight: "flight loop" };
const STEP_S = 0.25; // of a dot, from one stage to the next
const FADE_S = 3; // of one that has arrived or fallen, as page.css has it
const MOST_DOTS = 24;
const PILE = 5; // higher they stand in each other
const FINAL = ["SUCCESS", "FAILURE", "REFUSED", "EXPIRED", "INTERRUPTED", "REVOKED", "IGNORED", "REJECTED"];
const ROWS = 8;
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
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
    this.dots = new Map();
    this.what = element("p", { class: "what" }, "No command yet");
    this.way = element("ol", { class: "way" }, ...this.stations.map((one) => one.root));
    this.rail = element("div", { class: "rail" }, this.way);
    const track = element("div", { class: "track", "data-testid": "journey" }, this.what, this.rail);
    this.list = element("ol", { class: "waterfall", "aria-label": "the last commands" });
    const legend = STAGES.slice(1).map((stage) => element("li", {}, element("span", { class: `bar ${stage}` }), `to ${TITLES[stage] ?? stage}`));
    Object.assign(box, { tabIndex: 0, role: "group", ariaLabel: "the last command and those before" }); // it may scroll
    box.append(track, element("ul", { class: "legend", "aria-label": "colours of the bars" }, ...legend), this.list);
  }

  hear(kind, content) {
    if (kind === "question") return this.follow(content, "small");
    if (kind === "commands") {
      this.commands = new Map(content.map((one) => [one.id, one]));
    } else if (kind === "command") {
      this.commands.set(content.id, content);
      this.follow(content, "");
      while (this.commands.size > 3 * ROWS) this.commands.delete(this.commands.keys().next().value);
    } else {
      if (kind === "down") this.markDown(content);
      return;
    }
    this.show();
  }

  /** Give a message a dot, or its dot the next place. */
  follow(message, size) {
    const isOver = FINAL.includes(message.state);
    let dot = this.dots.get(message.id);
    if (!dot) {
      if (isOver && message.done_ms === null) return;
      while (this.dots.size >= MOST_DOTS) this.drop(this.dots.keys().next().value);
      const root = element("span", { class: `dot ${size}`, "aria-hidden": "true" });
      this.rail.append(root);
      dot = { root, place: 0 };
      this.dots.set(message.id, dot);
    }
    dot.goal = Math.max(0, ...STAGES.map((stage, index) => (message.stages[stage] === undefined ? 0 : index)));
    dot.isOver = isOver;
    dot.isBad = isOver && isBad(message);
  }

  drop(id) {
    this.dots.get(id).root.remove();
    this.dots.delete(id);
  }

  /** A stage whose process was killed, or that nobody reaches, says so; then, for a while, that it runs. */
  markDown(stages) {
    if (stages.includes("worker")) {
      const queue = STAGES.indexOf("queue");
      for (const dot of this.dots.values()) if (!dot.isOver) dot.goal = Math.min(dot.goal, queue);
    }
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
    const passed = STAGES.map((stage) => last.stages[stage] !== undefined);
    const goal = Math.max(0, passed.lastIndexOf(true));
    const isRefused = isBad(last);
    this.stations.forEach((one, index) => {
      one.root.classList.toggle("passed", passed[index]);
      one.root.classList.toggle("refused", isRefused && index === goal);
      say(one.time, index === 0 && passed[0] ? "sent" : milliseconds(last.stages[one.stage]));
    });
    say(this.what, `${words(last)}: ${ending(last)}`);
    this.list.replaceChildren(...all.slice(-ROWS).reverse().map((one) => this.row(one, all)));
  }

  /** Show no command: a recording has gone back to before the first. */
  forget() {
    for (const id of this.dots.keys()) this.drop(id);
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
    const step = CALM.matches ? Infinity : stepS / STEP_S;
    const waiting = STAGES.map(() => 0);
    for (const [id, dot] of this.dots) {
      dot.place += Math.max(-step, Math.min(step, dot.goal - dot.place));
      const isThere = dot.place === dot.goal;
      if (isThere && dot.isOver) {
        dot.endS ??= nowS;
        dot.root.classList.add(dot.isBad ? "refused" : "done");
        if (nowS - dot.endS > FADE_S) this.drop(id);
      }
      const pile = isThere && !dot.isOver ? Math.min(PILE, waiting[dot.goal]++) : 0;
      dot.root.style.left = `${(100 * (dot.place + 0.5)) / STAGES.length}%`;
      dot.root.style.setProperty("--pile", pile);
    }
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
