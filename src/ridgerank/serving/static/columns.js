// Two columns, before and after, and the way of every page between them.

import { showImage } from "./api.js";
import { calm, halves, make, markedLine, score, signed } from "./dom.js";
import { drawMoves, placeMoves } from "./moves.js";
import { asRetrieved, fused, ordered, parts, TOP } from "./ranking.js";

const SETTLE_MS = 110; // time constant: after it a page has moved 63 % of its way
const CLOSE = 0.004; // of a row: too small a distance to see

/** The columns; `open(page)` is called with the page to show large. */
export class Columns {
  constructor({ before, after, moves, open, judgeControls }) {
    this.lists = { before, after };
    this.moves = moves;
    this.open = open;
    this.judgeControls = judgeControls; // page → buttons to judge it, or null
    this.pages = [];
    this.rows = new Map(); // page → its row in each column
    this.shown = new Map(); // page → where it is drawn now, in rows; a fraction while it moves
    this.frame = 0;
    for (const side of ["before", "after"]) this.listen(side);
    new ResizeObserver(() => this.paint()).observe(after);
  }

  show(pages, w) {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.pages = pages;
    this.widest = Math.max(...pages.flatMap((page) => [Math.abs(page.retriever_z), Math.abs(page.readout_z)]));
    this.rows = new Map(pages.map((page) => [page, { before: this.row(page, "before"), after: this.row(page, "after") }]));
    this.before = asRetrieved(pages);
    this.after = ordered(pages, w);
    this.lists.before.replaceChildren(...this.before.map((page) => this.rows.get(page).before.item));
    this.lists.after.replaceChildren(...this.after.map((page) => this.rows.get(page).after.item));
    // Pages start where the retriever had them and go to their new places: the answer explains itself.
    this.shown = new Map(this.before.map((page, index) => [page, index]));
    drawMoves(this.moves, this.before);
    for (const [index, page] of this.before.entries()) this.describeBefore(page, index);
    for (const side of ["before", "after"]) this.rove(side, this.lists[side].querySelector("button.page"));
    this.order(w);
  }

  /** Put the after column in the order it has at w. */
  order(w) {
    const after = ordered(this.pages, w);
    const moved = after.some((page, index) => page !== this.after[index]);
    this.after = after;
    if (moved) this.rearrange();
    for (const [index, page] of after.entries()) this.describeAfter(page, index, w);
    this.settle();
  }

  rearrange() {
    const focused = document.activeElement;
    this.lists.after.replaceChildren(...this.after.map((page) => this.rows.get(page).after.item));
    if (this.lists.after.contains(focused)) focused.focus({ preventScroll: true });
  }

  // --- movement ---------------------------------------------------------------------------------

  settle() {
    if (calm()) {
      this.after.forEach((page, index) => this.shown.set(page, index));
      this.paint();
      return;
    }
    if (!this.frame) {
      this.last = performance.now();
      this.frame = requestAnimationFrame((now) => this.step(now));
    }
    this.paint();
  }

  step(now) {
    const share = 1 - Math.exp(-Math.max(now - this.last, 0) / SETTLE_MS);
    this.last = now;
    let moving = false;
    for (const [index, page] of this.after.entries()) {
      const distance = index - this.shown.get(page);
      const there = Math.abs(distance) < CLOSE;
      this.shown.set(page, there ? index : this.shown.get(page) + distance * share);
      moving ||= !there;
    }
    this.paint();
    this.frame = moving ? requestAnimationFrame((next) => this.step(next)) : 0;
  }

  paint() {
    const height = this.lists.after.firstElementChild?.offsetHeight ?? 0;
    if (!height) return;
    for (const [index, page] of this.after.entries()) {
      const offset = this.shown.get(page) - index;
      const style = this.rows.get(page).after.item.style;
      style.transform = offset ? `translateY(${(offset * height).toFixed(1)}px)` : "";
      style.zIndex = offset < 0 ? 1 : ""; // who moves down passes over who moves up
    }
    placeMoves(this.moves, this.before, this.after, this.shown, height);
  }

  // --- a row ------------------------------------------------------------------------------------

  row(page, side) {
    const part = {
      rank: make("span", { className: "rank" }),
      move: make("span", { className: "move" }),
      total: make("span", { className: "total number-only" }),
      retriever: make("i", { className: "part retriever" }),
      readout: make("i", { className: "part readout" }),
    };
    const image = make("img", { alt: "", loading: "lazy", decoding: "async", draggable: false });
    showImage(image, page.thumbnail_url).catch(() => image.remove());
    const scores = make("span", { className: "scores number-only" },
      make("span", { title: "retriever score" }, make("b", {}, "b"), score(page.retriever_score)),
      make("span", { title: "readout score" }, make("b", {}, "s"), score(page.readout_score)));
    part.button = make("button", { type: "button", className: "page", tabIndex: -1 },
      part.rank,
      make("span", { className: "thumbnail" }, image),
      make("span", { className: "name", title: page.reference }, ...halves(page.reference)),
      make("span", { className: "facts" }, part.move, scores),
      side === "after" ? markedLine(page.line) : null,
      make("span", { className: "balance number-only" }, part.retriever, part.readout),
      part.total);
    part.item = make("li", {}, part.button, side === "after" ? this.judgeControls(page) : null);
    part.item.dataset.page = page.page_id;
    return part;
  }

