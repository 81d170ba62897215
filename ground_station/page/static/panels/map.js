// The ship from above, north up. A click is a `goto`, asked once; the wheel zooms.
import { canvasOf, element, textPx } from "../lib/dom.js";
import { age, number } from "../lib/format.js";
import { STALE_S } from "../lib/freshness.js";

const LEAST_M = 2.5; // half the width of what is shown at first
const MARGIN_M = 1; // around the flight, or half of the hull if that is more
const TRAIL = 1500;
const STEP_M = 0.1;
const CALM_MPS = 0.02; // less has no direction worth an arrow
const LOWEST_M = 1; // a goto from the ground goes up so far
const TEXT_PX = 12; // at which lines and symbols have the sizes below; on a stage they grow with the text

export const panel = {
  name: "map",
  title: "From above",
  views: ["present", "pilot"],
  mount(box, page) {
    const canvas = element("canvas", {
      "data-testid": "map",
      role: "img",
      "aria-label": "map, north up; the commands below have the same as numbers",
    });
    const ask = element("div", { class: "ask", hidden: true, role: "dialog", "aria-label": "go there?" });
    box.classList.add("map-box");
    box.append(canvas, ask);
    const map = new Map(canvas, ask, page);
    return map;
  },
};

class Map {
  constructor(canvas, ask, page) {
    this.canvas = canvas;
    this.askBox = ask;
    this.page = page;
    this.drawEveryS = 0.1;
    this.trail = [];
    this.zoom = null; // null: as much as is needed
    this.scale = 1;
    canvas.addEventListener("click", (event) => this.clicked(event));
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("dblclick", () => (this.zoom = null));
  }

  hear(kind, content) {
    if (kind === "trail") {
      this.trail = content.map(([north, east]) => [north, east]);
    } else if (kind === "state") {
      const [north, east] = content.position_ned_m;
      if (this.boot !== undefined && this.boot !== content.boot_id) this.trail = [];
      this.boot = content.boot_id;
      const last = this.trail.at(-1);
      if (!last || Math.hypot(last[0] - north, last[1] - east) > STEP_M) {
        this.trail.push([north, east]);
        if (this.trail.length > TRAIL) this.trail.shift();
      }
    } else if (kind === "track") {
      this.track = content;
    }
  }

