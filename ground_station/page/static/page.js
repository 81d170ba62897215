// The page: the strip on top, the story line, and the panels of the view that is chosen.
import { Connection, get, post, refused } from "./lib/connection.js";
import { element, say } from "./lib/dom.js";
import { OLD_S, Value } from "./lib/freshness.js";
import { age, isSuperseded, number, reason } from "./lib/format.js";
import { Samples } from "./lib/samples.js";
import { prepareStop } from "./lib/stop.js";
import { themeSwitch } from "./lib/theme.js";
import { signIn } from "./lib/token.js";
import { PANELS, VIEWS } from "./panels/index.js";

await signIn();
const options = new URLSearchParams(location.search);
const DRAW_EVERY_S = 1 / 30;
const EARLY_S = 0.004; // a picture comes with the screen's next one, up to this before its time
const SHIPS_MS = 3000;
const CAPTION_MS = 1500; // for which a line of the story stands at least, to be read
const STORY_MS = 60_000; // after which a line of the story is the past,
const NEWS_MS = 10_000; // and a word of the ship
const [PRESENT, PILOT] = [0, 1]; // of VIEWS
const NARROW = matchMedia("(max-width: 760px)"); // a phone
const MOST_COMMANDS = 30; // as the server keeps
const MOST_TRAIL = 1500;
const TRAIL_STEP_M = 0.1;
const WAITING_LINES = 3; // a story that is told faster loses its oldest lines

class Page {
  constructor() {
    this.vehicle = options.get("vehicle") ?? "";
    this.about = {};
    this.mayCommand = false;
    this.state = null;
    this.heardS = -Infinity;
    this.isConnected = false;
    this.trouble = "";
    this.mounted = [];
    this.story = [];
    this.pastMs = 0; // when the line that stands there is the past
    this.news = null;
    this.samples = new Samples();
    this.kept = new Map(); // the newest of each kind, for panels that are mounted later
    document.body.classList.toggle("stage", options.get("stage") === "1");
    this.strip = this.makeStrip();
    this.stop = prepareStop({ vehicle: () => this.vehicle });
    this.makeViews();
    document.getElementById("strip").append(themeSwitch(() => this.show(this.view)));
    const asked = VIEWS.find((one) => one.name === location.hash.slice(1));
    this.show(asked ?? VIEWS[options.get("stage") === "1" ? PRESENT : PILOT]);
    this.isChosen = Boolean(asked);
    this.connection = new Connection({
      vehicle: this.vehicle,
      hear: (kind, content) => this.hear(kind, content),
      changed: (isOpen, reason) => this.connectionChanged(isOpen, reason),
    });
    setInterval(() => this.tick(), 100);
    setInterval(() => this.lookForShips(), SHIPS_MS);
    this.lookForShips();
    requestAnimationFrame((ms) => this.drawAll(ms / 1000));
  }

  // --- what panels use --------------------------------------------------------------------

  /** Send a command as `ground --json NAME` would; return its outcome. */
  async command(name, content = {}) {
    const said = document.getElementById("said");
    say(said, `${name}: sent`);
    const ship = encodeURIComponent(this.vehicle);
    const outcome = await post(`api/command/${name}?vehicle=${ship}`, content);
    const words = outcome.state === "SUCCESS" ? "done" : `${outcome.state}: ${reason(outcome.reason ?? "")}`;
    // The command that took its place says more, and says it now.
    if (!isSuperseded(outcome.reason)) say(said, `${name}: ${words}`);
    return outcome;
  }

  /** Save what the plots show, as a table. */
  saveLog() {
    this.save(`${this.vehicle}.csv`, new Blob([this.samples.csv()], { type: "text/csv" }));
  }

