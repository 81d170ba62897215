// The card at a show's end, in the words of the demo's terminal, and what to take home.
import { ask } from "../lib/connection.js";
import { element, say } from "../lib/dom.js";

const OVER = "The demo has ended, and the server of this page with it.";
let again = ""; // the command that replays the flight, once its log is known

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

/** The log of the flight, fetched at once: the server may end with the show. */
async function fetchLog(page, button, note) {
  try {
    const answer = await ask(`api/log?vehicle=${encodeURIComponent(page.vehicle)}`);
    if (!answer.ok || !answer.headers.has("content-disposition")) return say(note, (await answer.json()).reason);
    const name = /filename="([^"]+)"/.exec(answer.headers.get("content-disposition"))?.[1] ?? `${page.vehicle}.mcap`;
    const log = await answer.blob();
    button.disabled = false;
    button.addEventListener("click", () => page.save(name, log));
    again = `blimp log replay ${name}`;
    say(note, `To see it again later, on a terminal: ${again}`);
  } catch {
    say(note, `${OVER} blimp log list finds the flight’s log.`);
  }
}

/** Once the server is gone there is no replay here: say where there is one. */
function watchServer(page, button, note) {
  const timer = setInterval(() => {
    if (page.isConnected) return;
    clearInterval(timer);
    button.disabled = true;
    if (again) say(note, `${OVER} To see it again, on a terminal: ${again}`);
  }, 500);
}

/** Open the recording on a page of its own. */
async function replay(page, note) {
  const outcome = await page.post(`api/replay?vehicle=${encodeURIComponent(page.vehicle)}`);
  if (outcome.state !== "SUCCESS") return say(note, `No replay here: ${outcome.reason}. ${again ? `On a terminal: ${again}` : ""}`);
  const opened = window.open(outcome.result.url, "_blank");
  if (!opened) note.replaceChildren(element("a", { href: outcome.result.url, target: "_blank" }, "Open the recording"));
}

function show(dialog, { title, cause, rows, faults }, page) {
  const list = element("dl", {}, ...rows.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  const items = faults.map(([text, isWell]) => element("li", { class: isWell ? "" : "bad" }, text));
  const note = element("p", { class: "note", role: "status", "data-testid": "end-note" });
  const log = element("button", { type: "button", disabled: true, hidden: !page.mayCommand, "data-testid": "end-log" }, "Save log");
  const replaying = element("button", { type: "button", "data-testid": "end-replay", hidden: !page.mayCommand, on: { click: () => replay(page, note) } }, "Replay");
  dialog.replaceChildren(
    element("h2", { id: "end-title" }, title),
    element("p", { class: "cause", hidden: !cause }, cause),
    list,
    element("ul", { "aria-label": "faults, and the ship after each" }, ...items),
    element(
      "div",
      { class: "row" },
      replaying,
      log,
      element("button", { type: "button", "data-testid": "end-picture", on: { click: () => page.savePicture() } }, "Save picture"),
      element("button", { type: "button", on: { click: () => dialog.close() } }, "Close"),
    ),
    note,
  );
  if (page.mayCommand) {
    fetchLog(page, log, note);
    watchServer(page, replaying, note);
  }
  // Not modal: the emergency stop stays within reach.
  dialog.show();
  dialog.scrollTop = 0; // its first button has the focus, which on a phone is below the title
}