  draw() {
    const { context, width, height } = canvasOf(this.canvas);
    const state = this.page.state;
    const style = getComputedStyle(this.canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    context.clearRect(0, 0, width, height);
    const frame = this.needed(state, width, height);
    this.scale = Math.min(width, height) / 2 / (this.zoom ?? frame.half);
    this.middle = [width / 2 - frame.east * this.scale, height / 2 + frame.north * this.scale]; // the pad
    this.unit = textPx() / TEXT_PX;
    context.lineCap = "round";
    this.grid(context, width, height, colour("grid"), colour("quiet"));
    this.fence(context, colour("bad"));
    this.pad(context, colour("text"));
    this.line(context, this.track ?? [], colour("quiet"), [6, 5]);
    this.line(context, this.trail, colour("trail"), []);
    if (!state) return;
    this.wind(context, width, state, colour("ship"));
    const [north, east] = state.target_ned_m;
    if (north !== null && east !== null) this.target(context, [north, east], colour("set"));
    if (this.asked) this.target(context, this.asked, colour("warn"));
    context.globalAlpha = this.page.ageS >= STALE_S ? 0.45 : 1;
    this.ship(context, state, colour("ship"));
    context.globalAlpha = 1;
  }

  /** The middle of the flight, and half of the shorter side, in metres, so that all of it is in the picture. */
  needed(state, width, height) {
    const shorter = Math.min(width, height);
    const points = [[0, 0], ...this.trail, ...(this.track ?? [])];
    if (state) points.push(state.position_ned_m, state.target_ned_m.map((one) => one ?? 0));
    const ends = [0, 1].map((axis) => points.reduce(([low, high], one) => [Math.min(low, one[axis]), Math.max(high, one[axis])], [0, 0]));
    const margin_m = Math.max(MARGIN_M, (this.page.about.airframe?.hull.length_m ?? 0) / 2);
    const [tall, wide] = ends.map(([low, high]) => (high - low) / 2 + margin_m);
    const [north, east] = ends.map(([low, high]) => (low + high) / 2);
    return { north, east, half: Math.max(LEAST_M, (tall * shorter) / height, (wide * shorter) / width) };
  }

  at([north, east]) {
    return [this.middle[0] + east * this.scale, this.middle[1] - north * this.scale];
  }

  grid(context, width, height, colour, text) {
    const step = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((one) => one * this.scale > 45 * this.unit) ?? 1000;
    context.strokeStyle = colour;
    context.lineWidth = this.unit;
    context.beginPath();
    for (let x = this.middle[0] % (step * this.scale); x < width; x += step * this.scale) {
      context.moveTo(x, 0);
      context.lineTo(x, height);
    }
    for (let y = this.middle[1] % (step * this.scale); y < height; y += step * this.scale) {
      context.moveTo(0, y);
      context.lineTo(width, y);
    }
    context.stroke();
    context.strokeStyle = context.fillStyle = text;
    const edge = 10 * this.unit;
    context.lineWidth = 2 * this.unit;
    context.beginPath();
    context.moveTo(edge, height - edge);
    context.lineTo(edge + step * this.scale, height - edge);
    context.stroke();
    context.font = `${textPx()}px system-ui, sans-serif`;
    context.fillText(`${step} m`, edge, height - 1.6 * edge);
    context.fillText("N ↑", edge, 1.6 * edge);
  }

  fence(context, colour) {
    const radius = this.page.about.airframe?.limits.max_distance_m;
    if (!radius) return;
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * this.unit;
    context.setLineDash([10 * this.unit, 6 * this.unit]);
    context.beginPath();
    context.arc(...this.at([0, 0]), radius * this.scale, 0, 2 * Math.PI);
    context.stroke();
    context.setLineDash([]);
  }

  pad(context, colour) {
    const [x, y] = this.at([0, 0]);
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = 1.5 * this.unit;
    context.beginPath();
    context.arc(x, y, 10 * this.unit, 0, 2 * Math.PI);
    context.stroke();
    context.save();
    context.font = `bold ${textPx()}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText("H", x, y + this.unit);
    context.restore();
  }

  /** Where the wind blows to, in the corner, and how strong it is; an old one is faint. */
  wind(context, width, state, colour) {
    if (!state.wind_ned_mps) return;
    const [north, east] = state.wind_ned_mps;
    const speed = Math.hypot(north, east);
    const ageS = state.ages.wind_ned_mps - state.age_s + this.page.ageS;
    const isOld = ageS >= STALE_S;
    context.save();
    context.globalAlpha = isOld ? 0.5 : 1;
    context.fillStyle = context.strokeStyle = colour;
    context.font = `${textPx()}px system-ui, sans-serif`;
    context.textAlign = "right";
    const isSaid = document.querySelector("#panels > .numbers")?.checkVisibility(); // beside the other numbers
    const words = `wind ${number(speed, 2)} m/s${isOld ? `, ${age(ageS)} old` : ""}`;
    if (!isSaid) context.fillText(words, width - 10 * this.unit, 16 * this.unit);
    if (speed > CALM_MPS) {
      context.translate(width - 34 * this.unit, 46 * this.unit);
      context.rotate(Math.atan2(east, north));
      context.scale(this.unit, this.unit);
      context.lineWidth = 3;
      context.beginPath();
      context.moveTo(0, 18);
      context.lineTo(0, -8);
      context.stroke();
      context.beginPath();
      context.moveTo(0, -20);
      context.lineTo(7, -6);
      context.lineTo(-7, -6);
      context.fill();
    }
    context.restore();
  }

  line(context, points, colour, dash) {
    if (points.length < 2) return;
    context.strokeStyle = colour;
    context.lineWidth = 2 * this.unit;
    context.setLineDash(dash.map((one) => one * this.unit));
    context.beginPath();
    points.forEach((one, index) => context[index ? "lineTo" : "moveTo"](...this.at(one)));
    context.stroke();
    context.setLineDash([]);
  }

  target(context, place, colour) {
    const [x, y] = this.at(place);
    context.strokeStyle = colour;
    const arm = 7 * this.unit;
    context.lineWidth = 2.5 * this.unit;
    context.beginPath();
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x + arm, y - arm);
    context.lineTo(x - arm, y + arm);
    context.stroke();
  }

  ship(context, state, colour) {
    const hull = this.page.about.airframe?.hull;
    const { unit } = this;
    const length = Math.max(24 * unit, (hull?.length_m ?? 1.5) * this.scale);
    const width = Math.max(11 * unit, (hull?.diameter_m ?? 0.7) * this.scale);
    const [x, y] = this.at(state.position_ned_m);
    context.save();
    context.translate(x, y);
    context.rotate(state.attitude_rad.yaw);
    context.fillStyle = colour;
    context.beginPath();
    context.ellipse(0, 0, width / 2, length / 2, 0, 0, 2 * Math.PI);
    context.fill();
    context.beginPath(); // the nose, so that its heading needs no colour
    context.moveTo(0, -length / 2 - 9 * unit);
    context.lineTo(6 * unit, -length / 2 + 4 * unit);
    context.lineTo(-6 * unit, -length / 2 + 4 * unit);
    context.fill();
    context.restore();
  }

  // --- a click is a goto -------------------------------------------------------------------

  clicked(event) {
    if (!this.page.mayCommand || this.page.isLost || !this.middle) return;
    const area = this.canvas.getBoundingClientRect();
    const east = (event.clientX - area.left - this.middle[0]) / this.scale;
    const north = -(event.clientY - area.top - this.middle[1]) / this.scale;
    this.asked = [Number(north.toFixed(1)), Number(east.toFixed(1))];
    const altitude = Math.max(LOWEST_M, Number((this.page.state?.altitude_m ?? 0).toFixed(1)));
    const done = () => {
      this.asked = null;
      this.askBox.hidden = true;
    };
    const go = () => {
      const [north_m, east_m] = this.asked;
      done();
      this.page.command("goto", { north_m, east_m, altitude_m: altitude });
    };
    const towards = (metres, plus, minus) => `${number(Math.abs(metres))} m ${metres < 0 ? minus : plus}`;
    const [ahead, aside] = [towards(this.asked[0], "north", "south"), towards(this.asked[1], "east", "west")];
    const question = `Go to ${ahead}, ${aside} of the pad, at ${number(altitude)} m?`;
    const yes = element(
      "button",
      { type: "button", "data-testid": "goto-confirm", "data-commands": "", on: { click: go } },
      "Go",
    );
    const no = element("button", { type: "button", on: { click: done } }, "Cancel");
    this.askBox.replaceChildren(element("span", {}, question), yes, no);
    this.askBox.hidden = false;
    yes.focus();
  }

  wheel(event) {
    event.preventDefault();
    const { clientWidth, clientHeight } = this.canvas;
    const half = this.zoom ?? this.needed(this.page.state, clientWidth, clientHeight).half;
    this.zoom = Math.min(2000, Math.max(2, half * (event.deltaY > 0 ? 1.15 : 1 / 1.15)));
  }
}
