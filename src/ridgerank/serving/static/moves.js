// The moves between the columns, as curves: up in one colour and solid, down in another and dashed.

import { draw } from "./dom.js";
import { moved, TOP } from "./ranking.js";

/** One curve per page, to be placed by `placeMoves`. */
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
  const middle = (index) => (index + 0.5) * rowHeight;
  svg.setAttribute("viewBox", `0 0 ${width} ${before.length * rowHeight}`);
  svg.style.height = `${before.length * rowHeight}px`;
  const indices = new Map(after.map((page, index) => [page, index]));
  const curves = svg.querySelectorAll("g");
  for (const [index, page] of before.entries()) {
    const climbed = index - indices.get(page);
    const [way, tip] = curves[index].children;
    const [from, to] = [middle(index), middle(shown.get(page))];
    const end = width - 7;
    way.setAttribute("d", `M0 ${from} C${end * 0.55} ${from} ${end * 0.45} ${to} ${end} ${to}`);
    tip.setAttribute("d", `M${end - 1} ${to - 4.5} L${width} ${to} L${end - 1} ${to + 4.5} Z`);
    curves[index].setAttribute("class", [
      climbed > 0 ? "up" : climbed < 0 ? "down" : "same",
      curves[index].classList.contains("pointed") ? "pointed" : "",
      (index < TOP) !== (indices.get(page) < TOP) ? "crossing" : "",
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
