// Joins the parts: a query in the address, an answer in two columns, a slider for the weight.

import { search } from "./api.js";
import { Columns } from "./columns.js";
import { byId, make, milliseconds } from "./dom.js";
import { documentGlob, Filter, filterBody } from "./filter.js";
import { Judge } from "./judge.js";
import { previewThumbnails } from "./preview.js";
import { asRetrieved, moved, newInTop, ordered, TOP } from "./ranking.js";
import { Report } from "./report.js";
import { Viewer } from "./viewer.js";

const SNAP = 0.005; // half a step of the slider: nearer than that to w*, w* is meant
const QUIET_MS = 700; // a screen reader hears where the slider came to rest, not each step

const report = new Report();
const judging = new Judge({ show: openById, search: (query) => go(query), announce });
const judgeControls = (page) => judging.controls(page);
const viewer = new Viewer({ judgeControls });
const filter = new Filter(report.data.then(({ store }) => store));
const columns = new Columns({
  before: byId("before"), after: byId("after"), moves: byId("moves"), open: openPage, judgeControls,
});
previewThumbnails([byId("before"), byId("after")], (element) => columns.pageOf(element));
const slider = byId("weight");
let request = { q: "" }; // what is searched for, as parameters of the address: the query, and the filter's
let answer = null;
let weight = 0;
let running = null;
let quiet = 0;

/** What the server can do is known before anything is shown; where it cannot be asked, a search says why. */
const ready = report.data.then(({ store }) => {
  if (store.judging) judging.enable();
}, () => {});

// --- a search -----------------------------------------------------------------------------------------

async function run(chosenWeight = null) {
  running?.abort();
  const current = (running = new AbortController());
  const query = request.q;
  byId("query").value = query;
  filter.show(request);
  document.title = query ? `${query} · RidgeRank` : "RidgeRank";
  if (!query) return showStart();
  byId("results").setAttribute("aria-busy", "true");
  state(loading());
  try {
    const [received] = await Promise.all([search(query, filterBody(request), current.signal), ready]);
    if (current === running) show(received, chosenWeight);
  } catch (error) {
    if (error.name === "AbortError" || current !== running) return;
    state(failed(error, () => run(chosenWeight)));
  } finally {
    if (current === running) byId("results").removeAttribute("aria-busy");
  }
}

function show(received, chosenWeight) {
  answer = received;
  if (!received.results.length) {
    state(message("No pages", "The retriever found nothing for this query."));
    announce("No pages found.");
    return;
  }
  showVerdict(received);
  state(null);
  placeStar(received.weight);
  showLatency(received.latency_ms);
  weight = chosenWeight ?? received.weight;
  slider.value = weight;
  judging.forget();
  columns.show(received.results, weight);
  judging.begin(received.query);
  showWeight();
  announce(`${received.results.length} pages. ${summary()}`);
}

function showStart() {
  answer = null;
  const start = message("Ask your pages",
    "Type a question. You see the pages that answer it, the line that matches, and how the model changed their order.");
  state(start);
  report.data.then(({ store }) => {
    byId("query").placeholder = `Search ${store.pages.toLocaleString("en")} pages`;
    if (!store.examples.length || !start.isConnected) return;
    const examples = store.examples.map((query) => {
      const link = make("a", { href: `?${new URLSearchParams({ q: query })}` }, query);
      link.addEventListener("click", (event) => {
        event.preventDefault();
        go(query);
      });
      return make("li", {}, link);
    });
    start.append(make("p", { className: "try" }, "For example"), make("ul", { className: "examples" }, ...examples));
  }, () => {});
}

/** What to be careful about, said once. */
function showVerdict({ reasons }) {
  const note = reasons.join("; ");
  byId("note").textContent = note;
  byId("note").hidden = !note;
  byId("verdict").hidden = !note;
  report.showWarnings(note);
}

// --- the weight ---------------------------------------------------------------------------------------

function weigh(w) {
  weight = w;
  columns.order(w);
  showWeight();
  clearTimeout(quiet);
  quiet = setTimeout(() => announce(`Weight ${w.toFixed(2)}. ${summary()}`), QUIET_MS);
}

function showWeight() {
  const best = weight === answer.weight;
  const text = weight.toFixed(2);
  byId("weight-value").textContent = text;
  byId("after-weight").textContent = text;
  byId("weight-return").disabled = best;
  slider.setAttribute("aria-valuetext", best ? `${text}, the calibrated weight` : text);
  const [before, after] = [asRetrieved(answer.results), ordered(answer.results, weight)];
  const changed = newInTop(before, after);
  const top = Math.min(TOP, answer.results.length);
  byId("changes-number").textContent = `${changed} of ${top}`;
  byId("changes-text").textContent = `pages of the top ${top} are new`;
  const { up, down } = moved(before, after);
  byId("moves-legend").replaceChildren(
    make("span", { className: "up" }, `▲ ${up}`), make("span", { className: "down" }, `▼ ${down}`));
}

