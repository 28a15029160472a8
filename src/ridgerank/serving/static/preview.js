// A page large enough to read while the pointer rests on its thumbnail.

import { showImage } from "./api.js";
import { byId } from "./dom.js";

const REST_MS = 220;
const GAP = 14;

/** Show previews over the rows of some lists; `pageOf` says which page an element belongs to. */
export function previewThumbnails(lists, pageOf) {
  if (!matchMedia("(hover: hover) and (pointer: fine)").matches) return;
  const box = byId("preview");
  const image = box.firstElementChild;
  let waiting = 0;
  const hide = () => {
    clearTimeout(waiting);
    box.hidden = true;
  };
  for (const list of lists) {
    list.addEventListener("pointerover", (event) => {
      const thumbnail = event.target.closest(".thumbnail");
      hide();
      if (!thumbnail) return;
      waiting = setTimeout(() => {
        const page = pageOf(thumbnail);
        if (!page) return;
        image.onload = () => place(box, thumbnail);
        image.onerror = hide;
        showImage(image, page.image_url).catch(hide);
      }, REST_MS);
    });
    list.addEventListener("pointerleave", hide);
    list.addEventListener("click", hide);
  }
  addEventListener("scroll", hide, { passive: true });
}

/** Beside the thumbnail, where there is more room. */
function place(box, thumbnail) {
  const at = thumbnail.getBoundingClientRect();
  box.hidden = false;
  const right = at.right + GAP + box.offsetWidth <= innerWidth;
  box.style.left = `${right ? at.right + GAP : Math.max(GAP, at.left - GAP - box.offsetWidth)}px`;
  box.style.top = `${Math.max(GAP, Math.min(at.top - 40, innerHeight - box.offsetHeight - GAP))}px`;
}
