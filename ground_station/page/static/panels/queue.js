// The queue room: what waits, runs and was given up, and the workers. From `api/queue`, every 2 s.
import { element, say } from "../lib/dom.js";
import { age, number } from "../lib/format.js";
import { table } from "../lib/table.js";

const LOOK_MS = 2000;
const NOTE =
  "A command that is revoked while it runs is no longer followed; the ship goes on with what it has accepted. A dead letter that is requeued is the command that it was: over its time to live, it expires.";

export const panel = {
  name: "queue",
  title: "Queues, workers and dead letters",
  view: "queue",
  mount(box, page) {
    return new QueueRoom(box, page);
  },
};

class QueueRoom {
  constructor(box, page) {
    this.page = page;
    this.rates = new Map();
    this.fresh = page.value({ testid: "queue-age", label: "answer of" });
    this.queues = table("Queues", ["ship", "waiting", "in flight", "scheduled", "dead", "oldest waits"]);
    this.workers = table("Workers", ["worker", "process", "up", "threads", "memory", "processor", "tasks a second", "tasks"]);
    this.active = table("Running now", ["task", "arguments", "id", ""]);
    this.dead = table("Dead letters: messages that were given up", ["task", "why", "deliveries", "from", "id", ""]);
    this.revoked = element("input", { name: "task-id", size: "36", "aria-label": "id of the task to revoke", "data-commands": "" });
    box.append(
      element("div", { class: "row" }, this.fresh.root),
      this.queues.root,
      this.workers.root,
      this.active.root,
      element(
        "form",
        { class: "row acts", on: { submit: (event) => this.submit(event) } },
        element("label", {}, element("span", {}, "id of a task, sent or not"), this.revoked),
        element("button", { type: "submit", "data-commands": "", "data-testid": "queue-revoke" }, "Revoke"),
      ),
      this.dead.root,
      element("p", { class: "note" }, NOTE),
    );
    this.look();
    this.timer = setInterval(() => this.look(), LOOK_MS);
  }

  async look() {
    if (this.isAsking) return;
    this.isAsking = true;
    try {
      const found = await this.page.get(this.path("api/queue"));
      if (found.queues) this.show(found);
      else say(this.fresh.text, found.reason ?? "no answer");
    } catch {
      // Its age says it.
    } finally {
      this.isAsking = false;
    }
  }

  path(path) {
    return `${path}?vehicle=${encodeURIComponent(this.page.vehicle)}`;
  }

  show(found) {
    this.fresh.set("the broker and the workers", 0);
    this.queues.fill(
      Object.entries(found.queues).map(([name, one]) => [
        one.paused ? `${name}, paused` : name,
        one.ready,
        one.in_flight,
        one.scheduled,
        one.dead,
        one.oldest_age_s === null ? "none waits" : age(one.oldest_age_s),
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
        totals(one.total),
      ]),
      "No worker answers",
    );
    const active = Object.values(found.workers).flatMap((one) => one.active);
    this.active.fill(
      active.map((one) => [one.name, one.arguments, one.id, this.button("revoke", one.id, "Revoke")]),
      "Nothing runs",
    );
    this.dead.fill(
      found.dead.map((one) => [
        one.task || "unreadable",
        one.reason,
        one.deliveries,
        one.blimp_source || "–",
        one.id || one.letter,
        element("span", { class: "row" }, this.button("requeue", one.letter, "Requeue"), this.button("drop", one.letter, "Drop")),
      ]),
      "None",
    );
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

  button(action, id, text) {
    return element(
      "button",
      { type: "button", "data-commands": "", "data-testid": `queue-${action}-${id}`, on: { click: () => this.act(action, id) } },
      text,
    );
  }

  submit(event) {
    event.preventDefault();
    const id = this.revoked.value.trim();
    if (id) return this.act("revoke", id);
    say(document.getElementById("said"), "revoke: not sent: no id");
    this.revoked.focus();
  }

  async act(action, id) {
    const said = document.getElementById("said");
    say(said, `${action}: sent`);
    const outcome = await this.page.post(this.path(`api/queue/${action}`), { id });
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

function totals(total) {
  const entries = Object.entries(total).sort((a, b) => b[1] - a[1]);
  return entries.map(([name, count]) => `${name.replace(/^blimp\./, "")} ${count}`).join(", ") || "none yet";
}
