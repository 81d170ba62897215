// The photographs of the ship: previews, the newest first. A click has the whole one fetched, and
// saves it when it is here; nothing of it is shown before.
import { address } from "../lib/connection.js";
import { element, say } from "../lib/dom.js";
import { number } from "../lib/format.js";
import { authorisation } from "../lib/token.js";

const LOOK_MS = 2000;

export const panel = {
  name: "photos",
  title: "Photographs",
  views: ["photos"],
  mount(box, page) {
    const words = element("p", { class: "note", role: "status", "data-testid": "photo-words" }, "Looking for photographs.");
    const list = element("ol", { class: "photos", reversed: true, "data-testid": "photos" });
    const take = element("button", { type: "button", "data-testid": "photo-take" }, "Photograph");
    box.append(take, words, list);
    return new Album({ list, words, take, page });
  },
};

class Album {
  constructor(parts) {
    Object.assign(this, parts);
    this.rows = new Map(); // by name
    this.take.addEventListener("click", async () => {
      this.take.disabled = true;
      await this.page.command("photo");
      this.take.disabled = false;
      this.look();
    });
    this.timer = setInterval(() => document.hidden || this.look(), LOOK_MS);
    this.look();
  }

  hear(kind, content) {
    if (kind === "hello") this.take.disabled = content.role !== "operator";
  }

  address(path) {
    const url = address(path);
    url.searchParams.set("vehicle", this.page.vehicle);
    return url;
  }

  async look() {
    try {
      const answer = await fetch(this.address("api/photos"), { headers: authorisation() });
      const { photos, trouble } = await answer.json();
      if (!this.isClosed) this.show(photos, trouble);
    } catch {
      say(this.words, "the page's server does not answer");
    }
  }

  show(photos, trouble) {
    say(this.words, trouble || (photos.length ? `${photos.length} photographs` : "No photographs yet."));
    const names = new Set(photos.map((one) => one.name));
    for (const [name, row] of this.rows) if (!names.has(name)) this.forget(name, row);
    for (const one of photos) {
      const row = this.rows.get(one.name) ?? this.made(one);
      row.about = one;
      const part = one.got_bytes ? `${number((100 * one.got_bytes) / one.bytes, 0)} %` : one.is_wanted ? "waits" : "on the ship";
      say(row.state, `${number(one.bytes / 1e6, 2)} MB, ${one.is_here ? "here" : part}`);
      if (one.has_preview && !row.url) this.preview(row);
      if (one.is_here && row.isWanted) this.save(row);
    }
    const rows = photos.map((one) => this.rows.get(one.name).box);
    if (rows.some((box, at) => this.list.children[at] !== box)) this.list.replaceChildren(...rows);
  }

  made({ name, taken_s }) {
    const time = new Date(1000 * taken_s).toLocaleString("en-GB");
    const image = element("img", { alt: `photograph of ${time}`, hidden: true });
    const state = element("span", { class: "note" });
    const row = { image, state };
    const click = () => this.want(row);
    const button = element("button", { type: "button", "data-testid": "photo", on: { click } }, image, element("time", {}, time), state);
    row.box = element("li", { "data-name": name }, button);
    this.rows.set(name, row);
    return row;
  }

  async preview(row) {
    row.url = "asked";
    const url = this.address(`api/photos/${row.about.name}`);
    url.searchParams.set("preview", "1");
    const answer = await fetch(url, { headers: authorisation() });
    row.url = answer.status === 200 ? URL.createObjectURL(await answer.blob()) : "";
    if (!row.url) return;
    row.image.src = row.url;
    row.image.hidden = false;
  }

  async want(row) {
    row.isWanted = true;
    if (row.about.is_here) return this.save(row);
    const ship = encodeURIComponent(this.page.vehicle);
    const outcome = await this.page.post(`api/photos/${row.about.name}?vehicle=${ship}`, {});
    if (outcome.state === "PENDING") say(row.state, "waits");
    else say(this.words, outcome.reason ?? outcome.state);
  }

  async save(row) {
    row.isWanted = false;
    const answer = await fetch(this.address(`api/photos/${row.about.name}`), { headers: authorisation() });
    if (answer.status === 200) this.page.save(`${row.about.name}.jpg`, await answer.blob());
  }

  forget(name, row) {
    if (row.url) URL.revokeObjectURL(row.url);
    row.box.remove();
    this.rows.delete(name);
  }

  close() {
    this.isClosed = true;
    clearInterval(this.timer);
    for (const [name, row] of this.rows) this.forget(name, row);
  }
}
