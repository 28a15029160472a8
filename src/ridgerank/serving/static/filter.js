// Which documents are searched: the two fields below the query.

import { byId } from "./dom.js";

const FIELDS = { in: byId("filter-documents"), where: byId("filter-metadata") }; // parameter of the address → its field

/** The fields and the button that shows them. What they hold counts when a search is sent. */
export class Filter {
  constructor(store) {
    this.row = byId("filter");
    this.toggle = byId("filter-toggle");
    this.labels = [];
    this.toggle.addEventListener("click", () => {
      this.open(this.row.hidden);
      if (!this.row.hidden) FIELDS.in.focus();
    });
    for (const field of Object.values(FIELDS)) field.addEventListener("input", () => this.count());
    store.then(({ labels }) => {
      this.labels = labels;
      if (labels.length) FIELDS.where.placeholder = labels.slice(0, 2).join(", ");
      this.offerMetadata();
    }, () => {});
  }

  /** What the fields hold, as parameters of the address. */
  get parameters() {
    const entries = Object.entries(FIELDS).map(([name, field]) => [name, field.value.trim()]);
    return Object.fromEntries(entries.filter(([, value]) => value));
  }

  /** Fill the fields from parameters of the address. */
  show(parameters) {
    for (const [name, field] of Object.entries(FIELDS)) field.value = parameters[name] ?? "";
    this.offerMetadata();
    this.count();
    if (Object.keys(this.parameters).length) this.open(true);
  }

  open(open) {
    this.row.hidden = !open;
    this.toggle.setAttribute("aria-expanded", String(open));
  }

  /** A filter that is in force can be seen though its fields are folded away. */
  count() {
    const count = Object.keys(this.parameters).length;
    byId("filter-count").textContent = count ? ` (${count})` : "";
    this.toggle.classList.toggle("active", count > 0);
  }

  offerMetadata() {
    byId("filter-where").hidden = !this.labels.length && !FIELDS.where.value;
  }
}

/** Parameters of the address as the fields of a search; a condition that is none is an error. */
export function filterBody({ in: documents = "", where = "" }) {
  const metadata = {};
  for (const condition of separate(where)) {
    const [key, ...value] = condition.split("=");
    if (!key.trim() || !value.length) {
      throw Object.assign(new Error(`“${condition}” is no condition. Write it as year=2019.`), { code: "filter" });
    }
    (metadata[key.trim()] ??= []).push(value.join("=").trim());
  }
  return { documents: separate(documents), metadata };
}

/** A page's document as a glob; its own commas would separate. */
export const documentGlob = (reference) =>
  reference.slice(0, Math.max(reference.lastIndexOf("#"), 0)).replaceAll(",", "?");

const separate = (text) => text.split(",").map((part) => part.trim()).filter(Boolean);
