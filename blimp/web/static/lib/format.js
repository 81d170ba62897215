// Numbers as a person reads them. What is not known is "–", never 0.

const MINUS = "−";

/** A number with so many decimals. */
export function number(value, decimals = 1) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const text = value.toFixed(decimals);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", MINUS);
}

/** An age: "0.4 s", "12 s", "3 min". */
export function age(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  return `${(seconds / 60).toFixed(0)} min`;
}

/** A time since a beginning: "1:02.3", minutes and seconds. */
export function clock(seconds) {
  const tenths = Math.round(10 * seconds);
  return `${Math.floor(tenths / 600)}:${((tenths % 600) / 10).toFixed(1).padStart(4, "0")}`;
}

/** Milliseconds of a stage. */
export function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return value < 9.95 ? `${value.toFixed(1)} ms` : `${value.toFixed(0)} ms`;
}

/** Why a command ended, without the ids of others: they say nothing to a person. */
export function reason(text) {
  return text.replace(/ [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "");
}

/** Has a newer command taken its place? That is no failure. */
export const isSuperseded = (text) => Boolean(text?.startsWith("superseded by "));

/** Radians as degrees of a compass, 0 to 359. */
export function heading(radians) {
  return ((Math.round((radians * 180) / Math.PI) % 360) + 360) % 360;
}

/** A wind as the weather says it: how strong, and from where. */
export function wind(ned_mps) {
  if (!ned_mps) return "–";
  const [north, east] = ned_mps;
  return `${number(Math.hypot(north, east), 2)} m/s from ${heading(Math.atan2(-east, -north))}°`;
}

export const degrees = (radians) => (radians * 180) / Math.PI;

/** A moment, of an ISO text or of milliseconds, in this machine's time: "2026-11-28 17:20:05". */
export function moment(at) {
  const time = new Date(at);
  if (at === "" || Number.isNaN(time.getTime())) return "–";
  return new Date(time - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 19).replace("T", " ");
}
