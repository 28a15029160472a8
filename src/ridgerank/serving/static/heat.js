// Attention over a page, as ranking/heatmap.py draws it: the position with most attention is the darkest.

const HEAT = "230 60 0";

/** Paint an explanation on a canvas as large as the page's image. */
export function paintHeat(canvas, image, explanation) {
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  const most = Math.max(...explanation.weights, 0) || 1;
  // Weakest first, each replacing what lies under it: where a part is seen twice, the stronger attention shows.
  const patches = explanation.weights
    .map((weight, index) => ({ weight, region: explanation.regions[index] }))
    .sort((a, b) => a.weight - b.weight);
  for (const { weight, region } of patches) {
    const [left, top, right, bottom] = pixels(region, canvas);
    context.clearRect(left, top, right - left, bottom - top);
    context.fillStyle = `rgb(${HEAT} / ${weight / most})`;
    context.fillRect(left, top, right - left, bottom - top);
  }
}

/** Whole pixels: neighbours share none, and each region has at least one. */
function pixels([left, top, right, bottom], { width, height }) {
  const [x, y] = [Math.round(left * width), Math.round(top * height)];
  return [x, y, Math.max(x + 1, Math.round(right * width)), Math.max(y + 1, Math.round(bottom * height))];
}
