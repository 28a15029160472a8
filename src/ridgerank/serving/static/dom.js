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
