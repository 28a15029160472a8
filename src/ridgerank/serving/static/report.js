// The report of calibration and store: how much to trust the ranking above.

import { fetchCalibration, fetchStore, showImage } from "./api.js";
import { byId, make } from "./dom.js";

const METHODS = {
  "closed-form": "from judgements",
  prior: "an equal say for every score",
  given: "given by hand",
};

/** The panel; `data` resolves to what it shows, and rejects where the server fails. */
export class Report {
  constructor() {
    this.section = byId("report");
    this.toggle = byId("report-toggle");
    this.toggle.addEventListener("click", () => this.open(this.section.hidden));
    this.data = this.load();
    this.data.catch((error) => {
      byId("report-body").replaceChildren(make("p", { className: "failed" }, error.message));
    });
  }

  open(visible) {
    this.section.hidden = !visible;
    this.toggle.setAttribute("aria-expanded", String(visible));
  }

  /** The calibration’s warnings, but for one that is shown above the results already. */
  showWarnings(shown) {
    if (!this.list) return;
    const texts = this.warnings.filter((warning) => warning !== shown);
    this.list.hidden = !texts.length;
    this.list.replaceChildren(...texts.map((warning) => make("li", {}, warning)));
  }

  async load() {
    const [store, calibration] = await Promise.all([fetchStore(), fetchCalibration()]);
    this.warnings = calibration.weight.cause ? [calibration.weight.note] : [];
    this.list = make("ul", { className: "warnings" });
    this.showWarnings("");
    byId("report-body").replaceChildren(
      introduction(store), this.list,
      weightCard(calibration), correlationCard(calibration), storeCard(store, calibration), picture(calibration));
    return { store, calibration };
  }
}

/** What this is, before any formula. */
function introduction({ reads_text: readsText, retriever }) {
  return make("div", { className: "introduction" },
    make("p", {}, `A search engine (${retriever ?? "none"}) finds twenty pages. Then a language model, which has read ` +
      `${readsText ? "the text" : "a picture"} of every page once, beforehand, gives each of them a score of its own. ` +
      "The two scores are mixed, and the pages are put in order by the mixture. How much the model counts was " +
      "estimated for these pages; the slider shows what any other mixture would give."),
    make("p", {}, "In the paper’s words: the search engine’s score is ", make("var", {}, "b"), ", the model’s ", make("var", {}, "s"),
      " (the readout). Both are standardized over the candidates, and F = (1 − ", make("var", {}, "w"), ") ", make("var", {}, "z"), "(",
      make("var", {}, "b"), ") + ", make("var", {}, "w"), " ", make("var", {}, "z"), "(", make("var", {}, "s"), ") decides."));
}

/** The calibration's own picture, if there is one: the penalty, the agreement, the weight. */
function picture({ name, penalty, pairs }) {
  const image = make("img", {
    className: "picture",
    alt: `The calibration ${name}: held-out error over the penalty, agreement with the teacher by list.`,
  });
  const figure = make("figure", { className: "card picture-card" }, image, make("figcaption", {},
    `Fitted on ${pairs.toLocaleString("en")} pairs at the penalty λ = ${power(penalty)}.`));
  image.addEventListener("error", () => image.remove());
  showImage(image, "v1/calibration/picture").catch(() => image.remove());
  return figure;
}

function weightCard({ weight, summary }) {
  const [low, high] = weight.weight_interval;
  return card(headline("w = ", weight.weight.toFixed(2), "weight of the readout"), make("p", {}, summary),
    make("p", {}, `95 % interval ${low.toFixed(2)} to ${high.toFixed(2)}, ${METHODS[weight.method]}.`));
}

function correlationCard(calibration) {
  const { c_b: retriever, c_s: readout, rho } = calibration.weight;
  const rows = [
    ["r", "readout and its teacher, held out", calibration.agreement],
    ["c_b", "retriever and relevance", retriever],
    ["c_s", "readout and relevance", readout],
    ["ρ", "the two scores with each other", rho],
  ];
  const body = make("tbody");
  for (const [name, meaning, value] of rows) {
    const [letter, index] = name.split("_");
    body.append(make("tr", {},
      make("th", { scope: "row" }, make("var", {}, letter), index ? make("sub", {}, index) : null),
      make("td", { className: "meaning" }, meaning),
      make("td", { className: "value" }, value === null ? "unknown" : value.toFixed(2).replace("-", "−"))));
  }
  const r = calibration.agreement;
  return card(headline("r = ", r === null ? "?" : r.toFixed(2), "agreement with its teacher"),
    make("table", { className: "correlations" }, make("caption", { className: "unseen" }, "Correlations"), body),
    make("p", {}, `Fitted on ${calibration.lists} lists: ${calibration.queries_from}.`));
}

function storeCard(store, { name }) {
  const { lineage } = store;
  const entries = {
    "Store": store.name,
    "Model": lineage.backbone,
    "Retriever": store.retriever ?? "none",
    "Calibration": name,
    "Exit layer": lineage.exit_layer,
    "Positions kept": lineage.keep,
    "Stored as": lineage.quantization,
    "Prefixes": `${megabytes(store.prefix_bytes)} MB, ${megabytes(store.bytes_per_page)} MB per page`,
  };
  const list = make("dl");
  for (const [term, value] of Object.entries(entries)) {
    list.append(make("dt", {}, term), make("dd", { title: String(value) }, String(value)));
  }
  return card(headline("", store.pages.toLocaleString("en"), "pages in the store"), list);
}

/** 0.01, 1, 300: as people write a penalty. */
function power(value) {
  const size = Math.log10(value);
  return size >= -3 && size < 4 ? String(Number(value.toPrecision(2))) : value.toExponential(0).replace("e+", "e");
}

function megabytes(bytes) {
  const size = bytes / 1e6;
  return size >= 100 ? Math.round(size).toLocaleString("en") : String(Number(size.toPrecision(2)));
}

function headline(sign, number, meaning) {
  const [letter, ...rest] = sign;
  return make("h3", {}, letter ? make("var", {}, letter) : null, rest.join(""), number,
    make("small", {}, meaning));
}

const card = (...parts) => make("article", { className: "card" }, ...parts);
