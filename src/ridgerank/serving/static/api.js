// Requests to the server, and how its errors read. Knows no element of the page but the dialog for the key.

const KEY = "ridgerank-key";

/** An answer that was no answer: the server's own words, or why there are none. */
export class ApiError extends Error {
  constructor(message, code, status) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

export const search = (query, filter, signal) =>
  json("v1/search", { method: "POST", body: { query, k: 20, top_n: 20, lines: true, ...filter }, signal });
export const explain = (query, page, signal) =>
  json("v1/explain", { method: "POST", body: { query, page }, signal });
export const judge = (judgement) => json("v1/judgements", { method: "POST", body: judgement });
export const fetchJudgements = (query, name) =>
  json(`v1/judgements?${new URLSearchParams({ query, judge: name })}`);
export const fetchStore = () => json("v1/store");
export const fetchCalibration = () => json("v1/calibration");

/**
 * Show a page's image in an <img>. Without a key the browser fetches it; with one it has to be fetched
 * here, because an <img> sends no key.
 */
export async function showImage(image, address) {
  if (!sessionStorage.getItem(KEY)) {
    image.src = address;
    return;
  }
  image.dataset.address = address;
  const response = await reach(address, {});
  const picture = URL.createObjectURL(await response.blob());
  if (image.dataset.address !== address) {
    URL.revokeObjectURL(picture); // the viewer went on to another page meanwhile
    return;
  }
  image.addEventListener("load", () => URL.revokeObjectURL(picture), { once: true });
  image.src = picture;
}

async function json(path, options = {}) {
  const response = await reach(path, options);
  return response.json();
}

async function reach(path, { method = "GET", body, signal }) {
  for (;;) {
    const sent = sessionStorage.getItem(KEY);
    const response = await send(path, method, body, signal, sent);
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401) throw error;
    await askForKey(sent, error);
  }
}

async function send(path, method, body, signal, key) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body) headers["Content-Type"] = "application/json";
  try {
    return await fetch(new URL(path, document.baseURI), {
      method, headers, signal, body: body && JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it still running?", "unreachable", 0);
  }
}

async function errorOf(response) {
  let answer = {};
  try { answer = await response.json(); } catch { /* not the API's shape: the status has to do */ }
  const fields = (answer.fields ?? []).map(({ field, message }) => `${field}: ${message}`);
  const wait = response.headers.get("Retry-After");
  const parts = [answer.message ?? `The server answered ${response.status}.`, ...fields];
  if (response.status === 429 && wait) parts.push(`Try again in ${wait} s.`);
  return new ApiError(parts.join(" "), answer.code ?? String(response.status), response.status);
}

let asking = null;

/** One dialog, however many requests were refused; resolves once there is another key than the one refused. */
function askForKey(refused, error) {
  if (sessionStorage.getItem(KEY) !== refused) return Promise.resolve();
  asking ??= new Promise((resolve, reject) => {
    const dialog = document.getElementById("key");
    const value = document.getElementById("key-value");
    const text = document.getElementById("key-text");
    if (refused) text.textContent = "The server refused that key.";
    value.value = "";
    dialog.returnValue = "";
    const close = () => {
      asking = null;
      if (dialog.returnValue !== "use") return reject(error);
      sessionStorage.setItem(KEY, value.value.trim());
      resolve();
    };
    dialog.addEventListener("close", close, { once: true });
    dialog.querySelector("form").onsubmit = (event) => { event.preventDefault(); dialog.close("use"); };
    document.getElementById("key-cancel").onclick = () => dialog.close("");
    dialog.showModal();
    value.focus();
  });
  return asking;
}
