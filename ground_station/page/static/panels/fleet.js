// Every ship on the broker, who has control of it, and taking it. From `api/fleet`, every 2 s.
import { element, say } from "../lib/dom.js";
import { age, number } from "../lib/format.js";
import { table } from "../lib/table.js";

const LOOK_MS = 2000;
const HEARD_S = 3.5;

export const panel = {
  name: "fleet",
  title: "Ships on this broker",
  views: ["fleet"],
  mount(box, page) {
    return new Fleet(box, page);
  },
};

class Fleet {
  constructor(box, page) {
    this.page = page;
    this.asking = "";
    this.fresh = page.value({ testid: "fleet-age", label: "heard" });
    this.ships = table("Who commands which ship", ["ship", "mode", "motors", "altitude", "battery", "heard", "in control", ""]);
    const note = "While nobody has control, everybody commands a ship. An emergency stop is everybody’s, always.";
    box.append(element("div", { class: "row" }, this.fresh.root), this.ships.root, element("p", { class: "note" }, note));
    this.look();
    this.timer = setInterval(() => this.look(), LOOK_MS);
  }

  async look() {
    try {
      const found = await this.page.get("api/fleet");
      if (found.ships) this.show(found.ships);
      else say(this.fresh.text, found.reason ?? "no answer");
    } catch {
      // Its age says it.
    }
  }

  show(ships) {
    this.found = ships;
    this.fresh.set(ships.length === 1 ? "1 ship" : `${ships.length} ships`, 0);
    this.ships.fill(ships.map((one) => this.row(one)), "No ship is heard");
    this.page.able();
  }

  row(ship) {
    const isHeard = ship.age_s !== null && ship.age_s < HEARD_S;
    const shown = (text) => (isHeard ? text : "–");
    return [
      this.link(ship),
      shown(ship.failsafe ? `${ship.mode}: ${ship.failsafe}` : ship.mode),
      shown(ship.killed ? "KILLED" : ship.armed ? "ARMED" : "disarmed"),
      shown(`${number(ship.altitude_m, 1)} m`),
      shown(`${number(ship.battery_v, 1)} V`),
      isHeard ? "now" : ship.age_s === null ? "never" : `${age(ship.age_s)} ago`,
      holder(ship),
      this.buttons(ship),
    ];
  }

  link(ship) {
    const query = new URLSearchParams(location.search);
    query.set("vehicle", ship.vehicle);
    const name = element("a", { href: `?${query}#pilot` }, ship.vehicle);
    return element("span", {}, name, ship.simulated ? " (simulated)" : "", ship.vehicle === this.page.vehicle ? ", shown here" : "");
  }

  buttons(ship) {
    if (ship.yours) return this.button("release", ship, "Give back");
    if (ship.pilot === null) return this.button("take", ship, "Take control");
    if (this.asking !== ship.vehicle) {
      const ask = () => {
        this.asking = ship.vehicle;
        this.show(this.found);
      };
      return this.button("take", ship, `Take it from ${ship.pilot} …`, ask);
    }
    const cancel = () => {
      this.asking = "";
      this.show(this.found);
    };
    return element(
      "span",
      { class: "row" },
      this.button("force", ship, `Yes, take it from ${ship.pilot}`, () => this.act("take", ship, true)),
      this.button("cancel", ship, "No", cancel),
    );
  }

  button(name, ship, text, click = () => this.act(name, ship, false)) {
    return element(
      "button",
      { type: "button", "data-controls": "", disabled: !this.page.mayCommand, "data-testid": `fleet-${name}-${ship.vehicle}`, on: { click } },
      text,
    );
  }

  async act(verb, ship, force) {
    this.asking = "";
    const said = document.getElementById("said");
    const content = { vehicle: ship.vehicle, ...(force ? { force } : {}) };
    const outcome = await this.page.post(`api/control/${verb}`, content);
    const done = verb === "take" ? `you have control of ${ship.vehicle}` : `control of ${ship.vehicle} is given back`;
    say(said, outcome.state === "SUCCESS" ? done : `${verb}: ${outcome.reason}`);
    await this.look();
  }

  close() {
    clearInterval(this.timer);
  }
}

function holder(ship) {
  if (ship.pilot === null) return "nobody: everybody commands it";
  return `${ship.pilot}${ship.yours ? " (you)" : ""}, for ${Math.ceil(ship.left_s / 10) * 10} s unless renewed`;
}
