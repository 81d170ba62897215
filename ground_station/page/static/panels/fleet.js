// Every ship on the broker, those in trouble first: a stop for each, who has control of it, and taking it.
// From `api/fleet`, every 2 s.
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
    this.ships = table("Who commands which ship", ["ship", "mode", "motors", "altitude", "battery", "in control", ""]);
    const note = "While nobody has control, everybody commands a ship. An emergency stop is everybody’s, always: STOP asks nothing, and a ship that flies falls.";
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
    const rank = (one) => `${trouble(one) ? 0 : 1} ${one.vehicle}`;
    const sorted = [...ships].sort((a, b) => rank(a).localeCompare(rank(b), undefined, { numeric: true }));
    const wrong = ships.filter((one) => trouble(one)).length;
    this.fresh.set(`${ships.length === 1 ? "1 ship" : `${ships.length} ships`}${wrong ? `, ${wrong} in trouble` : ""}`, 0);
    this.ships.fill(sorted.map((one) => this.row(one)), "No ship is heard", sorted.map((one) => one.vehicle));
    this.page.able();
  }

  row(ship) {
    const shown = (text) => (isHeard(ship) ? text : "–");
    const wrong = trouble(ship);
    const stop = this.button("stop", ship, `STOP ${ship.vehicle}`, () => this.page.stop.press(ship.vehicle));
    return [
      this.link(ship),
      wrong ? element("strong", { class: "wrong" }, wrong) : ship.mode,
      shown(ship.armed ? "ARMED" : "disarmed"),
      shown(`${number(ship.altitude_m, 1)} m`),
      shown(`${number(ship.battery_v, 1)} V`),
      holder(ship),
      element("span", { class: "row" }, stop, ...this.buttons(ship)),
    ];
  }

  link(ship) {
    const query = new URLSearchParams(location.search);
    query.set("vehicle", ship.vehicle);
    const name = element("a", { href: `?${query}#pilot` }, ship.vehicle);
    return element("span", {}, name, ship.simulated ? " (simulated)" : "", ship.vehicle === this.page.vehicle ? ", shown here" : "");
  }

  buttons(ship) {
    if (ship.yours) return [this.button("release", ship, "Give back")];
    if (ship.pilot === null) return [this.button("take", ship, "Take control")];
    if (this.asking !== ship.vehicle) {
      const ask = () => {
        this.asking = ship.vehicle;
        this.show(this.found);
      };
      return [this.button("take", ship, `Take it from ${ship.pilot} …`, ask)];
    }
    const cancel = () => {
      this.asking = "";
      this.show(this.found);
    };
    return [
      this.button("force", ship, `Yes, take it from ${ship.pilot}`, () => this.act("take", ship, true)),
      this.button("cancel", ship, "No", cancel),
    ];
  }

  button(name, ship, text, click = () => this.act(name, ship, false)) {
    return element(
      "button",
      { type: "button", "data-controls": "", "data-testid": `fleet-${name}-${ship.vehicle}`, on: { click } },
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

const isHeard = ({ age_s }) => age_s !== null && age_s < HEARD_S;

/** What a person must look at first, in words; nothing if all is well. */
function trouble(ship) {
  if (!isHeard(ship)) return ship.age_s === null ? "never heard" : `not heard for ${age(ship.age_s)}`;
  if (ship.failsafe) return `${ship.armed ? ship.mode : "UNPOWERED"}: ${ship.failsafe}`;
  return ship.killed ? "KILLED: arm it again to fly" : "";
}

function holder(ship) {
  if (ship.pilot === null) return "nobody in control";
  return `${ship.pilot}${ship.yours ? " (you)" : ""}, for ${Math.ceil(ship.left_s / 10) * 10} s unless renewed`;
}
