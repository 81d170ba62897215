// Queues and their rates, workers, failures, dead letters and schedules; from `api/queue`, every 2 s. It
// stands on the queue's own page and on a ship's: `actions` in the answer says what may be done on which.
import { element, say } from "../lib/dom.js";
import { age, moment, number } from "../lib/format.js";
import { refused } from "../lib/connection.js";
import { table } from "../lib/table.js";

const LOOK_MS = 2000;
const SHIP_NOTE =
  "A command that is revoked while it runs is no longer followed; the ship goes on with what it has accepted. A dead letter that is requeued is the command that it was: over its time to live, it expires.";
const NOTE =
  "A dead letter that is requeued is the message that it was: over its time to live, it expires. A task that is sent again has a new id; its callbacks are not sent. Of a paused queue workers get emergencies and nothing else.";
const KEPT_S = 300; // of rates
const ENDS = { succeeded: ["SUCCESS"], failed: ["FAILURE", "REFUSED", "INTERRUPTED"] }; // for good
const VARIES = /[0-9a-f-]{8,}|\d+(\.\d+)?/g; // in the reasons of equal failures: ids, times, numbers
const past = []; // answers as [t_s, tasks ended, waiting], kept whichever view is open
const FIELDS = ["state", "place", "arguments", "result", "error", "reason", "queue", "worker", "retries", "ended"];

export const panel = {
  name: "queue",
  title: "Queues, workers and failures",
  views: ["queue"],
  mount(box, page) {
    return new QueueRoom(box, page);
  },
};

class QueueRoom {
  constructor(box, page) {
    this.page = page;
    this.box = box;
    this.rates = new Map();
    this.fresh = page.value({ testid: "queue-age", label: "answer of" });
    this.id = element("input", { name: "task-id", size: "36", maxlength: "100", "aria-label": "id of a task" });
    this.task = element("section", { class: "task", "data-testid": "queue-task", tabindex: "-1", hidden: true });
    const revoke = element("button", { type: "button", class: "acts", "data-commands": "", "data-testid": "queue-revoke" }, "Revoke");
    revoke.addEventListener("click", () => this.withId("revoke", (id) => this.act("revoke", id)));
    box.append(
      element("div", { class: "row" }, this.fresh.root),
      element(
        "form",
        { class: "row search", on: { submit: (event) => this.submit(event) } },
        element("label", {}, element("span", {}, "id of a task, sent or not"), this.id),
        element("button", { type: "submit", "data-testid": "queue-find" }, "Find"),
        revoke,
      ),
      this.task,
    );
    this.look();
    this.timer = setInterval(() => this.look(), LOOK_MS);
  }

  /** Make the tables, once it is known what may be done. */
  make(actions) {
    this.actions = new Set(actions);
    const [queue, acts] = this.page.isQueueOnly ? ["queue", [""]] : ["ship", []];
    this.queues = table("Queues", [queue, "waiting", "in flight", "scheduled", "dead", "oldest waits", ...acts]);
    this.workers = table("Workers", ["worker", "process", "up", "threads", "memory", "processor", "tasks a second"]);
    this.active = table("Running now", ["task", "arguments", "id", ""]);
    this.tasks = table("Tasks, since their workers began", ["task", "received", ...Object.keys(ENDS)]);
    this.failures = table("Failures: tasks that failed for good, the newest of those that are equal", ["task", "times", "ended", "why", "arguments", "id", ""]);
    this.dead = table("Dead letters: messages that were given up", ["task", "why", "deliveries", "from", "id", ""]);
    this.schedules = table("Schedules", ["task", "schedule", "last", "next", ""]);
    this.unique = table("Claims of unique tasks: the same is not sent meanwhile", ["task", "id", "queue", "for"]);
    if (!this.actions.has("run-schedule")) this.schedules.root.hidden = true;
    this.lines = { ended: new Line("tasks ended a second"), waiting: new Line("waiting") };
    this.box.append(element("div", { class: "row rates" }, ...Object.values(this.lines).map((one) => one.root)));
    for (const one of [this.queues, this.workers, this.tasks, this.active, this.failures, this.dead, this.schedules, this.unique]) this.box.append(one.root);
    this.box.append(element("p", { class: "note" }, this.page.isQueueOnly ? NOTE : SHIP_NOTE));
  }

  async look() {
    if (this.isAsking) return;
    this.isAsking = true;
    let lost = "";
    try {
      const found = await this.page.get(this.path("api/queue"));
      if (found.queues) this.show(found);
      else lost = refused() ? `This browser is not signed in: ${refused()}.` : (found.reason ?? "no answer");
    } catch {
      lost = "This page's server does not answer.";
    } finally {
      this.isAsking = false;
    }
    if (this.page.queueLost) this.page.queueLost(lost);
    else if (lost) say(this.fresh.text, lost);
  }

