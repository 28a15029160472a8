// Judging pages: three buttons per page, undo, what to judge next, and what that makes of the weight.

import { fetchJudgements, judge } from "./api.js";
import { byId, make } from "./dom.js";

const NAME = "ridgerank-judge";
const GRADES = [["Relevant", 2], ["Partly", 1], ["Not", 0]];

const stored = () => {
  try { return localStorage.getItem(NAME) ?? ""; } catch { return ""; } // storage may be forbidden
};

/** The panel above the results; idle until the server says that it takes judgements. */
export class Judge {
  constructor({ show, search, announce }) {
    Object.assign(this, { show, search, announce, on: false, groups: new Map(), last: [], report: null });
    this.name = byId("judge-name");
    this.name.value = stored();
    this.name.addEventListener("change", () => {
      try { localStorage.setItem(NAME, this.name.value.trim()); } catch { /* lasts as long as the page */ }
      this.refresh();
    });
    byId("judge-undo").addEventListener("click", () => this.undo());
  }

  enable() {
    this.on = true;
    byId("judging").hidden = !this.query;
  }

  /** Buttons for one page, or null where judging is off. */
  controls(page) {
    if (!this.on) return null;
    const buttons = GRADES.map(([word, grade]) => {
      const button = make("button", { type: "button", className: "grade" }, word);
      button.dataset.grade = grade;
      button.setAttribute("aria-pressed", "false");
      button.setAttribute("aria-label", `${word}: ${page.reference}`);
      button.addEventListener("click", () => this.give(page, grade));
      return button;
    });
    const group = make("span", { className: "grades", role: "group" }, ...buttons);
    group.setAttribute("aria-label", `Judge ${page.reference}`);
    this.press(page.page_id, [group]);
    this.groups.set(page.page_id, [...(this.groups.get(page.page_id) ?? []).filter((each) => each.isConnected), group]);
    return group;
  }

  /** Another query is shown. */
  async begin(query) {
    this.query = query;
    this.last = [];
    byId("judging").hidden = !this.on;
    if (this.on) await this.refresh();
  }

  forget() {
    this.groups.clear();
  }

  async refresh() {
    if (!this.query) return;
    await this.attempt(() => fetchJudgements(this.query, this.name.value.trim()));
  }

  async give(page, grade) {
    const before = this.report?.own[page.page_id] ?? null;
    const next = before === grade ? null : grade; // a second click takes it back
    if (await this.send(page, next)) this.last.push({ page, grade: before });
    byId("judge-undo").disabled = !this.last.length;
  }

  async undo() {
    const step = this.last.pop();
    if (step) await this.send(step.page, step.grade);
    byId("judge-undo").disabled = !this.last.length;
  }

  async send(page, grade) {
    const word = GRADES.find(([, value]) => value === grade)?.[0] ?? "not judged";
    const body = { query: this.query, page: page.page_id, grade, judge: this.name.value.trim() };
    const sent = await this.attempt(() => judge(body));
    if (sent) this.announce(`${page.reference}: ${word}.`);
    return sent;
  }

  async attempt(request) {
    const query = this.query;
    try {
      const report = await request();
      if (query === this.query) this.draw(report);
      byId("judge-error").textContent = "";
      return true;
    } catch (error) {
      byId("judge-error").textContent = error.message;
      return false;
    }
  }

  draw(report) {
    this.report = report;
    for (const [pageId, groups] of this.groups) this.press(pageId, groups);
    const people = report.judges > 1 ? ` by ${report.judges} people` : "";
    byId("judge-count").textContent = report.judgements
      ? `${count(report.judgements, "judgement")} of ${count(report.queries, "question")}${people}`
      : "No judgements yet. Say of a few pages whether they answer the question.";
    this.drawWeight(report);
    byId("judge-next").replaceChildren(...this.proposals(report));
  }

  /** Show in its buttons what this person said of a page. */
  press(pageId, groups) {
    const said = this.report?.query === this.query ? this.report?.own[pageId] : undefined;
    for (const button of groups.flatMap((group) => [...group.children])) {
      button.setAttribute("aria-pressed", String(said === Number(button.dataset.grade)));
    }
  }

  drawWeight({ weight, weight_interval: [low, high], queries_used: judged, note }) {
    const share = `The model’s share would be ${weight.toFixed(2)}, in ${low.toFixed(2)} to ${high.toFixed(2)}`;
    const source = judged ? `by ${count(judged, "judged question")}` : "without judgements";
    byId("judge-weight").textContent = `${share}, ${source}.${note ? ` Note: ${note}` : ""}`;
  }

  proposals({ next_pages: pages, next_queries: queries }) {
    const known = Object.entries(pages).slice(0, 3).map(([pageId, reference]) => {
      const button = make("button", { type: "button", className: "chip", title: reference }, shorten(reference));
      button.addEventListener("click", () => this.show(pageId));
      return button;
    });
    if (known.length) return ["Judge next, because the two orders differ most there: ", ...known];
    return queries.length ? ["Questions nobody has judged: ", ...queries.map((query) => {
      const button = make("button", { type: "button", className: "chip", title: query }, shorten(query));
      button.addEventListener("click", () => this.search(query));
      return button;
    })] : [];
  }
}

const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const shorten = (text) => text.length > 42 ? `${text.slice(0, 24)}…${text.slice(-16)}` : text;
