// The address for everybody in the room, as a QR code as large as the window, while it is switched on.
import { get } from "../lib/connection.js";
import { element, say } from "../lib/dom.js";

export const panel = {
  name: "room",
  mount() {
    const dialog = element("dialog", { id: "room", "aria-labelledby": "room-title", "data-testid": "room" });
    const button = element("button", { type: "button", id: "room-switch", "data-testid": "room-switch" });
    const shown = (isShown) => {
      say(button, isShown ? "Hide the QR code" : "QR code for phones");
      button.setAttribute("aria-expanded", String(isShown));
    };
    button.addEventListener("click", async () => {
      if (dialog.open) return dialog.close();
      fill(dialog, await found());
      dialog.show(); // not modal: the emergency stop stays within reach
      shown(true);
    });
    dialog.addEventListener("close", () => shown(false));
    shown(false);
    document.getElementById("words").append(button);
    document.body.append(dialog);
    return {};
  },
};

async function found() {
  try {
    return await get("api/room");
  } catch {
    return { codes: [], reason: "This page’s server does not answer." };
  }
}

/** One code for each network of this machine: a phone is in one of them. */
function fill(dialog, { codes, reason }) {
  const figures = (codes ?? []).map(({ url, code }) =>
    element("figure", {}, element("img", { src: code, alt: `QR code of ${url}` }), element("figcaption", {}, new URL(url).host)),
  );
  dialog.replaceChildren(
    element("h2", { id: "room-title" }, figures.length ? "Look from your phone: nobody commands there" : "No phone can look"),
    figures.length ? element("div", { class: "codes" }, ...figures) : element("p", { class: "note" }, reason),
  );
}
