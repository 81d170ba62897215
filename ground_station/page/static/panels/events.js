// What happened to the ship, the newest first: the record that the log and `ground events` have, too.
import { element } from "../lib/dom.js";
import { clock } from "../lib/format.js";

export const panel = {
  name: "events",
  title: "Events",
  views: ["engineer"],
  mount(box) {
    const list = element("ol", { class: "events", reversed: true, "data-testid": "events" });
    const empty = element("p", { class: "note" }, "Nothing has happened yet.");
    Object.assign(box, { tabIndex: 0, role: "group", ariaLabel: "what happened, the newest first" }); // it may scroll
    box.append(empty, list);
    return {
      hear(kind, content) {
        if (kind !== "events") return;
        empty.hidden = content.length > 0;
        list.replaceChildren(...content.toReversed().map(row));
      },
    };
  },
};

function row({ id, t_s, at_s, kind, text, command, is_fault }) {
  const time = at_s === null ? clock(t_s) : new Date(1000 * at_s).toLocaleTimeString("en-GB");
  const title = command ? `command ${command}` : kind;
  return element("li", { class: is_fault ? "bad" : "", "data-id": id, title }, element("time", {}, time), " ", text);
}
