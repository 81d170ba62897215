// The queue's own page: one panel, and what it needs of a page.
import { get, post } from "./lib/connection.js";
import { say } from "./lib/dom.js";
import { Value } from "./lib/freshness.js";
import { themeSwitch } from "./lib/theme.js";
import { signIn } from "./lib/token.js";
import { panel } from "./panels/queue.js";

await signIn();
document.getElementById("strip").append(themeSwitch());

const page = {
  isQueueOnly: true,
  vehicle: "",
  mayCommand: false,
  isLost: false,
  get,
  post,
  value: (parts) => new Value(parts),

  queueFound(found) {
    this.mayCommand = found.may_command;
    document.body.classList.toggle("look-only", !found.may_command);
    document.getElementById("mode").hidden = found.may_command;
    say(document.getElementById("app"), found.app);
    document.title = `${found.app} – queue`;
  },

  /** Say why there is no answer; "" if there is one. It is asked for again. */
  queueLost(why) {
    this.isLost = why !== "";
    const line = document.getElementById("lost");
    line.hidden = !this.isLost;
    if (this.isLost) say(line, why);
    this.able();
  },

  able() {
    for (const one of document.querySelectorAll("[data-commands]")) one.disabled = !this.mayCommand || this.isLost;
  },
};

panel.mount(document.getElementById("queue"), page);
