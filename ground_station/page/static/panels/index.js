// The panels, in the order in which they stand. A new panel is one file here, and one line below:
//   { name, title, view, mount(box, page) -> { hear(kind, content), draw(nowS), close() } }
// All three are optional. `page` is documented in page.js.
import { panel as commands } from "./commands.js";
import { panel as journey } from "./journey.js";
import { panel as map } from "./map.js";
import { panel as numbers } from "./numbers.js";
import { panel as plots } from "./plots.js";
import { panel as scene } from "./scene.js";

export const VIEWS = [
  { name: "ship", title: "Ship" },
  { name: "plots", title: "Plots" },
];

export const PANELS = [
  scene,
  numbers,
  map,
  commands,
  journey,
  plots,
];
