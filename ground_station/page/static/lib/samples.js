// What the plots show: the last two minutes, kept whichever view is open.
import { degrees } from "./format.js";

const KEPT_S = 120;

export class Samples {
  constructor() {
    this.clear();
  }

  clear() {
    this.rows = [];
    this.marks = [];
    this.latency = [];
    this.seen = new Map();
    this.wrong = []; // in force, so marked already
    this.beganS = undefined;
  }

  hear(kind, content) {
    if (kind === "state") this.add(content);
    else if (kind === "trail") this.clear(); // another place in a recording, or heard again
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
    this.beganS ??= state.t_s;
    this.rows.push({ t_s: state.t_s, boot_id: state.boot_id, values: valuesOf(state) });
    const outvoted = state.votes.filter((one) => !one.agrees).map((one) => `${one.sensor} outvoted`);
    const wrong = [...new Set([state.failsafe, ...outvoted])].filter(Boolean);
    for (const one of wrong.filter((text) => !this.wrong.includes(text))) this.mark(one, true);
    this.wrong = wrong;
    const oldest = state.t_s - KEPT_S;
    while (this.rows[0].t_s < oldest) this.rows.shift();
    this.marks = this.marks.filter((one) => one.t_s >= oldest);
    this.latency = this.latency.filter(([t_s]) => t_s >= oldest);
  }

  /** Put in front what was before this page was opened. */
  fill(states) {
    const { rows, marks, wrong } = this;
    const isBefore = ({ boot_id, t_s }) => !rows.length || (boot_id === rows[0].boot_id && t_s < rows[0].t_s);
    Object.assign(this, { rows: [], marks: [], wrong: [], beganS: undefined });
    for (const one of states.filter(isBefore)) this.add(one);
    this.rows.push(...rows);
    this.marks.push(...marks);
    this.beganS ??= rows[0]?.t_s;
    if (rows.length) this.wrong = wrong;
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

/** The numbers of a state, by the names that they have in the plots and in the table. */
function valuesOf(state) {
  const [north, east, down] = state.velocity_ned_mps;
  const values = {
    altitude: state.altitude_m,
    set: state.target_ned_m[2] === null ? null : -state.target_ned_m[2],
    speed: Math.hypot(north, east),
    climb: -down,
    wind: state.wind_ned_mps && Math.hypot(...state.wind_ned_mps.slice(0, 2)),
    roll: degrees(state.attitude_rad.roll),
    pitch: degrees(state.attitude_rad.pitch),
    heading: (degrees(state.attitude_rad.yaw) + 360) % 360,
    battery: state.battery_v,
    mean: state.step_ms.mean ?? null,
    p99: state.step_ms.p99 ?? null,
  };
  for (const [name, value] of Object.entries(state.actuators)) {
    values[name] = state.servos.includes(name) ? degrees(value) : 100 * value;
  }
  for (const { of, sensor, off_m } of state.votes) values[`${of}: ${sensor}`] = off_m;
  return values;
}
