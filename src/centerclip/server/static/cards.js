// Hits as cards: thumbnail, time, score, and place in the video; hovering plays the moment.

import { between, clip, clock, frame, quote, source, stream } from "./api.js";

const HOVER_MS = 220; // before a preview starts: moving the pointer across starts nothing
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** The card of a hit, or of a video (which has no score). `onOpen(hit, card)`, `onAlike(hit)`. */
export function card(hit, onOpen, onAlike) {
  const item = document.getElementById("card").content.firstElementChild.cloneNode(true);
  const isHit = hit.score != null;
  const start = hit.start ?? 0, end = hit.end ?? hit.duration;
  const picture = item.querySelector(".picture"), image = item.querySelector("img.front"), back = item.querySelector("img.back");
  item.dataset.video = hit.video_id;
  item.dataset.start = start;
  item.querySelector(".time").textContent = hit.kind === "photo" ? "photo" : isHit ? between(start, end) : clock(hit.duration);
  const score = item.querySelector(".score");
  if (isHit) {
    const maybe = hit.grade === "maybe";
    const byText = hit.found_by === "text" && hit.line;
    score.textContent = (byText ? source(hit.line) : hit.score.toFixed(2)) + (maybe ? "?" : "");
    score.title = (maybe ? "Maybe: it could be something similar. " : "") + (byText ? "Found by what is said or written" : "Similarity to the query; comparable within one search");
  }
  else score.remove();
  item.querySelector(".title").textContent = hit.title;
  quote(item.querySelector(".line"), hit.line);
  const folder = hit.place.includes("/") ? hit.place.slice(0, hit.place.lastIndexOf("/")) : hit.place, doubles = hit.duplicates?.length;
  const notes = [hit.offline && "disk not connected", folder, doubles && `${doubles} near-${doubles === 1 ? "duplicate" : "duplicates"}`];
  item.querySelector(".place").textContent = notes.filter(Boolean).join(" · ");
  item.classList.toggle("offline", Boolean(hit.offline));
  item.querySelector(".place").title = hit.place;
  const where = item.querySelector(".where");
  for (const moment of isHit && hit.duration ? hit.moments : []) {
    const mark = document.createElement("i");
    mark.style.left = `${(100 * moment.start) / hit.duration}%`;
    mark.style.width = `${(100 * (moment.end - moment.start)) / hit.duration}%`;
    where.append(mark);
  }
  if (!isHit || !hit.duration) where.remove();
  image.classList.add("loading");
  image.addEventListener("load", () => image.classList.remove("loading"));
  image.addEventListener("error", () => explain(picture, image, hit));
  image.src = frame(hit.video_id, isHit ? (start + end) / 2 : hit.duration / 2);
  back.src = image.src; // the same image, blurred, fills the sides of a narrow one
  const open = item.querySelector(".open");
  open.addEventListener("click", () => onOpen(hit, item));
  const alike = item.querySelector(".alike");
  alike.setAttribute("aria-label", `More like this: ${hit.title}`);
  alike.addEventListener("click", () => onAlike(hit));
  if (!hit.offline) {
    if (hit.duration) preview(open, picture, hit, start, end);
    item.draggable = true;
    item.addEventListener("dragstart", (event) => carry(event, hit, isHit && hit.duration && !event.altKey));
  }
  return item;
}

/** Let a card be dragged into a folder: the moment as a clip, or with Alt the whole file. Chromium downloads it there. */
function carry(event, hit, cut) {
  const address = new URL(cut ? clip(hit.video_id, hit.start, hit.end) : stream(hit.video_id), document.baseURI).href;
  const name = (cut ? `${hit.title} ${clock(hit.start)}.mp4` : hit.place.split("/").pop()).replace(/[:"*?<>|\\]/g, ".");
  event.dataTransfer.effectAllowed = "copy";
  event.dataTransfer.setData("DownloadURL", `video/mp4:${name}:${address}`);
  event.dataTransfer.setData("text/uri-list", address);
}

async function explain(picture, image, hit) {
  const other = frame(hit.video_id, hit.duration / 2); // of the list: shown before, perhaps
  if (hit.offline && image.getAttribute("src") !== other) { image.src = other; return; }
  const lost = document.createElement("span");
  lost.className = "lost";
  lost.textContent = "no preview";
  const answer = await fetch(image.src).catch(() => null);
  if (answer && !answer.ok && answer.status !== 410) lost.textContent = (await answer.json().catch(() => ({}))).title || lost.textContent;
  if (answer?.ok) { image.src = `${image.src}&again=1`; return; } // the server was busy
  for (const part of picture.querySelectorAll("img")) part.remove();
  picture.prepend(lost);
}

/** Play the moment, muted, while the pointer is over a card; if it cannot be played, show a few frames. */
function preview(target, picture, hit, start, end) {
  let timer, video, slides;
  const stop = () => {
    clearTimeout(timer);
    clearInterval(slides);
    if (video) { video.removeAttribute("src"); video.load(); video.remove(); video = null; }
    picture.querySelector("img.slide")?.remove();
  };
  const show = () => {
    video = document.createElement("video");
    Object.assign(video, { muted: true, playsInline: true, preload: "auto", disableRemotePlayback: true });
    video.style.opacity = 0;
    const slide = () => { if (video) { video.remove(); video = null; slides = slideshow(picture, hit, start, end); } };
    video.addEventListener("loadedmetadata", () => { if (video?.videoWidth) video.currentTime = start; else slide(); });
    video.addEventListener("seeked", () => { if (video) { video.style.opacity = 1; video.play().catch(() => {}); } });
    video.addEventListener("timeupdate", () => { if (video && video.currentTime >= Math.max(end, start + 1)) video.currentTime = start; });
    video.addEventListener("ended", () => { if (video) video.currentTime = start; });
    video.addEventListener("error", slide);
    video.src = stream(hit.video_id);
    picture.querySelector("img.front")?.after(video);
  };
  target.addEventListener("pointerenter", (event) => {
    if (event.pointerType === "touch" || still.matches) return;
    stop();
    timer = setTimeout(show, HOVER_MS);
  });
  target.addEventListener("pointerleave", stop);
  target.addEventListener("click", stop);
}

function slideshow(picture, hit, start, end) {
  const image = document.createElement("img");
  image.className = "slide";
  image.alt = "";
  picture.querySelector("img.front")?.after(image);
  let place = 0;
  const next = () => { image.src = frame(hit.video_id, start + ((end - start) * (place++ % 4)) / 4); };
  next();
  return setInterval(next, 700);
}
