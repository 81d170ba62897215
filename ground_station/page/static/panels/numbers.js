// The large numbers: readable from the last row.
import { element, say } from "../lib/dom.js";
import { heading, number } from "../lib/format.js";

const NO_WORDS = "";

export const panel = {
  name: "numbers",
  title: "Flight",
  view: "ship",
  mount(box, page) {
    const altitude = page.value({ label: "altitude", unit: "m", large: true });
    const wanted = element("small", { class: "beside" });
    altitude.root.append(wanted);
    const speed = page.value({ label: "speed", unit: "m/s", large: true });
    const climb = page.value({ label: "climb", unit: "m/s" });
    const yaw = page.value({ label: "heading", unit: "°" });
    const battery = page.value({ label: "battery", unit: "V" });
    const left = page.value({ label: "time left", unit: "min" });
    const heavy = page.value({ label: "heaviness", unit: "g" });
    const trip = page.value({ label: "queue to loop", unit: "ms" });
    const all = [altitude, speed, climb, yaw, battery, left, heavy, trip];
    const failsafe = element("p", { class: "failsafe", role: "status", hidden: true });
    box.append(element("div", { class: "numbers-grid" }, ...all.map((one) => one.root)), failsafe);
    return {
      hear(kind, content) {
        if (kind === "latency") trip.set(number(content.ms, 1), 0);
        if (kind !== "state") return;
        const { ages } = content;
        const [north, east, down] = content.velocity_ned_mps;
        const down_m = content.target_ned_m[2];
        altitude.set(number(content.altitude_m, 2), ages.altitude_m);
        say(wanted, down_m === null ? NO_WORDS : `of ${number(-down_m, 1)}`);
        speed.set(number(Math.hypot(north, east), 2), ages.velocity_ned_mps);
        climb.set(number(-down, 2), ages.velocity_ned_mps);
        yaw.set(String(heading(content.attitude_rad.yaw)), ages.attitude_rad);
        battery.set(number(content.battery_v, 2), ages.battery_v);
        left.set(minutes(content.battery_left_s), ages.battery_v);
        const heavy_g = content.heaviness_kg === null ? null : 1000 * content.heaviness_kg;
        heavy.set(number(heavy_g, 1), ages.heaviness_kg);
        failsafe.hidden = !content.failsafe;
        say(failsafe, content.failsafe ? `FAILSAFE: ${content.failsafe}` : NO_WORDS);
      },
    };
  },
};

function minutes(seconds) {
  return seconds === null || seconds === undefined ? "–" : number(seconds / 60, 0);
}