  /** Save the ship from above, as a picture; a view that has it in any window is shown for it. */
  savePicture() {
    if (!document.querySelector("[data-testid=map]")?.clientWidth) this.show(VIEWS[PILOT]);
    requestAnimationFrame(() => {
      const map = document.querySelector("[data-testid=map]");
      this.mounted.find((one) => one.canvas === map)?.draw();
      const picture = element("canvas", { width: map.width, height: map.height });
      const context = picture.getContext("2d");
      context.fillStyle = getComputedStyle(document.body).getPropertyValue("--panel");
      context.fillRect(0, 0, picture.width, picture.height);
      context.drawImage(map, 0, 0);
      picture.toBlob((blob) => this.save(`${this.vehicle}.png`, blob), "image/png");
    });
  }

  save(name, blob) {
    const url = URL.createObjectURL(blob);
    element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  }

  post = post;
  get = get;

  /** Tell the ship's source a wish, such as the place in a recording. */
  ask(kind, content) {
    this.connection.ask(kind, content);
  }

  /** Make a value that ages by itself; see lib/freshness.js. */
  value(parts) {
    return new Value(parts);
  }

  /** Seconds since the ship measured what is shown now. */
  get ageS() {
    return this.state === null ? Infinity : performance.now() / 1000 - this.heardS;
  }

  get isLost() {
    return this.ageS >= OLD_S;
  }

  /** Let each panel draw, as often as it wants: a picture must not cost the ship its processor. */
  drawAll(nowS) {
    for (const one of this.mounted) {
      const everyS = one.drawEveryS ?? DRAW_EVERY_S;
      if (one.draw && nowS - (one.drewS ?? 0) >= everyS - EARLY_S) {
        // The rate holds in the mean on a screen whose own rate is no multiple of it.
        one.drewS = Math.max((one.drewS ?? 0) + everyS, nowS - everyS / 2);
        one.draw(nowS);
      }
    }
    requestAnimationFrame((ms) => this.drawAll(ms / 1000));
  }

  // --- the server -------------------------------------------------------------------------

  hear(kind, content) {
    if (kind === "command") this.keepCommand(content);
    else this.kept.set(kind, content);
    if (kind === "hello") this.greet(content);
    else if (kind === "state") this.take(content);
    else if (kind === "trouble") this.trouble = content;
    else if (kind === "caption") this.tellStory(content.text);
    this.samples.hear(kind, content);
    for (const one of this.mounted) one.hear?.(kind, content);
  }

  /** A view that is opened later shows the commands that were, and where the ship was. */
  keepCommand(command) {
    const known = new Map((this.kept.get("commands") ?? []).map((one) => [one.id, one]));
    this.kept.set("commands", [...known.set(command.id, command).values()].slice(-MOST_COMMANDS)); // each in its place
  }

  keepTrail({ position_ned_m: here, boot_id }) {
    const trail = this.state && this.state.boot_id !== boot_id ? [] : (this.kept.get("trail") ?? []);
    const last = trail.at(-1);
    if (!last || Math.hypot(...here.map((one, axis) => one - last[axis])) > TRAIL_STEP_M) trail.push(here);
    this.kept.set("trail", trail.slice(-MOST_TRAIL));
  }

  greet(hello) {
    this.vehicle = hello.vehicle;
    this.about = hello.about;
    this.mayCommand = hello.may_command;
    this.isLive = hello.is_live;
    document.body.classList.toggle("look-only", !hello.may_command);
    document.getElementById("stop-box").hidden = hello.role !== "operator";
    this.strip.recording.hidden = hello.is_live;
    if (hello.may_command) this.stop.open();
    const stop = document.getElementById("estop");
    stop.disabled = !hello.is_live;
    say(stop, hello.is_live ? "EMERGENCY STOP" : "No ship to stop");
    for (const view of VIEWS.filter((one) => one.isLive)) {
      document.querySelector(`#views [data-view="${view.name}"]`).hidden = !hello.is_live;
      if (!hello.is_live && location.hash === `#${view.name}`) this.show(VIEWS[0]);
    }
    // Who shows harm, or only looks, is shown the whole; who commands alone, the commands.
    const presents = !hello.may_command || (hello.about.chaos && !NARROW.matches);
    if (!this.isChosen && presents) this.show(VIEWS[PRESENT]);
    this.isChosen = true;
    say(document.getElementById("vehicle"), hello.vehicle);
    document.title = `${hello.vehicle} – blimp`;
    this.able();
  }

