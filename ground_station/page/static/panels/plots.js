// What happened in the last two minutes, also before the page was opened, with a mark for each command
// and fault, and the limit of what has one. Drag to zoom, double click for all.
import { element, textPx } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { colour } from "../lib/theme.js";
import uPlot from "../vendor/uplot.js";

const REDRAW_S = 0.25;
const SIZE = { width: 600, height: 170 }; // until it is fitted
const LEAST_REM = { width: 16, height: 6 };
const GAP_REM = 0.5; // of page.css
const SPACE = { across: 4.5, down: 2.5 }; // between two numbers of an axis at least, in heights of the text
const TEXT_PX = 12; // at which lines have the widths below
const LEAST_SPAN = 0.2; // of a vertical axis: less is noise, of which the numbers would read 0 and −0
// Okabe and Ito's colours, which people with any colour vision can tell apart, and dashes.
const COLOURS = ["queue", "worker", "good", "trail", "set", "bad", "ship", "text"]; // of base.css
const DASHES = [[], [8, 4], [3, 3], [12, 3, 3, 3]];
const HEADING = "heading"; // has an axis of its own, on the right
const NORTHS = { range: [0, 360], splits: [0, 90, 180, 270, 360] };
// A limit that is further away than so many times the values would make a flat line of them.
const NEAR = 4;
// title, the lines (what lib/samples.js calls them), and the limit.
const CHARTS = [
  ["altitude, m", ["altitude", "set"], ({ limits }) => limits?.max_altitude_m],
  ["speed over ground and wind, m/s", ["speed", "wind"], ({ limits }) => limits?.speed_mps],
  ["roll, pitch and heading, °", ["roll", "pitch", HEADING]],
  ["battery, V", ["battery"], ({ battery }) => battery?.empty_v],
  ["motors in %, servos in °", (state) => Object.keys(state.actuators)],
  ["sensors off the estimate, m", (state) => state.votes.map(({ of, sensor }) => `${of}: ${sensor}`)],
  ["one cycle, ms", ["mean", "p99"], (_, { loop }) => 1000 / loop.rate_hz],
  ["queue to flight loop, ms", ["latency"]],
];
const DOTS = { paths: () => null, points: { show: true, size: 3, width: 0.5 } }; // no line from 360 to 0

export const panel = {
  name: "plots",
  title: "Plots",
  views: ["engineer"],
  mount(box, page) {
    return new Plots(box, page);
  },
};

class Plots {
  constructor(box, page) {
    this.page = page;
    this.rows = page.samples;
    this.isPaused = false;
    this.drawEveryS = REDRAW_S;
    const pause = element("button", { type: "button", "aria-pressed": "false" }, "Pause");
    pause.addEventListener("click", () => {
      this.isPaused = !this.isPaused;
      pause.setAttribute("aria-pressed", String(this.isPaused));
      pause.textContent = this.isPaused ? "Go on" : "Pause";
    });
    const save = element("button", { type: "button", on: { click: () => page.saveLog() } }, "Save as CSV");
    this.area = element("div", { class: "plot-area" });
    this.empty = element("p", { class: "note" }, "Nothing to plot: no word from the ship yet.");
    box.append(element("div", { class: "row" }, pause, save), this.empty, this.area);
    this.plots = [];
  }

  hear(kind, content) {
    if (kind === "trail") this.recall();
    if (kind !== "state") return;
    const charts = CHARTS.map(([title, names, limit]) => {
      const most = limit?.(this.page.about.airframe ?? {}, content);
      const lines = typeof names === "function" ? names(content) : names;
      return { title: most ? `${title}; limit ${number(most, 1)}` : title, names: lines, limit: most };
    });
    const made = JSON.stringify(charts);
    if (made === this.made) return;
    this.made = made; // another ship, or one that has another sensor now
    this.close();
    this.make(charts);
  }

  /** Ask for what was before. */
  async recall() {
    const asked = (this.asked = {});
    try {
      const { states } = await this.page.get(`api/past?vehicle=${encodeURIComponent(this.page.vehicle)}`);
      if (asked === this.asked && states) this.rows.fill(states);
    } catch {
      // The age of the link says it.
    }
  }

