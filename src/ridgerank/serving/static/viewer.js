// One page large, with the positions the query attended to.

import { explain, showImage } from "./api.js";
import { byId, make, markedLine, score, signed } from "./dom.js";
import { paintHeat } from "./heat.js";
import { fused } from "./ranking.js";

const SHOWN_LINES = 6;

/** The dialog; it goes through the pages in the order they have at the weight it was opened with. */
export class Viewer {
  constructor({ judgeControls }) {
    this.judgeControls = judgeControls; // page → buttons to judge it, or null
    this.dialog = byId("viewer");
    this.image = byId("page-image");
    this.canvas = byId("heat");
    this.explanations = new Map(); // page id → promise of its explanation, for one query
    byId("viewer-close").addEventListener("click", () => this.dialog.close());
    byId("viewer-previous").addEventListener("click", () => this.go(-1));
    byId("viewer-next").addEventListener("click", () => this.go(1));
    byId("heat-on").addEventListener("change", () => this.shade());
    byId("heat-opacity").addEventListener("input", () => this.shade());
    this.dialog.addEventListener("keydown", (event) => this.press(event));
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close(); // a click beside the frame
    });
    this.dialog.addEventListener("close", () => {
      this.stop?.abort();
      this.closed?.(this.pages[this.index]);
    });
  }

  /** Open at a page; `closed` is called with the page that was shown last. */
  open(answer, pages, page, w, closed) {
    if (this.query !== answer.query) this.explanations.clear();
    Object.assign(this, { query: answer.query, pages, w, closed, index: pages.indexOf(page) });
    this.stop = new AbortController();
    this.dialog.showModal();
    byId("viewer-close").focus();
    this.show();
  }

  get page() {
    return this.pages[this.index];
  }

  go(steps) {
    const index = this.index + steps;
    if (index < 0 || index >= this.pages.length) return;
    this.index = index;
    this.show();
  }

  press(event) {
    if (event.target.type === "range") return; // its arrows are its own
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!steps) return;
    event.preventDefault();
    this.go(steps);
  }

  async show() {
    const page = this.pages[this.index];
    this.describe(page);
    this.canvas.hidden = true;
    this.say("Reading the page…");
    byId("sheet").classList.add("waiting");
    byId("viewer-shares").textContent = "";
    byId("viewer-passages").replaceChildren();
    this.outline(null);
    byId("scale-most").textContent = "";
    const here = () => this.pages[this.index] === page;
    try {
      const [remark, explanation] = await Promise.all([this.load(page), this.explained(page)]);
      if (!here()) return;
      paintHeat(this.canvas, this.image, explanation);
      this.describeShares(explanation);
      this.say("");
      this.listPassages(explanation);
      this.canvas.hidden = false;
      this.shade();
      if (remark) this.say(remark);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (here()) this.say(error.message, true);
    } finally {
      if (here()) byId("sheet").classList.remove("waiting");
    }
  }

  /** The page's image; where its document is gone, the small one the store holds. */
  async load(page) {
    this.image.alt = `Page ${page.reference}`;
    try {
      await this.loaded(page.image_url);
      return "";
    } catch (error) {
      if (this.pages[this.index] !== page) throw error; // the picture belongs to another page by now
      await this.loaded(page.thumbnail_url);
      return "The document is not where it was indexed: this is the store’s thumbnail.";
    }
  }

  async loaded(address) {
    const image = this.image;
    const done = new Promise((resolve, reject) => {
      image.onload = resolve;
      image.onerror = () => reject(new Error("The server has no picture of this page."));
    });
    await showImage(image, address);
    await done;
  }

  explained(page) {
    if (!this.explanations.has(page.page_id)) {
      const explanation = explain(this.query, page.page_id, this.stop.signal);
      explanation.catch(() => this.explanations.delete(page.page_id)); // the next time it is requested again
      this.explanations.set(page.page_id, explanation);
    }
    return this.explanations.get(page.page_id);
  }

  describe(page) {
    const rank = this.index + 1;
    const climbed = page.retriever_rank - rank;
    const way = climbed > 0 ? `▲ up ${climbed}` : `▼ down ${-climbed}`;
    byId("viewer-title").textContent = page.reference;
    byId("viewer-line").replaceChildren(...[markedLine(page.line)].filter(Boolean));
    byId("viewer-judge").replaceChildren(...[this.judgeControls(page)].filter(Boolean));
    const move = byId("viewer-move");
    move.textContent = climbed
      ? `${way}: place ${rank}, was ${page.retriever_rank} in the search engine’s order`
      : `= place ${rank}, as in the search engine’s order`;
    move.dataset.move = climbed > 0 ? "up" : climbed < 0 ? "down" : "same";
    byId("viewer-scores").replaceChildren(
      ...term("Search engine’s score, b", score(page.retriever_score), `z ${signed(page.retriever_z)}`),
      ...term("Model’s score, s", score(page.readout_score), `z ${signed(page.readout_z)}`),
      ...term("Both mixed", signed(fused(page, this.w)), `w = ${this.w.toFixed(2)}`),
    );
    byId("viewer-place").textContent = `${rank} of ${this.pages.length}`;
    byId("viewer-previous").disabled = this.index === 0;
    byId("viewer-next").disabled = rank === this.pages.length;
    // A button that has just been disabled would drop the focus out of the dialog.
    if (document.activeElement?.disabled || document.activeElement === document.body) {
      byId("viewer-close").focus();
    }
  }

  describeShares(explanation) {
    const share = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)}\u00a0%`;
    const { page_share: page, instruction_share: instruction, query_share: query, kept, grid, passages } = explanation;
    byId("scale-most").textContent = "most";
    byId("viewer-shares").textContent =
      `${share(page)} of the attention is on the page, ${share(query)} on the query itself, ` +
      `${share(instruction)} on the instruction. ` + (passages.length
        ? `The store kept ${kept.length} of ${grid[1]} words and word parts.`
        : `The store kept ${kept.length} of ${grid[0]} × ${grid[1]} positions.`);
  }

  /** The lines of a page that the model read as text: those with most attention, a bar each. */
  listPassages({ passages }) {
    const most = Math.max(...passages.map((passage) => passage.weight), 0) || 1;
    const lines = [...passages].sort((a, b) => b.weight - a.weight).slice(0, SHOWN_LINES).map((passage) => {
      const bar = make("i");
      bar.style.width = `${100 * passage.weight / most}%`;
      const line = make("li", {}, bar, make("span", {}, passage.text.replaceAll("|", " ")));
      if (passage.region) {
        line.addEventListener("pointerenter", () => this.outline(passage.region));
        line.addEventListener("pointerleave", () => this.outline(null));
      }
      return line;
    });
    byId("viewer-passages").replaceChildren(...lines);
    byId("viewer-lines").hidden = !lines.length;
    if (lines.length && passages.every((passage) => !passage.region)) {
      this.say("Where these lines stand is not known: the document is gone, or it is a scan and OCR is not installed.");
    }
  }

  outline(region) {
    const frame = byId("outline");
    frame.hidden = region === null;
    if (!region) return;
    const [left, top, right, bottom] = region.map((edge) => `${100 * edge}%`);
    Object.assign(frame.style, { left, top, width: `calc(${right} - ${left})`, height: `calc(${bottom} - ${top})` });
  }

  shade() {
    const on = byId("heat-on").checked;
    byId("heat-opacity").disabled = !on;
    this.canvas.style.opacity = on ? byId("heat-opacity").value : 0;
  }

  say(text, failed = false) {
    const state = byId("stage-state");
    state.textContent = text;
    state.classList.toggle("failed", failed);
  }
}

const term = (name, value, detail) =>
  [make("dt", {}, name), make("dd", {}, make("b", {}, value), make("small", {}, detail))];
