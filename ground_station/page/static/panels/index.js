// The panels, in the order in which they stand. A new panel is one file here, and one line below:
//   { name, title, views, mount(box, page) -> { hear(kind, content), draw(nowS), close() } }
// `drawEveryS` beside `draw` says how often at most. All three are optional. Without `views` a panel is
// there in all of them, and has no box: `box` is null. `page` is documented in page.js.
import { panel as camera } from "./camera.js";
import { panel as chaos } from "./chaos.js";
import { panel as commands } from "./commands.js";
import { panel as end } from "./end.js";
import { panel as events } from "./events.js";
import { panel as fleet } from "./fleet.js";
import { panel as joystick } from "./joystick.js";
import { panel as journey } from "./journey.js";
import { panel as map } from "./map.js";
import { panel as numbers } from "./numbers.js";
import { panel as photos } from "./photos.js";
import { panel as plots } from "./plots.js";
import { panel as queue } from "./queue.js";
import { panel as replay } from "./replay.js";
import { panel as room } from "./room.js";
import { panel as scene } from "./scene.js";
import { panel as setup } from "./setup.js";

// A view is one task on one screen: what is longer scrolls inside its panel.
// isLive: it is about a broker, which a recording has none of.
export const VIEWS = [
  { name: "present", title: "Present" },
  { name: "pilot", title: "Pilot" },
  { name: "engineer", title: "Engineer" },
  { name: "photos", title: "Photos", isLive: true },
  { name: "queue", title: "Queue", isLive: true },
  { name: "fleet", title: "Fleet", isLive: true },
  { name: "setup", title: "Setup", isLive: true },
];

export const PANELS = [
  scene,
  camera,
  numbers,
  map,
  commands,
  chaos,
  joystick,
  journey,
  plots,
  events,
  photos,
  queue,
  fleet,
  setup,
  end,
  room,
  replay,
];