function summary() {
  const [first] = ordered(answer.results, weight);
  return `${byId("changes-number").textContent} ${byId("changes-text").textContent}. First: ${first.reference}.`;
}

function placeStar(best) {
  byId("weight-star").style.setProperty("--at", best);
  byId("weight-star").firstElementChild.textContent = `best ${best.toFixed(2)}`;
  byId("weight-star").dataset.side = best > 0.94 ? "left" : best < 0.06 ? "right" : "middle";
  report.data.then(({ calibration }) => {
    const [low, high] = calibration.weight.weight_interval;
    byId("weight-interval").style.setProperty("--from", low);
    byId("weight-interval").style.setProperty("--to", high);
  }, () => {});
}

slider.addEventListener("input", () => {
  const w = slider.valueAsNumber;
  weigh(Math.abs(w - answer.weight) <= SNAP ? answer.weight : w);
});
slider.addEventListener("change", () => address(true));
byId("numbers").addEventListener("change", (event) => {
  document.body.classList.toggle("numbers", event.target.checked);
});
byId("weight-return").addEventListener("click", () => {
  slider.value = answer.weight;
  weigh(answer.weight);
  address(true);
  slider.focus();
});

// --- beside the columns -------------------------------------------------------------------------------

function showLatency(parts) {
  const entries = Object.entries(parts);
  const total = entries.reduce((sum, [, value]) => sum + value, 0);
  byId("latency-total").replaceChildren(milliseconds(total), make("small", {}, " ms"));
  byId("latency-bar").setAttribute("aria-label",
    `Time: ${entries.map(([name, value]) => `${name} ${milliseconds(value)} ms`).join(", ")}`);
  byId("latency-bar").replaceChildren(...entries.map(([name, value]) => {
    const piece = make("i", { className: name });
    piece.style.flexGrow = value;
    return piece;
  }));
  byId("latency-legend").replaceChildren(...entries.map(([name, value]) =>
    make("li", { className: name }, make("i"), `${name} `, make("b", {}, milliseconds(value)))));
}

/** Show content instead of the columns; null shows the columns. */
function state(content) {
  byId("state").replaceChildren(...(content ? [content] : []));
  byId("columns").hidden = content !== null;
  byId("controls").hidden = content !== null;
  if (content) {
    byId("verdict").hidden = byId("judging").hidden = true;
    report.showWarnings("");
  }
}

function message(title, text) {
  return make("div", { className: "message" }, make("h1", {}, title), make("p", {}, text));
}

function loading() {
  announce("Searching…");
  const rows = Array.from({ length: 6 }, () => make("i"));
  return make("div", { className: "skeleton", "aria-hidden": "true" }, ...rows);
}

function failed(error, again) {
  const retry = make("button", { type: "button", className: "primary" }, "Try again");
  retry.addEventListener("click", again);
  const everywhere = make("button", { type: "button" }, "Search all documents");
  everywhere.addEventListener("click", () => go(request.q, {}));
  announce("");
  return make("div", { className: "message failed", role: "alert" },
    make("h1", {}, "That did not work"), make("p", {}, error.message),
    make("p", { className: "code" }, error.code),
    make("p", { className: "choices" }, retry, Object.keys(filter.parameters).length ? everywhere : null));
}

function openPage(page, button) {
  viewer.open(answer, ordered(answer.results, weight), page, weight, (last) => {
    // Focus returns to the row it came from, or to the row of the page shown last.
    if (last === page) button.focus();
    else columns.rows.get(last).after.button.focus();
  });
}

function openById(pageId) {
  const page = answer?.results.find((result) => result.page_id === pageId);
  if (page) openPage(page, columns.rows.get(page).after.button);
}

function announce(text) {
  byId("live").textContent = text;
}

// --- the address --------------------------------------------------------------------------------------

/** Write query, filter and weight into the address: what is seen can be linked. */
function address(same) {
  const parameters = new URLSearchParams(request);
  if (answer && weight !== answer.weight) parameters.set("w", weight.toFixed(2));
  history[same ? "replaceState" : "pushState"](null, "", `?${parameters}`);
}

/** Search for a query, within what the fields say unless told otherwise, and put both into the address. */
function go(query, within = filter.parameters) {
  const before = new URLSearchParams(request).toString();
  answer = null;
  request = { q: query, ...within };
  address(new URLSearchParams(request).toString() === before);
  run();
}

function follow() {
  const { q = "", w = NaN, ...others } = Object.fromEntries(new URLSearchParams(location.search));
  request = { q: q.trim(), ...others };
  answer = null;
  run(w !== "" && w >= 0 && w <= 1 ? Number(w) : null);
}

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = byId("query").value.trim();
  if (query) go(query);
});
byId("viewer-within").addEventListener("click", () => {
  const { reference } = viewer.page;
  viewer.dialog.close();
  go(request.q, { ...filter.parameters, in: documentGlob(reference) });
});
addEventListener("popstate", follow);
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("query").select();
});

follow();
if (!location.search) byId("query").focus();
