// What the plots show, kept whichever view is open.
import { degrees } from "./format.js";

const KEPT_S = 120;

/** The last two minutes, kept whichever view is shown. */
export class Samples {
  constructor() {
    this.rows = [];
    this.marks = [];
    this.latency = [];
    this.seen = new Map();
  }

  hear(kind, content) {
    if (kind === "state") this.add(content);
    else if (kind === "latency") this.latency.push([this.nowS, content.ms]);
    else if (kind === "command") this.noteCommand(content);
  }

  get nowS() {
    return this.rows.at(-1)?.t_s ?? 0;
  }

  add(state) {
    const last = this.rows.at(-1);
    if (last && (state.boot_id !== last.boot_id || state.t_s < last.t_s)) this.clear();
    if (last && state.t_s === last.t_s) return;
    const values = {
      actual: state.altitude_m,
      set: state.target_ned_m[2] === null ? null : -state.target_ned_m[2],
      roll: degrees(state.attitude_rad.roll),
      pitch: degrees(state.attitude_rad.pitch),
      heading: (degrees(state.attitude_rad.yaw) + 360) % 360,
      mean: state.step_ms.mean ?? null,
      p99: state.step_ms.p99 ?? null,
    };
    for (const [name, value] of Object.entries(state.actuators)) {
      values[name] = state.servos.includes(name) ? degrees(value) : 100 * value;
    }
    this.beganS ??= state.t_s;
    this.rows.push({ t_s: state.t_s, boot_id: state.boot_id, values });
    if (state.failsafe && state.failsafe !== this.failsafe) this.mark(state.failsafe, true);
    this.failsafe = state.failsafe;
    const oldest = state.t_s - KEPT_S;
    while (this.rows[0].t_s < oldest) this.rows.shift();
    this.marks = this.marks.filter((one) => one.t_s >= oldest);
    this.latency = this.latency.filter(([t_s]) => t_s >= oldest);
  }

  noteCommand(command) {
    if (command.stages.flight !== undefined && !this.seen.has(command.id)) {
      this.seen.set(command.id, true);
      this.mark(command.command, false);
      this.latency.push([this.nowS, command.stages.flight]);
    }
  }

  mark(text, isFault) {
    this.marks.push({ t_s: this.nowS, text, isFault });
  }

  clear() {
    this.rows = [];
    this.marks = [];
    this.latency = [];
    this.seen = new Map();
    this.beganS = undefined;
  }

  columns(names, title) {
    const sinceS = (t_s) => t_s - this.beganS;
    if (title.startsWith("queue")) {
      return [this.latency.map(([t_s]) => sinceS(t_s)), this.latency.map(([, ms]) => ms)];
    }
    return [
      this.rows.map((one) => sinceS(one.t_s)),
      ...names.map((name) => this.rows.map((one) => one.values[name] ?? null)),
    ];
  }

  csv() {
    const names = Object.keys(this.rows.at(-1)?.values ?? {});
    const lines = this.rows.map(({ t_s, values }) => [t_s, ...names.map((name) => values[name] ?? "")].join(","));
    return [["t_s", ...names].join(","), ...lines].join("\n");
  }
}
