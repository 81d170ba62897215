// The card at a show's end: what was flown, what was survived, and what to take home.
import { element } from "../lib/dom.js";
import { number } from "../lib/format.js";

const FAULTS = {
  "kill-worker": "worker killed",
  "kill-flight": "flight process killed",
  "stop-broker": "broker stopped",
  "cut-link": "link cut",
  "blind-position": "position blinded",
};

export const panel = {
  name: "end",
  mount(_, page) {
    const dialog = document.getElementById("end-card");
    return {
      hear(kind, content) {
        if (kind === "end" && !dialog.open) show(dialog, content, page);
      },
    };
  },
};

function show(dialog, { mission, lost, faults }, page) {
  const all = mission.completed === mission.legs;
  const rows = [
    ["legs flown", `${mission.completed} of ${mission.legs}`],
    ["time", `${number(mission.duration_s, 0)} s`],
    ["farthest off its track", `${number(mission.max_cross_track_m, 2)} m`],
    ["off the pad at the end", `${number(mission.final_error_m, 2)} m`],
    ["commands lost", String(lost)],
    ["faults survived", String(faults.length)],
    ...faults.map((one) => [`· ${FAULTS[one.action] ?? one.action}`, `worked again after ${number(one.down_s, 1)} s`]),
  ];
  const list = element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  dialog.replaceChildren(
    element("h2", { id: "end-title" }, all ? `${page.vehicle} has flown it (simulated)` : `${page.vehicle} ended early (simulated)`),
    list,
    element(
      "div",
      { class: "row" },
      element("button", { type: "button", on: { click: () => page.saveLog() } }, "Save log"),
      element("button", { type: "button", on: { click: () => page.savePicture() } }, "Save picture"),
      element("button", { type: "button", on: { click: () => dialog.close() } }, "Close"),
    ),
  );
  // Not modal: the emergency stop stays within reach.
  dialog.show();
}
