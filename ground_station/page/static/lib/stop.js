// The emergency stop. One press goes two ways at once: on a socket that is open for nothing else and
// is proved alive every second, and as a plain request, which needs no socket. It is repeated until the
// ship has confirmed it. A browser holds a request back while six others wait for their answers; the
// socket has no such limit.
import { say } from "./dom.js";
import { address, post, refused } from "./connection.js";
import { milliseconds } from "./format.js";
import { protocols } from "./token.js";

const AGAIN_MS = 300;
const GIVE_UP_MS = 15000;
const REQUEST_MS = 7000;
const ALIVE_MS = 1000;
const DEAD_MS = 3000; // without an answer: it is opened again
const OPENING_MS = 6000; // which takes two round trips, or one and the second attempt at it

/** A socket for stops alone. */
class Road {
  constructor() {
    this.waiting = new Map();
    this.number = 0;
    this.open();
    setInterval(() => this.prove(), ALIVE_MS);
  }

  open() {
    const url = address("api/stop");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, protocols());
    this.socket = socket;
    const hear = () => (this.heardMs = performance.now());
    hear();
    socket.onopen = hear;
    socket.onmessage = (event) => {
      hear();
      const { id, outcome } = JSON.parse(event.data);
      this.waiting.get(id)?.(outcome);
      this.waiting.delete(id);
    };
  }

  prove() {
    if (refused()) return;
    const mostMs = this.socket.readyState === WebSocket.CONNECTING ? OPENING_MS : DEAD_MS;
    const isSilent = performance.now() - this.heardMs > mostMs;
    if (this.socket.readyState === WebSocket.CLOSED || isSilent) {
      this.socket.close();
      this.open();
    } else this.send({});
  }

  send(content) {
    if (this.socket.readyState !== WebSocket.OPEN) return 0;
    this.number += 1;
    this.socket.send(JSON.stringify({ id: this.number, ...content }));
    return this.number;
  }

  /** Stop a ship; return the outcome, UNSENT if the socket does not bring one. */
  stop(vehicle) {
    return new Promise((resolve) => {
      const id = this.send({ vehicle });
      const fail = () => resolve({ state: "UNSENT" });
      if (!id) return fail();
      this.waiting.set(id, resolve);
      setTimeout(fail, REQUEST_MS);
    });
  }
}

export function prepareStop({ vehicle }) {
  const button = document.getElementById("estop");
  const whom = document.getElementById("stop-whom");
  const answer = document.getElementById("stop-answer");
  const presses = new Map(); // of each ship: the newest, and what became of it
  let road = null;

  /** Send it both ways; return the first confirmation, or what the request says if there is none. */
  function stop(wanted) {
    const ways = road ? [road.stop(wanted)] : [];
    const request = post("api/estop", { vehicle: wanted }, { timeoutMs: REQUEST_MS });
    const confirmed = [...ways, request].map(async (way) => {
      const outcome = await way;
      if (outcome.state !== "SUCCESS") throw new Error(outcome.state);
      return outcome;
    });
    return Promise.any(confirmed).catch(() => request);
  }

  /** Stop one, and go on until it confirms, whichever other is stopped meanwhile. */
  async function press(wanted) {
    const began = performance.now();
    const mine = {};
    for (const [name, one] of presses) if (one.state !== "sending") presses.delete(name);
    presses.set(wanted, mine);
    const show = (state, text) => showAll(Object.assign(mine, { state, text }));
    answer.hidden = false;
    for (let attempt = 1; mine === presses.get(wanted); attempt += 1) {
      show("sending", attempt === 1 ? "Stopping …" : `Stopping … sent ${attempt} times`);
      const outcome = await stop(wanted);
      if (mine !== presses.get(wanted)) return;
      if (outcome.state === "SUCCESS") return show("confirmed", words(outcome, wanted));
      if (performance.now() - began > GIVE_UP_MS) {
        return show("failed", `NOT CONFIRMED: ${words(outcome, wanted)}. Press again.`);
      }
      show("sending", `Not confirmed yet: ${words(outcome, wanted)}`);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }

  /** Say what became of each; the worst gives the colour. */
  function showAll() {
    const all = [...presses];
    const worst = ["failed", "sending", "confirmed"].find((state) => all.some(([, one]) => one.state === state));
    button.dataset.state = answer.dataset.state = worst;
    const named = ([name, { state, text }]) => (state === "confirmed" || all.length < 2 ? text : `${name || "the ship"}: ${text}`);
    say(answer, all.map(named).join(" · "));
  }

  button.addEventListener("click", () => press(whom.value || vehicle()));
  return {
    press,
    /** Open the socket for stops: this browser may stop ships. */
    open() {
      road ??= new Road();
    },
    isOpen: () => road?.socket.readyState === WebSocket.OPEN,
  };
}

function words(outcome, wanted) {
  if (outcome.state !== "SUCCESS") return outcome.reason || outcome.state;
  if (outcome.ships) {
    return Object.entries(outcome.ships)
      .map(([name, one]) => `${name}: ${words(one, name)}`)
      .join("; ");
  }
  return `${wanted || "the ship"} confirms: all outputs stopped, in ${milliseconds(outcome.latency_ms)}`;
}
