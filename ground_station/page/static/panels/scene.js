// The ship in three dimensions, over a floor that ends nowhere: attitude, propellers and tilt as driven,
// thrust as arrows, trail, target, pad, shadow, a mast of 3 m, fence. Panels may lie on the picture.
//
// World north-east-down becomes three's x east, y up, z south; the body's forward-right-down
// becomes the same three axes of the ship, so one turn serves both.
import { element, say } from "../lib/dom.js";
import { STALE_S } from "../lib/freshness.js";
import { colour } from "../lib/theme.js";
import * as three from "../vendor/three.js";

const TRAIL = 900;
const STEP_M = 0.1;
const SMOOTH_S = 0.12; // pictures between two states
const EVERY_S = 1 / 30;
const MOST_STEP_S = 1; // after a longer pause nothing is smoothed over the whole of it
const SOFTWARE_EVERY_S = 0.2; // without a graphics card the picture takes the ship's own processor
const SOFTWARE_PX = 480_000; // which takes 0.36 s a picture on two busy cores: docs/page.md
const FLOOR = { radius_m: 140, lined_m: 60, line_m: 2, piece_m: 10 }; // a line of one piece is not drawn in software
const HAZE = { from: 1.6, to: 7, most_m: 130 }; // in distances of the camera; less than the floor's radius
const MAST_M = 3;
const MAST_AT_M = 2.2; // beside the pad
const FRAME = { margin: 1.2, least_m: 1.9, smooth_s: 1.2 }; // what the camera keeps in sight
const SPIN_RADPS = 30; // of a propeller at full throttle, slowed down for the eye
const COLOURS = { hull: 0x56b4e9, nose: 0xe69f00, gondola: 0xe6edf3 };
const PLAIN = {
  hull: { length_m: 1.5, diameter_m: 0.75, height_m: 0 },
  thruster: [],
  servo: [],
  surface: [],
  limits: {},
};

const toScene = ([first, second, third]) => new three.Vector3(second, -third, -first);

export const panel = {
  name: "scene",
  title: "The ship",
  views: ["present", "pilot"],
  mount(box, page) {
    const canvas = element("canvas", { "aria-label": "the ship in three dimensions", role: "img" });
    const caption = element("p", { class: "scene-words" });
    box.dataset.testid = "scene";
    box.append(canvas, caption);
    const probe = document.createElement("canvas").getContext("webgl2");
    if (!probe) {
      say(caption, "This browser has no WebGL 2: the map and the numbers show the same.");
      canvas.hidden = true;
      return {};
    }
    return new Scene(canvas, caption, page, { isSoftware: isSoftware(probe) });
  },
};

class Scene {
  constructor(canvas, caption, page, { isSoftware }) {
    this.drawEveryS = isSoftware ? SOFTWARE_EVERY_S : EVERY_S;
    this.isSoftware = isSoftware;
    this.canvas = canvas;
    this.caption = caption;
    this.page = page;
    this.renderer = new three.WebGLRenderer({ canvas, antialias: true, powerPreference: "low-power" });
    this.scene = new three.Scene();
    this.scene.background = new three.Color(colour("sky"));
    this.camera = new three.PerspectiveCamera(45, 1, 0.2, 300);
    this.orbit = { turn: 0.7, lift: 0.3, zoom: 1 };
    this.reach_m = 0; // half of the hull
    this.frame = null; // centre and radius of what is kept in sight
    this.scene.add(new three.HemisphereLight(0xdfefff, 0x2a3540, 2.2));
    const sun = new three.DirectionalLight(0xffffff, 1.6);
    sun.position.set(4, 9, 3);
    this.scene.add(sun);
    this.addFloor();
    this.addPad();
    this.addMast();
    this.trailPoints = [];
    this.trail = this.addLine(TRAIL, colour("trail"), { fades: true });
    this.drop = this.addLine(2, colour("quiet"));
    this.shadow = this.addDisc(0.5, 0x000000, 0.35, 0.01);
    this.target = this.addTarget();
    this.wind = this.addWind();
    this.ship = new three.Group();
    this.scene.add(this.ship);
    this.propellers = [];
    this.standing_m = 0;
    this.at = null;
    this.listen();
  }

  hear(kind, content) {
    if (kind === "hello") this.build(content.about.airframe ?? PLAIN);
    else if (kind === "trail") this.trailPoints = content.map((one) => this.above(one));
    else if (kind === "state") this.take(content);
  }