  /** The caption line: what a show tells, line by line. */
  tellStory(text, forMs = STORY_MS) {
    this.story = [...this.story, { text, forMs }].slice(-WAITING_LINES);
    if (this.nextLine) return;
    const next = () => {
      this.nextLine = null;
      if (!this.story.length) return;
      const line = this.story.shift();
      say(document.getElementById("caption"), line.text);
      this.pastMs = performance.now() + line.forMs;
      this.nextLine = setTimeout(next, CAPTION_MS);
    };
    next();
  }

  /** While no line of the story is new: the ship's newest word for a while, then what it does. */
  tellState(state) {
    const news = state.messages.at(-1) ?? "";
    const isNew = this.news !== null && news !== "" && news !== this.news;
    this.news = news;
    if (performance.now() < this.pastMs) return;
    if (isNew) return this.tellStory(`${state.vehicle}: ${news}`, NEWS_MS);
    const does = state.killed ? "stopped" : state.armed ? `armed, in ${state.mode}` : "disarmed";
    say(document.getElementById("caption"), `${state.vehicle}: ${state.failsafe || does}.`);
  }

  take(state) {
    this.tellState(state);
    this.keepTrail(state);
    this.state = state;
    this.heardS = performance.now() / 1000 - state.age_s;
    const { mode, armed, altitude, battery, link, simulated } = this.strip;
    const ages = state.ages;
    mode.set(state.mode, ages.mode);
    armed.set(state.killed ? "KILLED" : state.armed ? "ARMED" : "disarmed", ages.armed);
    armed.root.dataset.state = state.killed ? "killed" : state.armed ? "armed" : "disarmed";
    altitude.set(number(state.altitude_m, 1), ages.altitude_m);
    battery.set(number(state.battery_v, 1), ages.battery_v);
    link.since = this.heardS;
    link.tick();
    simulated.hidden = !state.simulated;
  }

  connectionChanged(isOpen, reason) {
    this.isConnected = isOpen;
    this.closed = reason;
  }

  async lookForShips() {
    try {
      const found = await get("api/ships");
      if (found.vehicles) this.shipsFound(found.vehicles);
    } catch {
      // The age of what is shown says it already.
    }
  }

  shipsFound(names) {
    document.getElementById("stop-whom").hidden = names.length < 2;
    const box = document.getElementById("vehicle");
    if (names.length < 2 || this.names?.join() === names.join()) return;
    this.names = names;
    const choose = element(
      "select",
      {
        "aria-label": "ship",
        on: {
          change: (event) => {
            options.set("vehicle", event.target.value);
            location.search = options.toString();
          },
        },
      },
      ...names.map((name) => element("option", { value: name, selected: name === this.vehicle }, name)),
    );
    box.replaceChildren(choose);
  }

  // --- the strip --------------------------------------------------------------------------

  makeStrip() {
    const simulated = element("span", { class: "badge", "data-testid": "simulated", hidden: true }, "SIMULATED");
    const recording = element("span", { class: "badge", "data-testid": "recording", hidden: true }, "RECORDING");
    const mode = new Value({ testid: "mode", label: "mode" });
    const armed = new Value({ testid: "armed", label: "motors" });
    const altitude = new Value({ testid: "altitude", label: "altitude", unit: "m" });
    const battery = new Value({ testid: "battery", label: "battery", unit: "V" });
    const link = new Value({ testid: "link-age", label: "link" });
    link.ticked = (ageS) => say(link.text, this.state ? age(ageS) : "none");
    document
      .getElementById("strip-values")
      .append(recording, simulated, mode.root, armed.root, altitude.root, battery.root, link.root);
    return { recording, simulated, mode, armed, altitude, battery, link };
  }

