// What happened in the last two minutes: altitude set and actual, attitude, actuators, loop time
// and queue latency, with a mark for each command and fault. Drag to zoom, double click for all.
import { element } from "../lib/dom.js";
import uPlot from "../vendor/uplot.js";

const REDRAW_S = 0.25;
const HEIGHT = 170;
const WIDTH = 600;
const LEAST_SPAN = 0.2; // of a vertical axis: less is noise, of which the numbers would read 0 and −0
// Okabe and Ito's colours, which people with any colour vision can tell apart, and dashes.
const COLOURS = ["#56b4e9", "#e69f00", "#2bc297", "#f0e442", "#cc79a7", "#e0703a", "#a0c8ff", "#ffffff"];
const DASHES = [[], [8, 4], [3, 3], [12, 3, 3, 3]];
const DOTS = { paths: () => null, points: { show: true, size: 3, width: 0.5 } }; // no line from 360 to 0

export const panel = {
  name: "plots",
  title: "Plots",
  view: "plots",
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

  hear(kind) {
    if (kind === "state" && this.plots.length === 0) this.make();
  }

  make() {
    this.empty.hidden = true;
    const actuators = Object.keys(this.page.state.actuators);
    const charts = [
      ["altitude, m", ["actual", "set"]],
      ["attitude, °", ["roll", "pitch", "heading"]],
      ["motors in %, servos in °", actuators],
      ["one cycle, ms", ["mean", "p99"]],
      ["queue to flight loop, ms", ["latency"]],
    ];
    for (const [title, names] of charts) {
      const series = names.map((label, index) => ({
        label,
        stroke: COLOURS[index % COLOURS.length],
        dash: DASHES[index % DASHES.length],
        width: 2,
        spanGaps: title.startsWith("queue"),
        points: { show: title.startsWith("queue") },
        ...(label === "heading" ? DOTS : {}),
        value: (_, value) => (value === null || value === undefined ? "–" : value.toFixed(2)),
      }));
      const axis = { stroke: "#9fb0c0", grid: { stroke: "#24303c" }, ticks: { stroke: "#24303c" } };
      const plot = new uPlot(
        {
          title,
          width: WIDTH,
          height: HEIGHT,
          cursor: { sync: { key: "flight" } },
          series: [{ label: "time, s", value: (_, value) => value?.toFixed(1) ?? "–" }, ...series],
          scales: { x: { time: false }, y: { range: (_, low, high) => span(low, high) } },
          axes: [axis, { ...axis, size: 56 }],
          hooks: { drawAxes: [(one) => this.marks(one)] },
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

  fit() {
    const columns = this.area.clientWidth > 1000 ? 2 : 1;
    const width = Math.max(260, Math.floor(this.area.clientWidth / columns) - 12);
    for (const one of this.plots) {
      if (one.plot.width !== width) one.plot.setSize({ width, height: HEIGHT });
    }
  }

  marks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = "11px system-ui, sans-serif";
    ctx.textAlign = "left";
    for (const { t_s, text, isFault } of this.rows.marks) {
      const x = plot.valToPos(t_s - this.rows.beganS, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = isFault ? "#e0703a" : "#7d8fa0";
      ctx.setLineDash(isFault ? [] : [2, 4]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(text.slice(0, 24), x + 3, bbox.top + 11);
    }
    ctx.restore();
  }

  close() {
    for (const one of this.plots) one.plot.destroy();
  }
}

function span(low, high) {
  if (low === null) return [0, 1];
  const missing = Math.max(0, LEAST_SPAN - (high - low)) / 2;
  return uPlot.rangeNum(low - missing, high + missing, 0.1, true);
}

function isZoomed(plot) {
  const [first, last] = [plot.data[0][0], plot.data[0].at(-1)];
  return plot.scales.x.min > first + 0.01 || plot.scales.x.max < last - 0.01;
}
