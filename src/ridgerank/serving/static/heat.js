// Attention over a page, as reranker/explain.py draws it: smooth over an image, word by word over text.

const HEAT = [230, 60, 0];
const SIDE = 96; // points along the longer side; between them the browser interpolates
const WIDTH = 0.55; // of a position's heat, in mean distances between kept positions

/** Paint an explanation on a canvas as large as the page's image. */
export function paintHeat(canvas, image, explanation) {
  canvas.width = image.naturalWidth;
  canvas.height = image.naturalHeight;
  const context = canvas.getContext("2d");
  if (explanation.passages.length) paintWords(context, canvas, explanation);
  else paintField(context, canvas, explanation);
}

/** Each word with the attention on all its tokens. */
function paintWords(context, { width, height }, { weights, regions }) {
  const words = new Map();
  regions.forEach((region, index) => {
    if (!region) return;
    const key = region.join();
    words.set(key, { region, weight: (words.get(key)?.weight ?? 0) + weights[index] });
  });
  const most = Math.max(...[...words.values()].map((word) => word.weight), 0) || 1;
  for (const { region: [left, top, right, bottom], weight } of words.values()) {
    context.fillStyle = `rgb(${HEAT.join(" ")} / ${weight / most})`;
    context.beginPath();
    context.roundRect(left * width, top * height, (right - left) * width, (bottom - top) * height,
      (bottom - top) * height / 5);
    context.fill();
  }
}

/** Σ g(x − xᵢ) aᵢ / Σ g(x − xᵢ): positions that were not kept take the heat of their neighbours. */
function paintField(context, { width, height }, { weights, regions }) {
  const scale = SIDE / Math.max(width, height);
  const [columns, rows] = [width, height].map((side) => Math.max(1, Math.round(side * scale)));
  const kept = weights.map((weight, index) => [weight, regions[index]]).filter(([, region]) => region);
  if (!kept.length) return;
  const spread = 2 * (WIDTH ** 2) * columns * rows / kept.length;
  const near = (count, middle) => Float64Array.from({ length: count }, (_, index) =>
    Math.exp(-((index + 0.5 - middle) ** 2) / spread));
  const sums = new Float64Array(columns * rows);
  const shares = new Float64Array(columns * rows);
  for (const [weight, [left, top, right, bottom]] of kept) {
    const across = near(columns, (left + right) / 2 * columns);
    const down = near(rows, (top + bottom) / 2 * rows);
    for (let row = 0; row < rows; row += 1) {
      if (down[row] < 1e-4) continue;
      for (let column = 0; column < columns; column += 1) {
        const share = down[row] * across[column];
        sums[row * columns + column] += share * weight;
        shares[row * columns + column] += share;
      }
    }
  }
  const field = sums.map((sum, index) => sum / Math.max(shares[index], 1e-9));
  const most = field.reduce((high, value) => Math.max(high, value), 0) || 1;
  const small = new OffscreenCanvas(columns, rows);
  const pixels = new ImageData(columns, rows);
  field.forEach((value, index) => pixels.data.set([...HEAT, Math.round(255 * value / most)], 4 * index));
  small.getContext("2d").putImageData(pixels, 0, 0);
  context.imageSmoothingEnabled = true;
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, width, height);
}
