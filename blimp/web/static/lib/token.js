// The token that this browser has of the page. It is kept in the storage of the page's own origin, port
// included; a cookie would be sent to every port of this host.
const KEY = "blimp-token";
let token = null; // for a browser that keeps nothing

try {
  token = localStorage.getItem(KEY);
} catch {
  // It keeps nothing: a reload needs the printed address.
}

/** The headers of a request. */
export function authorisation() {
  return token ? { authorization: `Bearer ${token}` } : {};
}

/** The protocols of a WebSocket, whose other headers a page cannot set. */
export function protocols() {
  return token ? ["blimp", `blimp.token.${token}`] : ["blimp"];
}

/** Take the token from the address, or for the code in it; neither stays in sight. */
export async function signIn() {
  const query = new URLSearchParams(location.search);
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  const given = query.get("token");
  query.delete("token");
  const rest = query.toString();
  const hash = code ? "" : location.hash;
  if (given || code) history.replaceState(null, "", location.pathname + (rest ? `?${rest}` : "") + hash);
  if (given) keep(given);
  else if (code) await exchange(code);
}

async function exchange(code) {
  try {
    const answer = await fetch(new URL("api/sign-in", document.baseURI), {
      method: "POST",
      body: JSON.stringify({ code }),
    });
    const found = await answer.json();
    if (found.token) keep(found.token);
  } catch {
    // Without a token the page says so, and what to do.
  }
}

function keep(found) {
  token = found;
  try {
    localStorage.setItem(KEY, found);
  } catch {
    // For this page only, then.
  }
}

// A reload in one tab signs in the others.
addEventListener("storage", (event) => {
  if (event.key === KEY && event.newValue) token = event.newValue;
});