  path(path, query = {}) {
    return `${path}?${new URLSearchParams({ vehicle: this.page.vehicle, ...query })}`;
  }

  show(found) {
    if (!this.actions) this.make(found.actions);
    this.page.queueFound?.(found);
    this.fresh.set("the broker and the workers", 0);
    const queueActs = (name, one) => [
      this.row(one.paused ? this.button("resume", name, "Resume") : this.button("pause", name, "Pause"), this.button("purge", name, "Purge")),
    ];
    this.queues.fill(
      Object.entries(found.queues).map(([name, one]) => [
        one.paused ? `${name}, paused` : name,
        one.ready,
        one.in_flight,
        one.scheduled,
        one.dead,
        one.oldest_age_s === null ? "none waits" : age(one.oldest_age_s),
        ...(this.page.isQueueOnly ? queueActs(name, one) : []),
      ]),
      "No queue yet",
    );
    this.workers.fill(
      Object.entries(found.workers).map(([name, one]) => [
        name,
        one.pid,
        age(one.uptime_s),
        one.threads,
        `${number(one.memory_mb, 0)} MB`,
        `${number(one.cpu_s, 1)} s`,
        this.rate(name, one, found.t_s),
      ]),
      "No worker answers",
    );
    this.tasks.fill(tasks(Object.values(found.workers)), "None yet");
    this.showRates(found);
    const active = Object.values(found.workers).flatMap((one) => one.active);
    this.active.fill(
      active.map((one) => [one.name, one.arguments, one.id, this.row(this.button("revoke", one.id, "Revoke"))]),
      "Nothing runs",
    );
    this.failures.fill(
      equal(found.failures).map(([one, times]) => [
        one.task || "–",
        times,
        moment(one.done),
        why(one),
        one.arguments,
        one.id,
        this.row(this.shower(one.id), one.may_retry ? this.button("retry", one.id, "Send again") : ""),
      ]),
      found.trouble || "None",
    );
    this.dead.fill(
      found.dead.map((one) => [
        one.task || "unreadable",
        one.reason,
        one.deliveries,
        one.blimp_source || "–",
        one.id || one.letter,
        this.row(
          this.button("requeue", one.letter, "Requeue", { queue: one.queue }),
          this.button("drop", one.letter, "Drop", { queue: one.queue }),
        ),
      ]),
      "None",
    );
    this.schedules.fill(
      found.schedules.map((one) => [
        one.name,
        one.schedule,
        one.last_s === null ? "none yet" : moment(one.last_s * 1000),
        one.is_paused ? "paused" : moment(one.next_s * 1000),
        this.row(
          this.button("run-schedule", one.name, "Run now"),
          one.is_paused ? this.button("resume-schedule", one.name, "Resume") : this.button("pause-schedule", one.name, "Pause"),
        ),
      ]),
      "No task has a schedule",
    );
    this.unique.root.hidden = !found.unique.length;
    this.unique.fill(found.unique.map((one) => [one.task, one.id, one.queue, one.left_s === null ? "its task" : age(one.left_s)]));
    this.page.able();
  }

  /** Tasks a second since the last look. */
  rate(name, worker, t_s) {
    const done = Object.values(worker.total).reduce((sum, one) => sum + one, 0);
    const before = this.rates.get(name);
    if (!before || before.pid !== worker.pid || t_s > before.t_s) this.rates.set(name, { pid: worker.pid, done, t_s, rate: rateOf(before, worker.pid, done, t_s) });
    const { rate } = this.rates.get(name);
    return Number.isFinite(rate) ? number(rate, 1) : "being counted …";
  }

  /** Draw what was since the page was opened; a worker that began anew begins at 0. */
  showRates(found) {
    if (past.length && found.t_s <= past.at(-1)[0]) return;
    const counts = Object.values(found.workers).flatMap((one) => Object.values(one.total));
    const waiting = Object.values(found.queues).reduce((sum, one) => sum + one.ready, 0);
    past.push([found.t_s, counts.reduce((sum, one) => sum + one, 0), waiting]);
    while (past[0][0] < found.t_s - KEPT_S) past.shift();
    const rates = past.slice(1).map(([t_s, done], index) => [t_s, Math.max(0, done - past[index][1]) / (t_s - past[index][0])]);
    this.lines.ended.show(rates, found.t_s);
    this.lines.waiting.show(past.map(([t_s, , waits]) => [t_s, waits]), found.t_s);
  }

  row(...buttons) {
    return element("span", { class: "row" }, ...buttons);
  }

