// The large numbers: readable from the last row.
import { element, say } from "../lib/dom.js";
import { OLD_S } from "../lib/freshness.js";
import { heading, number, wind as windWords } from "../lib/format.js";

const NO_WORDS = "";
const FULL_V = 4.2; // of a lithium cell
const SMOOTH_S = 20;

export const panel = {
  name: "numbers",
  title: "Flight",
  views: ["present", "pilot"],
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
    const wind = page.value({ testid: "wind", label: "wind, estimated" });
    const six = [altitude, speed, battery, left, trip, wind];
    const all = page.view.name === "present" ? six : [altitude, speed, climb, yaw, battery, left, heavy, wind, trip];
    const supply = new Supply();
    let shown_ms = null;
    // Until a command or a ping has gone that way nothing is silent: it has no age.
    const noTrip = () => trip.setUnknown("no command lately", 0);
    trip.ticked = (ageS) => {
      if (ageS >= OLD_S) noTrip();
    };
    noTrip();
    const failsafe = element("p", { class: "failsafe", role: "status", hidden: true });
    const deaf = element("p", { class: "failsafe", role: "alert", hidden: true, "data-testid": "deaf" });
    box.append(element("div", { class: "numbers-grid" }, ...all.map((one) => one.root)), failsafe, deaf);
    return {
      hear(kind, content) {
        const known_ms = kind === "latency" ? content.ms : kind === "command" ? content.stages.flight : null;
        if (known_ms !== null && known_ms !== undefined && known_ms !== shown_ms) {
          shown_ms = known_ms;
          trip.set(number(known_ms, 1), 0);
        }
        if (kind !== "state") return;
        const { ages } = content;
        const [north, east, down] = content.velocity_ned_mps;
        const down_m = content.target_ned_m[2];
        altitude.set(number(content.altitude_m, 2), ages.altitude_m);
        say(wanted, down_m === null ? NO_WORDS : `of ${number(-down_m, 1)} m`);
        speed.set(number(Math.hypot(north, east), 2), ages.velocity_ned_mps);
        climb.set(number(-down, 2), ages.velocity_ned_mps);
        yaw.set(String(heading(content.attitude_rad.yaw)), ages.attitude_rad);
        battery.set(number(content.battery_v, 2), ages.battery_v);
        const left_s = supply.leftS(content, page.about.airframe?.battery);
        if (content.battery_v !== null && content.current_a === null)
          left.setUnknown("current not measured", ages.battery_v);
        else if (left_s === null) left.setUnknown("battery not known", ages.battery_v);
        else left.set(`≈ ${number(left_s / 60, 0)}`, ages.battery_v);
        const when = content.armed ? "known after some level flight" : "known once it flies";
        if (content.heaviness_kg === null) heavy.setUnknown(when, ages.heaviness_kg);
        else heavy.set(number(1000 * content.heaviness_kg, 1), ages.heaviness_kg);
        if (content.wind_ned_mps === null) wind.setUnknown(when, ages.wind_ned_mps);
        else wind.set(windWords(content.wind_ned_mps), ages.wind_ned_mps);
        failsafe.hidden = !content.failsafe;
        failsafe.classList.toggle("unpowered", !content.armed);
        say(failsafe, content.failsafe ? `${content.armed ? "FAILSAFE" : "UNPOWERED"}: ${content.failsafe}` : NO_WORDS);
        deaf.hidden = !content.deaf; // a recording of an older version has none
        say(deaf, content.deaf ? `A STOP MAY NOT ARRIVE: ${content.deaf}` : NO_WORDS);
      },
    };
  },
};

/** How long the battery lasts at the present current, as its voltage without load tells. */
class Supply {
  leftS(state, battery) {
    const { battery_v: volts, current_a: now_a, t_s } = state;
    if (!battery || volts === null || now_a === null) return null;
    const share = Math.min(1, Math.max(0, t_s - (this.t_s ?? -Infinity)) / SMOOTH_S);
    this.t_s = t_s;
    this.current_a = (this.current_a ?? now_a) + share * (now_a - (this.current_a ?? now_a));
    const open_v = volts + this.current_a * battery.resistance_ohm;
    const full_v = FULL_V * battery.cells;
    const charge = Math.min(1, Math.max(0, (open_v - battery.empty_v) / (full_v - battery.empty_v)));
    return (3600 * charge * battery.capacity_ah) / Math.max(0.05, this.current_a);
  }
}