  describeBefore(page, index) {
    const row = this.rows.get(page).before;
    row.rank.textContent = index + 1;
    row.total.textContent = signed(page.retriever_z);
    row.total.title = "the retriever’s score, standardized over the candidates";
    this.balance(row, page.retriever_z, 0);
    row.button.setAttribute("aria-label",
      `Before, rank ${index + 1}: ${page.reference}. ${this.scores(page)}. Open the page.`);
  }

  describeAfter(page, index, w) {
    const row = this.rows.get(page).after;
    const climbed = page.retriever_rank - (index + 1);
    row.rank.textContent = index + 1;
    row.total.textContent = signed(fused(page, w));
    row.total.title = "fused score: (1 − w) z(b) + w z(s)";
    row.move.textContent = climbed > 0 ? `▲ up ${climbed}` : climbed < 0 ? `▼ down ${-climbed}` : "= same place";
    row.item.dataset.move = climbed > 0 ? "up" : climbed < 0 ? "down" : "same";
    row.item.dataset.entered = index < TOP && page.retriever_rank > TOP;
    this.balance(row, ...parts(page, w));
    const way = climbed > 0 ? `up ${climbed} from` : climbed < 0 ? `down ${-climbed} from` : "unchanged from";
    row.button.setAttribute("aria-label",
      `After, rank ${index + 1}, ${way} ${page.retriever_rank}: ${page.reference}. ` +
      `${this.scores(page)}, fused score ${signed(fused(page, w))}. Open the page.`);
  }

  scores(page) {
    return `Retriever score ${score(page.retriever_score)}, readout score ${score(page.readout_score)}`;
  }

  /** Both parts as bars from the middle: on one side they add up, on different sides they pull. */
  balance(row, retriever, readout) {
    const share = (value) => (value / (2 * (this.widest || 1))) * 100;
    const bar = (element, from, value) => {
      element.style.left = `${50 + share(Math.min(from, from + value))}%`;
      element.style.width = `${Math.abs(share(value))}%`;
    };
    bar(row.retriever, 0, retriever);
    bar(row.readout, retriever * readout > 0 ? retriever : 0, readout);
  }

  // --- input ------------------------------------------------------------------------------------

  /** One stop of the tab key per column; the arrow keys move from there. */
  rove(side, button) {
    for (const other of this.lists[side].querySelectorAll("button.page")) other.tabIndex = other === button ? 0 : -1;
  }

  listen(side) {
    const list = this.lists[side];
    list.addEventListener("click", (event) => {
      const button = event.target.closest("button.page");
      if (button) this.open(this.pageOf(button), button);
    });
    list.addEventListener("keydown", (event) => this.press(event, side));
    list.addEventListener("focusin", (event) => {
      if (event.target.matches("button.page")) this.rove(side, event.target);
      this.point(this.pageOf(event.target));
    });
    list.addEventListener("focusout", () => this.point(null));
    list.addEventListener("pointerover", (event) => this.point(this.pageOf(event.target)));
    list.addEventListener("pointerleave", () => this.point(null));
  }

  press(event, side) {
    if (!event.target.matches("button.page")) return;
    const page = this.pageOf(event.target);
    const order = this[side];
    const index = order.indexOf(page);
    const target = {
      ArrowDown: [side, order[index + 1]], ArrowUp: [side, order[index - 1]],
      Home: [side, order[0]], End: [side, order.at(-1)],
      ArrowLeft: ["before", page], ArrowRight: ["after", page],
    }[event.key];
    if (!target || !page) return;
    event.preventDefault();
    const [column, next] = target;
    if (next) this.rows.get(next)[column].button.focus();
  }

  /** Show one page's way: both its rows and its curve. */
  point(page) {
    for (const [other, row] of this.rows) {
      for (const item of [row.before.item, row.after.item]) item.classList.toggle("pointed", other === page);
    }
    this.moves.classList.toggle("pointing", page !== null);
    for (const curve of this.moves.querySelectorAll("[data-page]")) {
      curve.classList.toggle("pointed", curve.dataset.page === page?.page_id);
    }
  }

  pageOf(element) {
    const id = element.closest("li")?.dataset.page;
    return this.pages.find((page) => page.page_id === id) ?? null;
  }
}
