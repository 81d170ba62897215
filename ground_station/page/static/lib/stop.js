// The emergency stop. One press, a plain request, repeated until the ship has confirmed it.
import { say } from "./dom.js";
import { post } from "./connection.js";
import { milliseconds } from "./format.js";

const AGAIN_MS = 300;
const GIVE_UP_MS = 15000;
const REQUEST_MS = 7000;

export function prepareStop({ vehicle }) {
  const button = document.getElementById("estop");
  const whom = document.getElementById("stop-whom");
  const answer = document.getElementById("stop-answer");
  let presses = 0;

  async function press() {
    const mine = ++presses;
    const wanted = whom.value || vehicle();
    const began = performance.now();
    button.dataset.state = "sending";
    answer.hidden = false;
    answer.dataset.state = "sending";
    for (let attempt = 1; mine === presses; attempt += 1) {
      say(answer, attempt === 1 ? "Stopping …" : `Stopping … sent ${attempt} times`);
      const outcome = await post("api/estop", { vehicle: wanted }, { timeoutMs: REQUEST_MS });
      if (mine !== presses) return;
      if (outcome.state === "SUCCESS") return show("confirmed", words(outcome, wanted));
      if (performance.now() - began > GIVE_UP_MS) {
        return show("failed", `NOT CONFIRMED: ${words(outcome, wanted)}. Press again.`);
      }
      show("sending", `Not confirmed yet: ${words(outcome, wanted)}`);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  function show(state, text) {
    button.dataset.state = answer.dataset.state = state;
    say(answer, text);
  }

  button.addEventListener("click", press);
}

function words(outcome, wanted) {
  if (outcome.ships) {
    return Object.entries(outcome.ships)
      .map(([name, one]) => `${name}: ${words(one, name)}`)
      .join("; ");
  }
  if (outcome.state !== "SUCCESS") return outcome.reason || outcome.state;
  return `${wanted || "the ship"} confirms: all outputs stopped, in ${milliseconds(outcome.latency_ms)}`;
}
