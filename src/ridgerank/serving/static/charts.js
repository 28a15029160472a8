// The charts of the report: pure functions from numbers to SVG.

import { draw } from "./dom.js";
import { expectedCorrelation } from "./ranking.js";

const WIDTH = 280;
const HEIGHT = 132;
const EDGE = { left: 34, right: 8, top: 10, bottom: 24 };

/** The weight with its interval, on the curve of what each weight promises. */
export function weightChart(weight) {
  const [low, high] = weight.weight_interval;
  const known = [weight.c_b, weight.c_s, weight.rho].every((value) => value !== null);
  const steps = Array.from({ length: 61 }, (_, step) => step / 60);
  const gains = known ? steps.map((w) => expectedCorrelation(w, weight)) : [0, 1];
  const x = linear(0, 1, EDGE.left, WIDTH - EDGE.right);
  const y = linear(...padded(gains), HEIGHT - EDGE.bottom, EDGE.top);
  const top = EDGE.top;
  const height = HEIGHT - EDGE.bottom - EDGE.top;
  const chart = frame(
    `Weight ${weight.weight.toFixed(2)}, 95 % interval ${low.toFixed(2)} to ${high.toFixed(2)}` +
    (known ? `; correlation with relevance expected there ${expectedCorrelation(weight.weight, weight).toFixed(2)}, ` +
      `${gains[0].toFixed(2)} for the retriever alone.` : "."));
  chart.append(draw("rect", { class: "band", x: x(low), y: top, width: Math.max(x(high) - x(low), 1), height }));
  if (known) {
    chart.append(
      draw("line", { class: "rule dashed", x1: x(0), x2: x(1), y1: y(gains[0]), y2: y(gains[0]) }),
      draw("path", { class: "curve", d: line(steps.map((w, step) => [x(w), y(gains[step])])) }));
    for (const value of ends(gains)) chart.append(label(EDGE.left - 5, y(value) + 3, value.toFixed(2), "end"));
  }
  chart.append(
    draw("line", { class: "now", x1: x(weight.weight), x2: x(weight.weight), y1: top, y2: top + height }),
    draw("line", { class: "mark", x1: x(weight.weight), x2: x(weight.weight), y1: top, y2: top + height }),
    axis(), ...[0, 0.5, 1].map((w) => label(x(w), HEIGHT - 8, w, "middle")));
  chart.dataset.span = `${x(0)} ${x(1)}`;
  return chart;
}

/** Move the chart's thin line to the slider's weight. */
export function markWeight(chart, w) {
  const [from, to] = chart.dataset.span.split(" ").map(Number);
  for (const end of ["x1", "x2"]) chart.querySelector(".now").setAttribute(end, from + w * (to - from));
}

/** Held-out error over the penalties tried: every fold thin, their mean strong, the deployed λ marked. */
export function penaltyChart({ penalties, errors, penalty }) {
  const folds = Object.values(errors);
  const mean = penalties.map((_, index) => folds.reduce((sum, fold) => sum + fold[index], 0) / folds.length);
  const x = linear(Math.log(penalties[0]), Math.log(penalties.at(-1)), EDGE.left, WIDTH - EDGE.right);
  const y = linear(...padded(folds.flat()), HEIGHT - EDGE.bottom, EDGE.top);
  const at = (values) => line(values.map((value, index) => [x(Math.log(penalties[index])), y(value)]));
  const chosen = x(Math.log(penalty));
  const chart = frame(
    `Held-out error over ${penalties.length} penalties from ${power(penalties[0])} to ` +
    `${power(penalties.at(-1))}, least on average at ${power(penalties[mean.indexOf(Math.min(...mean))])}; ` +
    `deployed: ${power(penalty)}.`);
  chart.append(
    ...folds.map((fold) => draw("path", { class: "fold", d: at(fold) })),
    draw("path", { class: "curve", d: at(mean) }),
    draw("line", { class: "mark", x1: chosen, x2: chosen, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }),
    axis(),
    label(x(Math.log(penalties[0])), HEIGHT - 8, power(penalties[0]), "start"),
    label(WIDTH - EDGE.right, HEIGHT - 8, power(penalties.at(-1)), "end"),
    ...ends(folds.flat()).map((value) => label(EDGE.left - 5, y(value) + 3, value.toFixed(2), "end")));
  return chart;
}

/** A value on [−1, 1] or [0, 1], with its interval where there is one: a dot on a line. */
export function dot(value, interval = null) {
  const x = linear(value < 0 ? -1 : 0, 1, 4, 96);
  const known = interval !== null && interval.every((end) => end !== null);
  const chart = draw("svg", { viewBox: "0 0 100 12", class: "dot", "aria-hidden": "true" });
  chart.append(draw("line", { class: "rule", x1: 4, x2: 96, y1: 6, y2: 6 }));
  if (known) chart.append(draw("line", { class: "whisker", x1: x(interval[0]), x2: x(interval[1]), y1: 6, y2: 6 }));
  chart.append(draw("circle", { cx: x(value), cy: 6, r: 3.6 }));
  return chart;
}

/** 0.01, 1, 300: as people write a penalty. */
export function power(value) {
  const size = Math.log10(value);
  return size >= -3 && size < 4 ? String(Number(value.toPrecision(2))) : value.toExponential(0).replace("e+", "e");
}

const frame = (description) =>
  draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", "aria-label": description });
const axis = () => draw("line", {
  class: "rule", x1: EDGE.left, x2: WIDTH - EDGE.right, y1: HEIGHT - EDGE.bottom, y2: HEIGHT - EDGE.bottom,
});
const label = (x, y, text, anchor) => draw("text", { x, y, "text-anchor": anchor }, String(text));
const line = (points) => points.map(([x, y], index) => `${index ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
const ends = (values) => [Math.min(...values), Math.max(...values)];

function linear(from, to, start, end) {
  return (value) => start + ((value - from) / (to - from || 1)) * (end - start);
}

function padded(values) {
  const [low, high] = ends(values);
  const room = (high - low || 1) * 0.08;
  return [low - room, high + room];
}
