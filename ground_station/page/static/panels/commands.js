// The commands of a flight. Each is sent at once; the ship says no to what it must not do.
import { element, say } from "../lib/dom.js";

export const panel = {
  name: "commands",
  title: "Commands",
  views: ["pilot"],
  mount(box, page) {
    const altitude = input("altitude", 3, 0.5);
    const north = input("north", 0);
    const east = input("east", 0);
    const button = (name, text, content = () => ({})) =>
      element(
        "button",
        {
          type: "button",
          "data-testid": `command-${name}`,
          "data-commands": "",
          on: { click: () => send(name, content) },
        },
        text,
      );
    // An empty field reads as 0, which is the pad.
    const metres = (one) => {
      if (one.value !== "") return Number(one.value);
      one.focus();
      throw new RangeError(`${one.name}, m: no number`);
    };
    const send = (name, content) => {
      try {
        page.command(name, content());
      } catch (error) {
        say(document.getElementById("said"), `${name}: not sent: ${error.message}`);
      }
    };
    box.append(
      element(
        "div",
        { class: "row" },
        button("arm", "Arm"),
        button("takeoff", "Take off", () => ({ altitude_m: metres(altitude) })),
        button("hold", "Hold"),
        button("return", "Return"),
        button("land", "Land"),
        button("disarm", "Disarm"),
      ),
      element(
        "div",
        { class: "row" },
        labelled("to altitude, m", altitude),
        labelled("north, m", north),
        labelled("east, m", east),
        button("goto", "Go there", () => ({
          north_m: metres(north),
          east_m: metres(east),
          altitude_m: metres(altitude),
        })),
      ),
    );
    page.able();
  },
};

function input(name, value, min) {
  return element("input", { type: "number", step: "0.5", name, value, min, "data-commands": "" });
}

function labelled(text, field) {
  return element("label", {}, element("span", {}, text), field);
}