  take(state) {
    if (this.ship.children.length === 0) this.build(this.page.about.airframe ?? PLAIN);
    if (this.boot !== undefined && this.boot !== state.boot_id) this.trailPoints = [];
    this.boot = state.boot_id;
    const here = this.above(state.position_ned_m); // the pad's height is 0 where the ship stands
    const last = this.trailPoints.at(-1);
    if (!last || last.distanceTo(here) > STEP_M) this.trailPoints.push(here);
    if (this.trailPoints.length > TRAIL) this.trailPoints.shift();
    const { roll, pitch, yaw } = state.attitude_rad;
    this.wanted = { here, roll, pitch, yaw };
    this.at ??= { here: here.clone(), roll, pitch, yaw };
    const known = state.target_ned_m.every((one) => one !== null);
    this.target.visible = known && state.armed;
    if (known) this.target.position.copy(this.above(state.target_ned_m));
    this.wind.visible = false;
    if (state.wind_ned_mps) this.pointWind(state.wind_ned_mps, state.ages.wind_ned_mps);
    say(this.caption, `${state.active_command.split(" ")[0] || state.mode} · the mast is ${MAST_M} m`);
  }

  above(position_ned_m) {
    const place = toScene(position_ned_m);
    place.y += this.standing_m;
    return place;
  }

  // --- what stands there --------------------------------------------------------------------

  /** A floor with a line each 2 m, which goes on under the ship and ends in the haze. */
  addFloor() {
    const floor = new three.Mesh(
      new three.RingGeometry(0, FLOOR.radius_m, 64),
      new three.MeshBasicMaterial({ color: colour("floor") }),
    );
    floor.rotation.x = -Math.PI / 2;
    floor.position.y = -0.02;
    const ink = new three.LineBasicMaterial({ color: colour("mark"), transparent: true, opacity: 0.45 });
    const across = [];
    const { lined_m, line_m, piece_m } = FLOOR;
    for (let at = -lined_m; at <= lined_m; at += line_m) {
      for (let from = -lined_m; from < lined_m; from += piece_m) {
        across.push(new three.Vector3(at, 0, from), new three.Vector3(at, 0, from + piece_m));
        across.push(new three.Vector3(from, 0, at), new three.Vector3(from + piece_m, 0, at));
      }
    }
    const lines = new three.LineSegments(new three.BufferGeometry().setFromPoints(across), ink);
    this.floor = new three.Group();
    this.floor.add(floor, lines);
    this.scene.add(this.floor);
    this.scene.fog = new three.Fog(colour("sky"), 1, 2);
  }

  addDisc(radius, color, opacity, height_m) {
    const disc = new three.Mesh(
      new three.RingGeometry(0, radius, 32),
      new three.MeshBasicMaterial({ color, transparent: true, opacity, depthWrite: false }),
    );
    disc.rotation.x = -Math.PI / 2;
    disc.position.y = height_m;
    this.scene.add(disc);
    return disc;
  }

  /** A mast beside the pad, striped each metre: what 3 m are. */
  addMast() {
    for (let metre = 0; metre < MAST_M; metre += 1) {
      const part = new three.Mesh(
        new three.CylinderGeometry(0.04, 0.04, 1, 10),
        new three.MeshBasicMaterial({ color: colour(metre % 2 ? "text" : "bad") }),
      );
      part.position.set(-MAST_AT_M, metre + 0.5, 0);
      this.scene.add(part);
    }
  }

  addPad() {
    const pad = new three.Mesh(
      new three.RingGeometry(0.55, 0.7, 48),
      new three.MeshBasicMaterial({ color: colour("text"), side: three.DoubleSide }),
    );
    pad.rotation.x = -Math.PI / 2;
    pad.position.y = 0.005;
    this.scene.add(pad);
    for (const [x, z, width, depth] of [[-0.18, 0, 0.07, 0.6], [0.18, 0, 0.07, 0.6], [0, 0, 0.3, 0.07]]) {
      const bar = new three.Mesh(new three.PlaneGeometry(width, depth), pad.material);
      bar.rotation.x = -Math.PI / 2;
      bar.position.set(x, 0.006, z);
      this.scene.add(bar);
    }
  }