  make(charts) {
    this.empty.hidden = true;
    const unit = textPx() / TEXT_PX;
    for (const { title, names, limit } of charts) {
      const series = names.map((label, index) => ({
        label,
        stroke: colour(COLOURS[index % COLOURS.length]),
        dash: DASHES[index % DASHES.length].map((one) => one * unit),
        width: 2 * unit,
        spanGaps: title.startsWith("queue"),
        points: { show: title.startsWith("queue") },
        ...(label === HEADING ? { ...DOTS, scale: HEADING } : {}),
        value: (_, value) => (value === null || value === undefined ? "–" : value.toFixed(2)),
      }));
      const lines = { stroke: colour("grid") };
      const font = `${textPx()}px system-ui, sans-serif`;
      const axis = { stroke: colour("quiet"), grid: lines, ticks: lines, font, size: 2.2 * textPx(), space: SPACE.across * textPx() };
      const upright = { ...axis, size: 4.2 * textPx(), space: SPACE.down * textPx() };
      const plot = new uPlot(
        {
          title,
          ...SIZE,
          padding: [0.6 * textPx(), 1.5 * textPx(), null, null], // half of an axis's last number
          cursor: { sync: { key: "flight" } },
          series: [{ label: "time, s", value: (_, value) => value?.toFixed(1) ?? "–" }, ...series],
          scales: { x: { time: false }, y: { range: (_, low, high) => span(low, high, limit) }, [HEADING]: { range: NORTHS.range } },
          axes: [axis, upright, ...(names.includes(HEADING) ? [{ ...upright, ...NORTHS, scale: HEADING, side: 1, grid: { show: false } }] : [])],
          hooks: { drawAxes: [(one) => this.marks(one, limit)] },
        },
        [[0], ...names.map(() => [null])],
        this.area,
      );
      this.plots.push({ plot, title, names });
    }
    this.fit();
  }

  draw() {
    if (this.isPaused || this.plots.length === 0) return;
    this.fit();
    for (const { plot, names, title } of this.plots) {
      plot.setData(this.rows.columns(names, title), !isZoomed(plot));
      // Beside the names stand the newest values, while no cursor asks for others.
      if (plot.cursor.left < 0) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
    }
  }

  /** All of them at once, as large as the panel leaves it; on a phone they scroll. */
  fit() {
    const rem = parseFloat(getComputedStyle(document.documentElement).fontSize);
    const { clientWidth: across, clientHeight: down } = this.area;
    const columns = Math.min(4, Math.max(1, Math.floor(across / (18 * rem))));
    const rows = Math.ceil(this.plots.length / columns);
    const width = Math.floor(Math.max(LEAST_REM.width * rem, across / columns - 0.7 * rem));
    // Title and legend take what they take: a legend of many names has several lines.
    const beside = Array(rows).fill(0);
    this.plots.forEach(({ plot }, index) => {
      const row = Math.floor(index / columns);
      beside[row] = Math.max(beside[row], plot.root.offsetHeight - plot.height);
    });
    const left = down - beside.reduce((sum, one) => sum + one, 0) - (rows - 1) * GAP_REM * rem;
    const height = Math.floor(Math.max(LEAST_REM.height * rem, left / rows));
    for (const { plot } of this.plots) {
      if (plot.width !== width || plot.height !== height) plot.setSize({ width, height });
    }
  }

  marks(plot, limit) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${textPx() * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.lineWidth = 2 * devicePixelRatio;
    if (limit > plot.scales.y.min && limit < plot.scales.y.max) {
      const y = plot.valToPos(limit, "y", true);
      ctx.strokeStyle = colour("bad");
      ctx.setLineDash([10, 5]);
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    for (const { t_s, text, isFault } of this.rows.marks) {
      const x = plot.valToPos(t_s - this.rows.beganS, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(isFault ? "bad" : "quiet");
      ctx.setLineDash(isFault ? [] : [2, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(text.slice(0, 24), x + 3, bbox.top + textPx() * devicePixelRatio);
    }
    ctx.restore();
  }

  close() {
    for (const one of this.plots) one.plot.destroy();
    this.plots = [];
  }
}

function span(low, high, limit) {
  if (low === null) return [0, 1];
  if (limit <= NEAR * high) [low, high] = [Math.min(low, limit), Math.max(high, limit)];
  const missing = Math.max(0, LEAST_SPAN - (high - low)) / 2;
  return uPlot.rangeNum(low - missing, high + missing, 0.1, true);
}

function isZoomed(plot) {
  const [first, last] = [plot.data[0][0], plot.data[0].at(-1)];
  return plot.scales.x.min > first + 0.01 || plot.scales.x.max < last - 0.01;
}