  /** A button for an action on `id`; nothing if this page has no such action. */
  button(action, id, text, more = {}) {
    if (!this.actions.has(action)) return "";
    return element(
      "button",
      { type: "button", "data-commands": "", "data-testid": `queue-${action}-${id}`, on: { click: () => this.act(action, id, more) } },
      text,
    );
  }

  shower(id) {
    return element("button", { type: "button", "data-testid": `queue-show-${id}`, on: { click: () => this.find(id) } }, "Show");
  }

  submit(event) {
    event.preventDefault();
    return this.withId("find", (id) => this.find(id));
  }

  withId(action, use) {
    const id = this.id.value.trim();
    if (id) return use(id);
    say(document.getElementById("said"), `${action}: not sent: no id`);
    this.id.focus();
  }

  /** Show all that is known of a task, its traceback included. */
  async find(id) {
    const said = document.getElementById("said");
    say(said, `find ${id}: asked`);
    const found = await this.page.get(this.path("api/queue/task", { id })).catch(() => ({ reason: "this page's server does not answer" }));
    if (!found.id) return say(said, `find ${id}: ${found.reason}`);
    say(said, "");
    const words = { ...found, ended: found.done && moment(found.done), retries: found.retries || "" };
    this.task.replaceChildren(
      element("h3", {}, `${found.task || "task"} ${found.id}`),
      element("dl", {}, ...FIELDS.filter((one) => words[one]).flatMap((one) => [element("dt", {}, one), element("dd", {}, words[one])])),
      found.traceback ? element("pre", { tabindex: "0", role: "group", "aria-label": "traceback" }, found.traceback) : "",
      element("button", { type: "button", on: { click: () => (this.task.hidden = true) } }, "Close"),
    );
    this.task.hidden = false;
    this.task.focus();
  }

  async act(action, id, more = {}) {
    const said = document.getElementById("said");
    if (this.isActing || (action === "purge" && !confirm(`Drop all that waits in ${id}? Who waits for it waits for ever.`))) return;
    this.isActing = true; // a second click must not send a task twice
    say(said, `${action}: sent`);
    const outcome = await this.page.post(this.path(`api/queue/${action}`), { id, ...more });
    this.isActing = false;
    const words = outcome.state === "SUCCESS" ? (outcome.result ?? "done") : `${outcome.state}: ${outcome.reason}`;
    say(said, `${action} ${id}: ${words}`);
    await this.look();
  }

  close() {
    clearInterval(this.timer);
  }
}

function rateOf(before, pid, done, t_s) {
  return before && before.pid === pid && t_s > before.t_s ? (done - before.done) / (t_s - before.t_s) : NaN;
}

/** A number over the last five minutes: a line, the newest, and the most. */
class Line {
  constructor(title) {
    this.title = title;
    this.words = element("figcaption");
    const namespace = "http://www.w3.org/2000/svg";
    const picture = document.createElementNS(namespace, "svg");
    this.line = picture.appendChild(document.createElementNS(namespace, "polyline"));
    picture.setAttribute("viewBox", "0 0 100 20");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true");
    this.root = element("figure", {}, this.words, picture);
  }

  show(values, now_s) {
    const most = Math.max(0, ...values.map(([, value]) => value));
    const points = values.map(([t_s, value]) => [100 - (100 * (now_s - t_s)) / KEPT_S, 19 - (18 * value) / (most || 1)]);
    this.line.setAttribute("points", points.map((one) => one.join(",")).join(" "));
    say(this.words, `${this.title}: ${number(values.at(-1)?.[1], 1)}, at most ${number(most, 1)} in ${KEPT_S / 60} min`);
  }
}

/** What became of the tasks of all workers, those received most first. */
function tasks(workers) {
  const received = new Map();
  for (const [name, count] of workers.flatMap((one) => Object.entries(one.total))) {
    received.set(name, (received.get(name) ?? 0) + count);
  }
  const ended = (name, states) => workers.flatMap((one) => states.map((state) => one.ended[name]?.[state] ?? 0)).reduce((sum, one) => sum + one, 0);
  const rows = [...received].sort((a, b) => b[1] - a[1]);
  return rows.map(([name, count]) => [name, count, ...Object.values(ENDS).map((states) => ended(name, states))]);
}

const why = (one) => `${one.error || one.state}: ${one.reason}`;

/** The newest of the failures that are equal but for ids and numbers, and how many there are. */
function equal(failures) {
  const found = new Map();
  for (const one of failures) {
    const key = `${one.task}\n${why(one).replace(VARIES, "#")}`;
    found.set(key, [found.get(key)?.[0] ?? one, (found.get(key)?.[1] ?? 0) + 1]);
  }
  return [...found.values()];
}