  addLine(points, color, { fades = false } = {}) {
    const shape = new three.BufferGeometry();
    if (fades) shape.setAttribute("color", new three.BufferAttribute(new Float32Array(4 * points), 4));
    shape.setAttribute("position", new three.BufferAttribute(new Float32Array(3 * points), 3));
    shape.setDrawRange(0, 0);
    const line = new three.Line(shape, new three.LineBasicMaterial(fades ? { vertexColors: true, transparent: true } : { color }));
    line.userData = { fades, color: new three.Color(color) };
    line.frustumCulled = false;
    this.scene.add(line);
    return line;
  }

  addTarget() {
    const target = new three.Group();
    const material = new three.MeshBasicMaterial({ color: colour("set") });
    const ring = new three.Mesh(new three.TorusGeometry(0.35, 0.03, 8, 40), material);
    ring.rotation.x = Math.PI / 2;
    target.add(ring, new three.Mesh(new three.SphereGeometry(0.06, 12, 8), material));
    target.visible = false;
    this.scene.add(target);
    return target;
  }

  addWind() {
    const wind = new three.Group();
    const material = new three.MeshBasicMaterial({ color: colour("ship"), transparent: true });
    this.windMaterial = material;
    const shaft = new three.Mesh(new three.CylinderGeometry(0.02, 0.02, 1, 8), material);
    shaft.position.y = 0.5;
    const tip = new three.Mesh(new three.ConeGeometry(0.07, 0.2, 12), material);
    tip.position.y = 1.05;
    wind.add(shaft, tip);
    wind.visible = false;
    this.scene.add(wind);
    return wind;
  }

  /** Point the arrow to where the wind blows; one that is old is faint. */
  pointWind(wind_ned_mps, ageS) {
    this.windMaterial.opacity = ageS >= STALE_S ? 0.35 : 1;
    const blows = toScene(wind_ned_mps);
    const speed = blows.length();
    this.wind.visible = speed > 0.02;
    this.wind.scale.setScalar(0.6 + speed);
    this.wind.quaternion.setFromUnitVectors(new three.Vector3(0, 1, 0), blows.normalize());
  }

  addFence(limits) {
    if (!limits.max_distance_m || this.fence) return;
    this.fence = new three.Group();
    const material = new three.LineBasicMaterial({ color: 0xe0703a, transparent: true, opacity: 0.6 });
    for (const height of [0.02, limits.max_altitude_m]) {
      const points = [];
      for (let step = 0; step <= 96; step += 1) {
        const angle = (step / 96) * 2 * Math.PI;
        points.push(
          new three.Vector3(
            limits.max_distance_m * Math.cos(angle),
            height,
            limits.max_distance_m * Math.sin(angle),
          ),
        );
      }
      this.fence.add(new three.Line(new three.BufferGeometry().setFromPoints(points), material));
    }
    this.scene.add(this.fence);
  }

  // --- the ship, from its airframe ----------------------------------------------------------

  build(airframe) {
    this.ship.clear();
    this.propellers = [];
    const { hull } = airframe;
    const height = hull.height_m || hull.diameter_m;
    this.standing_m = Math.max(height / 2, ...(airframe.ground?.feet_m ?? []).map(([, , down]) => down));
    const envelope = new three.Mesh(
      new three.SphereGeometry(0.5, 40, 24),
      new three.MeshLambertMaterial({ color: COLOURS.hull }),
    );
    envelope.scale.set(hull.diameter_m, height, hull.length_m);
    const nose = new three.Mesh(
      new three.SphereGeometry(0.5, 24, 12, 0, 2 * Math.PI, 0, 0.55),
      new three.MeshLambertMaterial({ color: COLOURS.nose }),
    );
    nose.rotation.x = -Math.PI / 2;
    nose.scale.set(hull.diameter_m * 1.02, hull.length_m * 1.02, height * 1.02);
    this.ship.add(envelope, nose);
    const tail = new three.MeshLambertMaterial({ color: 0x3f86b5, side: three.DoubleSide });
    for (const turn of [0, Math.PI / 2]) {
      const fin = new three.Mesh(new three.PlaneGeometry(hull.diameter_m * 1.15, hull.length_m * 0.16), tail);
      fin.rotation.set(-Math.PI / 2, 0, 0);
      const holder = new three.Group();
      holder.add(fin);
      holder.position.z = hull.length_m * 0.42;
      holder.rotation.z = turn;
      this.ship.add(holder);
    }
    const gondola = new three.Mesh(
      new three.CylinderGeometry(0.06, 0.08, 0.34, 12),
      new three.MeshLambertMaterial({ color: COLOURS.gondola }),
    );
    gondola.rotation.x = Math.PI / 2;
    gondola.position.y = -height / 2 - 0.02;
    this.ship.add(gondola);
    for (const thruster of airframe.thruster) this.addPropeller(thruster);
    this.addFence(airframe.limits);
    this.reach_m = hull.length_m / 2;
    this.shadow.scale.set(hull.diameter_m, hull.length_m, 1);
  }

