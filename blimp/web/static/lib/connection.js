// The way to the server: a socket for what is new, and plain requests for what is wanted. The
// requests need no socket, so an emergency stop goes out while the socket is down.

import { authorisation, protocols } from "./token.js";

const RETRY_MS = 500;
const REFUSED_RETRY_MS = 3000;
const UNAUTHORISED = 401;
let refusal = ""; // the reason of the newest answer, if that was that this browser has no valid token

/** Why the server lets this browser do nothing; "" if it does. */
export function refused() {
  return refusal;
}

/** Return an address of this page's server; it may be served below a path of another one. */
export function address(path) {
  return new URL(path, document.baseURI);
}

/** Keep a socket open and give each message to `hear(kind, content)`. */
export class Connection {
  constructor({ vehicle, hear, changed }) {
    this.vehicle = vehicle;
    this.hear = hear;
    this.changed = changed;
    this.isOpen = false;
    this.open();
  }

  open() {
    const url = address("api/socket");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    if (this.vehicle) url.searchParams.set("vehicle", this.vehicle);
    const socket = new WebSocket(url, protocols());
    this.socket = socket;
    socket.onopen = () => this.change(true, "");
    socket.onmessage = (event) => {
      const { kind, content } = JSON.parse(event.data);
      this.hear(kind, content);
    };
    socket.onclose = (event) => {
      this.change(false, event.reason);
      setTimeout(() => this.open(), refusal ? REFUSED_RETRY_MS : RETRY_MS);
    };
  }

  change(isOpen, reason) {
    this.isOpen = isOpen;
    this.changed(isOpen, reason);
  }

  ask(kind, content = {}) {
    if (this.isOpen) this.socket.send(JSON.stringify({ kind, content }));
  }
}

/** Send a request and return the JSON of its answer; without one, an outcome that says why. */
export async function post(path, content = {}, { timeoutMs = 200000 } = {}) {
  try {
    const answer = await fetch(address(path), {
      method: "POST",
      body: JSON.stringify(content),
      headers: { "content-type": "application/json", ...authorisation() },
      signal: AbortSignal.timeout(timeoutMs),
      keepalive: true,
    });
    return await contentOf(answer);
  } catch (error) {
    return { state: "UNSENT", reason: `this page's server does not answer (${error.name})` };
  }
}

export async function get(path) {
  return contentOf(await ask(path));
}

export function ask(path) {
  return fetch(address(path), { headers: authorisation() });
}

async function contentOf(answer) {
  const found = await answer.json();
  refusal = answer.status === UNAUTHORISED ? found.reason : "";
  return found;
}
