// What the ship's camera sees, with what its process found in it. Without pictures nothing is there.
import { address } from "../lib/connection.js";
import { canvasOf, element, say, textPx } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { authorisation } from "../lib/token.js";

const AGAIN_MS = 3000; // without a picture
const HIDDEN_MS = 1000; // nobody looks: nothing is asked for
const OLD_MS = 5000;
const COLOURS = { tags: "--good" }; // by step; all others are targets
const TARGET = "--warn";
const DEGREE = Math.PI / 180;
const STEP_DEGREES = 3; // between points of the horizon

export const panel = {
  name: "camera",
  title: "Camera",
  views: ["present", "pilot"],
  mount(box, page) {
    const section = box.parentElement;
    section.hidden = true;
    const canvas = element("canvas", { "data-testid": "camera", role: "img", "aria-label": "picture of the ship's camera" });
    const words = element("p", { class: "picture-words", role: "status", "data-testid": "camera-words" });
    const button = element("button", { type: "button", "data-testid": "camera-switch" }, "Hide picture");
    box.append(canvas, words, button);
    return new Camera({ section, canvas, words, button, page });
  },
};

class Camera {
  constructor(parts) {
    Object.assign(this, parts);
    this.isOn = true;
    this.isClosed = false;
    this.drawEveryS = 0.1;
    this.button.addEventListener("click", () => {
      this.isOn = !this.isOn;
      say(this.button, this.isOn ? "Hide picture" : "Show picture");
    });
    this.follow();
  }

  async follow() {
    while (!this.isClosed) {
      const waitMs = this.isOn && this.page.isLive && !document.hidden ? await this.next() : HIDDEN_MS;
      if (waitMs) await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }

  /** Show the next picture; return for how long to wait until the one after it is asked for. */
  async next() {
    try {
      const url = address("api/picture");
      url.searchParams.set("vehicle", this.page.vehicle);
      if (this.about) url.searchParams.set("after", this.about.sequence);
      const answer = await fetch(url, { headers: authorisation() });
      this.why = answer.headers.get("x-blimp-why") ?? "";
      if (answer.status !== 200) return AGAIN_MS;
      const about = JSON.parse(answer.headers.get("x-blimp-picture"));
      const image = await createImageBitmap(await answer.blob());
      this.image?.close();
      [this.image, this.about, this.heardMs] = [image, about, performance.now()];
      this.section.hidden = false;
      return 0;
    } catch {
      this.why = "no picture can be shown";
      return AGAIN_MS;
    }
  }

  draw() {
    if (!this.image || this.isClosed) return;
    const { context, width, height } = canvasOf(this.canvas);
    const [wide, high] = this.about.size;
    const scale = Math.min(width / wide, height / high);
    context.clearRect(0, 0, width, height);
    context.save();
    context.translate((width - scale * wide) / 2, (height - scale * high) / 2);
    context.drawImage(this.image, 0, 0, scale * wide, scale * high);
    for (const [step, { content }] of Object.entries(this.about.seen ?? {}))
      for (const shape of content?.shapes ?? []) this.outline(context, shape, scale, COLOURS[step] ?? TARGET);
    this.horizon(context, scale);
    context.restore();
    const since_ms = performance.now() - this.heardMs;
    this.canvas.classList.toggle("stale", since_ms > OLD_MS);
    const age_s = this.about.age_s + since_ms / 1000;
    const rest = this.isOn ? this.why : "hidden";
    say(this.words, `${number(age_s, 1)} s old${rest && since_ms > 1000 ? `; ${rest}` : ""}`);
  }

  /** Draw a closed line through points of the full picture, with its label at the first one. */
  outline(context, { label, points }, scale, colour) {
    if (!points?.length) return;
    context.strokeStyle = context.fillStyle = getComputedStyle(document.body).getPropertyValue(colour);
    context.lineWidth = 2;
    context.beginPath();
    for (const [x, y] of points) context.lineTo(scale * x, scale * y);
    context.closePath();
    context.stroke();
    context.font = `600 ${textPx()}px sans-serif`;
    context.fillText(label ?? "", scale * points[0][0] + 3, scale * points[0][1] - 4);
  }

  /** Draw where level is, by the ship's attitude and how its camera is mounted, without distortion. */
  horizon(context, scale) {
    const view = this.about.view;
    const attitude = this.page.state?.attitude_rad;
    if (!view || !attitude || this.page.isLost) return;
    const [wide, high] = this.about.size;
    const focal = wide / 2 / Math.tan((view.horizontal_fov_deg * DEGREE) / 2);
    const mount = { roll: view.roll_deg * DEGREE, pitch: view.pitch_deg * DEGREE, yaw: view.yaw_deg * DEGREE };
    context.strokeStyle = getComputedStyle(document.body).getPropertyValue("--set");
    context.lineWidth = 1.5;
    context.beginPath();
    let isDrawn = false;
    for (let step = 0; step <= 360 / STEP_DEGREES; step++) {
      const angle = step * STEP_DEGREES * DEGREE;
      const [out, right, down] = turnedBack(turnedBack([Math.cos(angle), Math.sin(angle), 0], attitude), mount);
      const [x, y] = [wide / 2 + (focal * right) / out, high / 2 + (focal * down) / out];
      const isSeen = out > 0.05 && x > -wide && x < 2 * wide && y > 0 && y < high;
      if (isSeen) context[isDrawn ? "lineTo" : "moveTo"](scale * x, scale * y);
      isDrawn = isSeen;
    }
    context.stroke();
  }

  close() {
    this.isClosed = true;
    this.image?.close();
  }
}

/** Return a vector in the axes of a body that lies so (yaw, then pitch, then roll): of NED in the ship's. */
function turnedBack([x, y, z], { roll, pitch, yaw }) {
  [x, y] = [Math.cos(yaw) * x + Math.sin(yaw) * y, Math.cos(yaw) * y - Math.sin(yaw) * x];
  [x, z] = [Math.cos(pitch) * x - Math.sin(pitch) * z, Math.cos(pitch) * z + Math.sin(pitch) * x];
  [y, z] = [Math.cos(roll) * y + Math.sin(roll) * z, Math.cos(roll) * z - Math.sin(roll) * y];
  return [x, y, z];
}