  addPropeller(thruster) {
    const mount = new three.Group();
    mount.position.copy(toScene(thruster.position_m));
    const disc = new three.Group();
    const radius = 0.1;
    const ring = new three.Mesh(
      new three.TorusGeometry(radius, 0.012, 8, 28),
      new three.MeshLambertMaterial({ color: 0x9fb0c0 }),
    );
    const blades = new three.Mesh(
      new three.PlaneGeometry(2 * radius, 0.03),
      new three.MeshBasicMaterial({ color: 0xffffff, side: three.DoubleSide }),
    );
    disc.add(ring, blades);
    disc.quaternion.setFromUnitVectors(new three.Vector3(0, 0, 1), toScene(thruster.axis).normalize());
    const push = new three.Mesh(
      new three.ConeGeometry(0.05, 1, 12),
      new three.MeshBasicMaterial({ color: COLOURS.nose, transparent: true, opacity: 0.85 }),
    );
    push.rotation.x = Math.PI / 2;
    disc.add(push);
    mount.add(disc);
    this.ship.add(mount);
    this.propellers.push({ name: thruster.name, tiltedBy: thruster.tilted_by, mount, blades, push });
  }

  turnPropellers(actuators, stepS) {
    for (const one of this.propellers) {
      const throttle = actuators[one.name] ?? 0;
      one.blades.rotation.z += SPIN_RADPS * throttle * stepS;
      one.mount.rotation.x = one.tiltedBy ? (actuators[one.tiltedBy] ?? 0) : 0;
      one.push.visible = Math.abs(throttle) > 0.02;
      one.push.scale.y = 0.25 + 0.9 * Math.abs(throttle);
      one.push.position.z = -Math.sign(throttle) * one.push.scale.y * 0.5; // the air it throws
      one.push.rotation.x = throttle > 0 ? -Math.PI / 2 : Math.PI / 2;
    }
  }

  // --- each picture -------------------------------------------------------------------------

  draw(nowS) {
    const stepS = Math.min(MOST_STEP_S, nowS - (this.drawnS ?? nowS));
    this.drawnS = nowS;
    if (!this.fit()) return;
    const state = this.page.state;
    if (this.at && this.wanted) {
      const isFresh = this.page.ageS < STALE_S;
      const share = 1 - Math.exp(-stepS / SMOOTH_S);
      this.at.here.lerp(this.wanted.here, share);
      for (const axis of ["roll", "pitch", "yaw"]) {
        this.at[axis] += share * wrapped(this.wanted[axis] - this.at[axis]);
      }
      this.ship.position.copy(this.at.here);
      this.ship.rotation.set(this.at.pitch, -this.at.yaw, -this.at.roll, "YXZ");
      if (state && isFresh) this.turnPropellers(state.actuators, stepS);
      this.canvas.classList.toggle("stale", !isFresh);
      this.shadow.position.set(this.at.here.x, 0.01, this.at.here.z);
      this.shadow.rotation.z = -this.at.yaw;
      const line = (metres) => FLOOR.line_m * Math.round(metres / FLOOR.line_m);
      this.floor.position.set(line(this.at.here.x), 0, line(this.at.here.z));
      this.lineThrough(this.trail, [...this.trailPoints, this.at.here]);
      const ground = new three.Vector3(this.at.here.x, 0, this.at.here.z);
      this.lineThrough(this.drop, [this.at.here, ground]);
      this.wind.position.copy(this.at.here).add(new three.Vector3(0, 1.1, 0));
    }
    this.look(stepS);
    this.renderer.render(this.scene, this.camera);
  }

