// The maths of the page: pure functions over an answer's results. The same as fusion/standardize.py has.

export const TOP = 5;

/** F = (1 − w) z(b) + w z(s), eq. 2. */
export function fused(page, w) {
  return parts(page, w).reduce((sum, part) => sum + part);
}

/** The two terms of eq. 2: what each score puts into the fused one. */
export function parts(page, w) {
  return [(1 - w) * page.retriever_z, w * page.readout_z];
}

/** The pages in the order of the fused score at w; a tie goes to the retriever's order. */
export function ordered(pages, w) {
  const score = new Map(pages.map((page) => [page, fused(page, w)]));
  return [...pages].sort((a, b) => score.get(b) - score.get(a) || a.retriever_rank - b.retriever_rank);
}

/** The pages as the retriever had them. */
export function asRetrieved(pages) {
  return [...pages].sort((a, b) => a.retriever_rank - b.retriever_rank);
}

/** How many of the first pages were not among the first before. */
export function newInTop(before, after, top = TOP) {
  const first = new Set(before.slice(0, top));
  return after.slice(0, top).filter((page) => !first.has(page)).length;
}

/** How many pages went up, and how many down. */
export function moved(before, after) {
  const indices = new Map(after.map((page, index) => [page, index]));
  const climbed = before.map((page, index) => index - indices.get(page));
  return { up: climbed.filter((way) => way > 0).length, down: climbed.filter((way) => way < 0).length };
}