  tick() {
    const lost = document.getElementById("lost");
    const isSilent = this.isLost || (!this.isConnected && this.ageS > 1) || refused() !== "";
    document.body.classList.toggle("lost", this.isLost);
    lost.hidden = !isSilent || (this.state === null && !this.trouble && this.isConnected);
    if (isSilent) say(lost, this.lossWords());
    this.able();
  }

  /** Say what the ship does by itself while nobody reaches it, and what comes next. */
  lossWords() {
    const state = this.state;
    if (refused()) return `This browser is not signed in: ${refused()}.`;
    if (this.kept.has("end")) return "The show is over: what is seen is its last moment.";
    const silent = this.trouble ? "The broker does not answer." : "";
    const why = this.isConnected ? silent : `This page's server does not answer. ${this.closed ?? ""}`;
    if (this.isLive === false) return why || `The recording says nothing for ${age(this.ageS)}.`;
    if (!state) return `No word from the ship. Is it on, and on this broker? ${this.trouble || why}`;
    const begun = `No word from ${state.vehicle} for ${age(this.ageS)}.`;
    if (!state.armed) return `${begun} Its motors were off. ${why}`;
    const silentS = this.ageS + state.link_age_s;
    const plan = this.about.link_loss ?? [];
    const done = plan.filter(([afterS]) => silentS >= afterS).at(-1);
    const next = plan.find(([afterS]) => silentS < afterS);
    const now = done ? `On board: it ${done[1]}` : "On board: it goes on";
    const then = next ? `; in ${Math.ceil(next[0] - silentS)} s it ${next[1]}.` : ".";
    const doing = "You: wait, or press the emergency stop; commands are off until it is heard.";
    return `${begun} ${now}${then} ${why} ${doing}`;
  }

  /**
   * Everything that commands is disabled without a link; what has `data-controls` is for operators, but needs
   * none. The emergency stop never is disabled. A panel leaves it to this: it may be filled before the
   * greeting says who looks.
   */
  able() {
    for (const one of document.querySelectorAll("[data-commands], [data-controls]")) {
      const isCut = this.isLost && "commands" in one.dataset;
      one.disabled = !this.mayCommand || isCut || Boolean(one.dataset.busy || one.dataset.off);
    }
  }

  // --- views and panels -------------------------------------------------------------------

  makeViews() {
    const nav = document.getElementById("views");
    for (const view of VIEWS) {
      const button = element("button", { type: "button", on: { click: () => this.show(view) } }, view.title);
      button.dataset.view = view.name;
      nav.append(button);
    }
  }

  show(view) {
    for (const one of this.mounted) if (!this.always?.includes(one)) one.close?.();
    const main = document.getElementById("panels");
    main.replaceChildren();
    main.dataset.view = view.name;
    this.view = view;
    this.isChosen = true;
    say(document.getElementById("said"), ""); // it answered a button of another view
    history.replaceState(null, "", `${location.pathname}${location.search}#${view.name}`);
    for (const one of document.querySelectorAll("#views button")) {
      one.setAttribute("aria-current", one.dataset.view === view.name ? "page" : "false");
    }
    this.always ??= PANELS.filter((one) => !one.views).map((one) => one.mount(null, this) ?? {});
    this.mounted = [...this.always];
    for (const panel of PANELS.filter((one) => one.views?.includes(view.name))) this.mount(main, panel);
  }

  mount(main, panel) {
    const id = `panel-${panel.name}`;
    const body = element("div", { class: "body" });
    main.append(
      element(
        "section",
        { class: `panel ${panel.name}`, "aria-labelledby": id },
        element("h2", { id }, panel.title),
        body,
      ),
    );
    const mounted = panel.mount(body, this) ?? {};
    this.mounted.push(mounted);
    for (const [kind, content] of this.kept) mounted.hear?.(kind, content);
  }
}

window.page = new Page();
