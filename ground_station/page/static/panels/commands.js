// The commands of a flight. Each is sent at once; the ship says no to what it must not do. Fields, units,
// limits and what they begin with are those of the table of actions, as the server serves it.
import { element, say } from "../lib/dom.js";
import { Steps } from "./steps.js";

const PHONE = matchMedia("(max-width: 760px), (max-height: 480px)"); // as page.css has it
const FIRST_M = "1"; // of a first hover: docs/pi.md

// What has a button of its own, and what stands on it: of their arguments those that must be given. All
// others are chosen from a list.
const BUTTONS = {
  arm: "Arm", takeoff: "Take off", hold: "Hold", return: "Return", land: "Land", disarm: "Disarm", goto: "Go there",
};

export const panel = {
  name: "commands",
  title: "Commands",
  views: ["pilot"],
  mount(box, page) {
    const commands = new Commands(box, page);
    commands.load();
    return {
      hear(kind, content) {
        if (kind === "state") commands.steps.take(content);
        return kind === "hello" && commands.load().then(() => commands.withhold());
      },
    };
  },
};

class Commands {
  constructor(box, page) {
    this.box = box;
    this.page = page;
    this.actions = new Map(); // their fields, by name
    this.fields = new Map(); // of the buttons: a takeoff and a goto ask for the same altitude
    const buttons = Object.entries(BUTTONS).map(([name, words]) =>
      this.button(name, words, () => [name, this.required(name).map((one) => this.fields.get(one.name))]));
    for (const one of buttons) one.dataset.off = "yes"; // until the table is there
    this.buttons = buttons;
    this.last = buttons.at(-1); // beside the fields
    this.steps = new Steps(box, Object.fromEntries(Object.keys(BUTTONS).map((name, k) => [name, buttons[k]])));
    box.append(element("div", { class: "row" }, ...buttons.slice(0, -1)), element("div", { class: "row" }, this.last));
    page.able();
  }

  required(name) {
    return this.actions.get(name).fields.filter((one) => one.isRequired);
  }

  async load() {
    if (this.actions.size) return;
    let found;
    try {
      found = await this.page.get("api/openapi.json");
    } catch {
      return; // the age of the link says it; it is asked again once the server is heard
    }
    if (this.actions.size) return; // by a second question meanwhile
    for (const [path, { post }] of Object.entries(found.paths)) {
      this.actions.set(path.split("/").pop(), { ...post, fields: fieldsOf(post, found.components.schemas) });
    }
    this.show();
  }

  show() {
    for (const one of Object.keys(BUTTONS).flatMap((name) => this.required(name))) {
      if (!this.fields.has(one.name)) this.fields.set(one.name, new Field(one));
    }
    if (PHONE.matches) this.fields.get("altitude_m").input.value = FIRST_M;
    this.last.before(...[...this.fields.values()].map((one) => one.label));
    this.box.append(this.list());
    this.withhold();
  }

  /** Why this ship can never do it, "" if it can: no sensor of it measures what the action needs. */
  missing(name) {
    const lacks = this.page.about.airframe?.lacks ?? {};
    const need = this.actions.get(name)["x-needs"].find((one) => one in lacks);
    return need ? `${name} needs ${need}: this ship has ${lacks[need]}` : "";
  }

  withhold() {
    if (!this.actions.size) return; // until the table is there
    for (const [k, name] of Object.keys(BUTTONS).entries()) {
      this.buttons[k].title = this.missing(name);
      this.buttons[k].dataset.off = this.missing(name) && "yes";
    }
    for (const one of this.options) one.disabled = Boolean((one.title = this.missing(one.value)));
    this.page.able();
  }

  /** Every action that has a form; what a terminal asks a person about has a place of its own. */
  list() {
    const names = [...this.actions].filter(([, one]) => !one["x-asks"] && one.fields.every((field) => field.kind)).map(([name]) => name);
    this.options = names.map((name) => element("option", { value: name }, name));
    const choice = element("select", { "aria-label": "command", "data-testid": "command-name" }, ...this.options);
    const place = element("div", { class: "row", "data-testid": "command-fields" });
    let fields;
    const choose = () => {
      const action = this.actions.get(choice.value);
      choice.title = action.summary;
      fields = action.fields.map((one) => new Field(one));
      place.replaceChildren(...fields.map((one) => one.label));
      this.page.able();
    };
    choice.addEventListener("change", choose);
    choose();
    const send = this.button("send", "Send", () => [choice.value, fields]);
    return element("details", {}, element("summary", {}, "All commands"), element("div", { class: "row" }, choice, send), place);
  }

  button(name, words, what) {
    const click = () => {
      const [action, fields] = what();
      try {
        const content = fields.map((one) => [one.name, one.read()]).filter(([, value]) => value !== undefined);
        this.page.command(action, Object.fromEntries(content));
      } catch (error) {
        say(document.getElementById("said"), `${action}: not sent: ${error.message}`);
      }
    };
    return element("button", { type: "button", "data-testid": `command-${name}`, "data-commands": "", on: { click } }, words);
  }
}

/** What the form of an action asks for. A switch is no part of it: `force` skips the ship's checks. */
function fieldsOf(post, schemas) {
  const form = schemas[post.requestBody.content["application/json"].schema.$ref.split("/").pop()];
  return Object.entries(form.properties ?? {})
    .map(([name, given]) => {
      const schema = { ...given, ...given.anyOf?.find((one) => one.type !== "null") };
      const kind = { number: "number", integer: "number", string: "text", boolean: "switch" }[schema.type];
      return { name, kind, schema, isRequired: form.required?.includes(name) ?? false };
    })
    .filter((one) => one.kind !== "switch");
}

class Field {
  constructor({ name, kind, schema, isRequired }) {
    Object.assign(this, { name, kind, schema, isRequired, unit: schema["x-unit"] });
    this.input = element("input", {
      type: kind, name, min: schema.minimum, max: schema.maximum, title: schema.description,
      value: schema.default ?? schema.examples?.[0], "data-unit": this.unit, "data-commands": "",
      step: kind === "number" ? (schema["x-step"] ?? (schema.type === "integer" ? 1 : "any")) : null,
    });
    const words = name.split("_").slice(0, this.unit ? 1 : undefined).join(" ");
    this.label = element("label", {}, element("span", {}, this.unit ? `${words}, ${this.unit}` : words), this.input);
  }

  /** Return the value, undefined for none. An empty field is no 0, which is the pad. */
  read() {
    const text = this.input.value.trim();
    const { minimum: low, maximum: high } = this.schema;
    if (text === "" && !this.isRequired && !this.input.validity.badInput) return undefined;
    let problem = text === "" ? `no ${this.kind}` : "";
    if (Number(text) < low || Number(text) > high) problem = `${text}, must be ${low} to ${high}`;
    if (!problem) return this.kind === "number" ? Number(text) : text;
    this.input.focus();
    throw new RangeError(`${this.label.firstChild.textContent}: ${problem}`);
  }
}
