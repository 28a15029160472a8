// Elements and numbers as text. Nothing here knows what the page is about.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with properties and children; a child may be text, or null for nothing. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** The same for SVG, where everything is an attribute. */
export function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** A number with its sign, a true minus, and this many decimals. */
export function signed(value, decimals = 2) {
  const text = Math.abs(value).toFixed(decimals);
  return `${value < 0 ? "−" : "+"}${text}`;
}

/** A raw score: about four significant digits. */
export function score(value) {
  const size = Math.abs(value);
  const decimals = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return value.toFixed(decimals).replace("-", "−");
}

export function milliseconds(value) {
  return value >= 9.95 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

/** 0.834 as 83 %, and never 0 or 100 where it is neither. */
export function percent(share) {
  const rounded = Math.round(100 * share);
  if (rounded === 0 && share > 0) return "<1\u00a0%";
  if (rounded === 100 && share < 1) return ">99\u00a0%";
  return `${rounded}\u00a0%`;
}

/** A name in two parts: a long one loses its middle and keeps its end and its page number. */
export function halves(reference) {
  const page = Math.max(reference.lastIndexOf("#"), 0);
  const cut = Math.max(Math.ceil(page / 2), page - 12);
  return [make("span", { className: "stem" }, reference.slice(0, cut)), make("span", {}, reference.slice(cut))];
}

/** A line of a page with the query's words marked; null for none. */
export function markedLine(line) {
  if (!line) return null;
  const parts = [];
  let behind = 0;
  for (const [start, end] of line.marks) {
    parts.push(line.text.slice(behind, start), make("mark", {}, line.text.slice(start, end)));
    behind = end;
  }
  return make("span", { className: "line" }, ...parts, line.text.slice(behind));
}