  /** Keep ship, target and the ground below them in sight; a drag turns, the wheel comes nearer. */
  look(stepS) {
    const here = this.at?.here ?? new three.Vector3();
    const goal = this.target.visible ? this.target.position : here;
    const center = here.clone().lerp(goal, 0.5);
    center.y = 0.65 * Math.max(here.y, goal.y); // the hull is above its place, the pad may touch the edge
    const radius = FRAME.margin * Math.max(FRAME.least_m, center.distanceTo(here) + this.reach_m, center.distanceTo(goal));
    if (!this.isFramed) this.frame = { center: center.clone(), radius };
    this.isFramed = this.at !== null; // the camera is not seen to move to where the ship is found
    const share = 1 - Math.exp(-stepS / FRAME.smooth_s);
    this.frame.center.lerp(center, share);
    this.frame.radius += share * (radius - this.frame.radius);
    const { turn, lift, zoom } = this.orbit;
    const middle = this.frame.center;
    const { width, height } = this.free;
    const narrow = Math.min(height, width) / this.height;
    const distance = (zoom * this.frame.radius) / Math.sin((Math.PI / 360) * this.camera.fov * narrow);
    this.scene.fog.near = Math.min(HAZE.from * distance, HAZE.most_m / 2);
    this.scene.fog.far = Math.min(HAZE.to * distance, HAZE.most_m);
    this.camera.position.set(
      middle.x + distance * Math.cos(lift) * Math.sin(turn),
      Math.max(0.3, middle.y + distance * Math.sin(lift)),
      middle.z + distance * Math.cos(lift) * Math.cos(turn),
    );
    this.camera.lookAt(middle);
  }

  /** What no panel covers: numbers lie along the upper edge, the journey along the lower one, a map right. */
  uncovered(width, height) {
    const own = this.canvas.getBoundingClientRect();
    const over = (name) => {
      const box = document.querySelector(`#panels > .${name}`)?.getBoundingClientRect();
      return box?.height && box.left < own.right && box.right > own.left && box.top < own.bottom && box.bottom > own.top ? box : null;
    };
    const top = Math.max(0, (over("numbers")?.bottom ?? own.top) - own.top);
    const bottom = Math.min(height, (over("journey")?.top ?? own.bottom) - own.top);
    const right = Math.min(width, (over("map")?.left ?? own.right) - own.left);
    return { left: 0, top, width: right, height: Math.max(1, bottom - top) };
  }

  lineThrough(line, points) {
    const places = line.geometry.getAttribute("position");
    const shown = points.slice(-places.count);
    shown.forEach((one, index) => places.setXYZ(index, one.x, one.y, one.z));
    places.needsUpdate = true;
    if (line.userData.fades) {
      const { r, g, b } = line.userData.color;
      const inks = line.geometry.getAttribute("color");
      shown.forEach((_, index) => inks.setXYZW(index, r, g, b, (index + 1) / shown.length));
      inks.needsUpdate = true;
    }
    line.geometry.setDrawRange(0, shown.length);
  }

  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (width === 0 || height === 0) return false;
    const free = this.uncovered(width, height);
    const isSame = ["top", "width", "height"].every((one) => this.free?.[one] === free[one]);
    if (this.width !== width || this.height !== height || !isSame) {
      Object.assign(this, { width, height, free });
      const ratio = this.isSoftware ? Math.sqrt(SOFTWARE_PX / (width * height)) : 2;
      this.renderer.setPixelRatio(Math.min(ratio, window.devicePixelRatio));
      this.renderer.setSize(width, height, false);
      this.camera.aspect = width / height;
      const aside = [width / 2 - (free.left + free.width / 2), height / 2 - (free.top + free.height / 2)];
      this.camera.setViewOffset(width, height, ...aside, width, height);
    }
    return true;
  }

  // --- looking around: drag and wheel -------------------------------------------------------

  listen() {
    const { canvas, orbit } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = [event.clientX, event.clientY];
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return;
      orbit.turn -= (event.clientX - this.drag[0]) * 0.008;
      orbit.lift = Math.min(1.5, Math.max(-0.2, orbit.lift + (event.clientY - this.drag[1]) * 0.006));
      this.drag = [event.clientX, event.clientY];
    });
    canvas.addEventListener("pointerup", () => (this.drag = null));
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        orbit.zoom = Math.min(8, Math.max(0.3, orbit.zoom * (event.deltaY > 0 ? 1.1 : 1 / 1.1)));
      },
      { passive: false },
    );
  }

  close() {
    this.renderer.dispose();
    this.renderer.forceContextLoss();
  }
}

function isSoftware(context) {
  const known = context.getExtension("WEBGL_debug_renderer_info");
  const name = known ? String(context.getParameter(known.UNMASKED_RENDERER_WEBGL)) : "";
  context.getExtension("WEBGL_lose_context")?.loseContext();
  return /swiftshader|llvmpipe|software/i.test(name);
}

function wrapped(angle) {
  return Math.atan2(Math.sin(angle), Math.cos(angle));
}
