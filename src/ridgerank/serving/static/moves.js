// The moves between the columns, as curves: up in one colour and solid, down in another and dashed.

import { draw } from "./dom.js";
import { moved, TOP } from "./ranking.js";

/** One curve a page, to be placed by `placeMoves`. */
export function drawMoves(svg, pages) {
  const curves = pages.map((page) => {
    const curve = draw("g", { "data-page": page.page_id });
    curve.append(draw("path", { class: "way" }), draw("path", { class: "tip" }));
    return curve;
  });
  svg.replaceChildren(draw("line", { class: "cut" }), ...curves);
}

/** Draw every curve from a page's row before to where its row after is now. */
export function placeMoves(svg, before, after, shown, rowHeight) {
  const width = svg.clientWidth;
  const middle = (place) => (place + 0.5) * rowHeight;
  svg.setAttribute("viewBox", `0 0 ${width} ${before.length * rowHeight}`);
  svg.style.height = `${before.length * rowHeight}px`;
  const places = new Map(after.map((page, place) => [page, place]));
  const curves = svg.querySelectorAll("g");
  for (const [place, page] of before.entries()) {
    const climbed = place - places.get(page);
    const [way, tip] = curves[place].children;
    const [from, to] = [middle(place), middle(shown.get(page))];
    const end = width - 7;
    way.setAttribute("d", `M0 ${from} C${end * 0.55} ${from} ${end * 0.45} ${to} ${end} ${to}`);
    tip.setAttribute("d", `M${end - 1} ${to - 4.5} L${width} ${to} L${end - 1} ${to + 4.5} Z`);
    curves[place].setAttribute("class", [
      climbed > 0 ? "up" : climbed < 0 ? "down" : "same",
      curves[place].classList.contains("pointed") ? "pointed" : "",
      (place < TOP) !== (places.get(page) < TOP) ? "crossing" : "",
    ].join(" ").trim());
  }
  const cut = svg.querySelector(".cut");
  const height = TOP * rowHeight;
  for (const [name, value] of Object.entries({ x1: 0, x2: width, y1: height, y2: height })) {
    cut.setAttribute(name, value);
  }
  cut.style.display = before.length > TOP ? "" : "none";
  const { up, down } = moved(before, after);
  svg.setAttribute("aria-label", `Moves between the columns: ${up} pages up, ${down} down.`);
}
