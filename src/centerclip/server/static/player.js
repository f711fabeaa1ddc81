// The player, among the hits: plays the file itself, or pieces that the server converts when a browser cannot play it.

import { api, between, clip, clock, frame, quote, stream } from "./api.js";
import { Strip } from "./strip.js";

const OFFLINE = "The disk with this file is not connected.\nConnect it, then search again.";

export class Player {
  /** `actions`: onClose(), onAlike(hit, seconds), onRemove(hit), link(hit, seconds) -> address, can() -> what the server allows. */
  constructor(actions) {
    this.actions = actions;
    this.hit = null;
  }

  /** Show a hit below its card and play it from `at` seconds. `query` scores the segments. */
  async open(hit, item, { at, query = {}, focus = true }) {
    this.close(false);
    this.hit = hit;
    const element = document.getElementById("stage").content.firstElementChild.cloneNode(true);
    const find = (name) => element.querySelector(name);
    Object.assign(this, { element, item, video: find("video"), message: find(".message"), offset: 0, piece: null, wanted: at, pieces: false, moments: [], chosen: null });
    find("h2").textContent = hit.title;
    find(".place").textContent = hit.place;
    quote(find("p.line"), hit.line);
    const photo = hit.kind === "photo", picture = find(".photo");
    if (hit.moments?.length && !photo) this.showMoments(hit.moments);
    else Object.assign(find(".save"), { href: stream(hit.video_id), download: hit.place.split("/").pop() }).querySelector("span").textContent = "Save file";
    find(".reveal").hidden = hit.offline || !this.actions.can().reveal;
    find(".save").hidden = this.video.hidden = Boolean(hit.offline);
    if (photo) {
      this.video.hidden = find(".strip").hidden = true;
      picture.hidden = Boolean(hit.offline);
      picture.alt = hit.title;
      picture.addEventListener("error", () => { picture.src = frame(hit.video_id, 0, 640); }, { once: true }); // a HEIC
    }
    find(".remove").hidden = !this.actions.can().remove;
    this.strip = new Strip(find(".strip"), (seconds) => this.seek(seconds));
    find(".close").addEventListener("click", () => this.close());
    find(".more-alike").addEventListener("click", () => this.actions.onAlike(hit, this.position));
    find(".reveal").addEventListener("click", () => api(`/videos/${hit.video_id}/reveal`, { method: "POST" }).catch((problem) => this.say(`${problem.title}.\n${problem.message}`)));
    find(".remove").addEventListener("click", () => this.actions.onRemove(hit));
    find(".copy").addEventListener("click", (event) => this.copy(event.currentTarget));
    this.listen();
    // The browser's own controls keep their key events to themselves; Esc reaches a CloseWatcher from everywhere.
    if (window.CloseWatcher) (this.watcher = new CloseWatcher()).onclose = () => this.close();
    item?.classList.add("playing");
    let last = item; // of its row, so that no gap opens beside it
    while (last?.nextElementSibling?.offsetTop === item?.offsetTop && last?.nextElementSibling) last = last.nextElementSibling;
    if (item) last.after(element); else document.getElementById("hits").prepend(element);
    if (hit.offline) this.say(OFFLINE); else if (photo) picture.src = stream(hit.video_id); else this.start(stream(hit.video_id));
    element.scrollIntoView({ block: "nearest", behavior: "smooth" });
    if (focus) find(hit.offline || photo ? ".close" : "video").focus({ preventScroll: true });
    try {
      const detail = await api(`/videos/${hit.video_id}`, { params: query });
      if (this.element === element) this.describe(detail, query); // unless another video was opened in the meantime
    } catch (problem) {
      if (this.element === element) this.say(`${problem.title}.\n${problem.message}`);
      return;
    }
    if (hit.found_by === "video" && !photo && !hit.offline && this.actions.can().sharpen) await this.sharpen(query);
  }

  /** Have the server index the best moment more finely, and show what comes of it; it is no matter when that fails. */
  async sharpen(query) {
    const { hit, element } = this, { start, end } = hit.moments[0];
    const detail = await api(`/videos/${hit.video_id}/sharpen`, { method: "POST", params: { ...query, start, end } }).catch(() => null);
    if (!detail || this.element !== element || detail.spans.length === this.strip.spans.length) return;
    this.describe(detail, query);
    if (detail.moments.length) this.showMoments(detail.moments);
  }

  /** A button for each moment; the one that was chosen last can be saved. Shown anew, the choice and the focus stay. */
  showMoments(moments) {
    const { hit, element } = this, list = element.querySelector(".moments");
    const distance = (one, other) => Math.abs(one.start + one.end - other.start - other.end);
    const nearest = (moment) => moments.reduce((best, each) => (distance(each, moment) < distance(best, moment) ? each : best));
    const focused = this.moments[[...list.children].indexOf(document.activeElement)];
    const save = ({ start, end }) => { element.querySelector(".save").href = clip(hit.video_id, start, end); };
    const chips = moments.map((moment) => {
      const chip = Object.assign(document.createElement("button"), { type: "button", className: "chip" });
      chip.textContent = between(moment.start, moment.end);
      if (hit.found_by !== "text") chip.title = `Match ${moment.score.toFixed(2)}`;
      chip.addEventListener("click", () => { this.seek(moment.start); this.play(); save(this.chosen = moment); });
      return chip;
    });
    this.chosen &&= nearest(this.chosen);
    save(this.chosen || moments[0]);
    list.replaceChildren(...chips);
    if (focused) chips[moments.indexOf(nearest(focused))].focus({ preventScroll: true });
    this.moments = moments;
  }

  /** Show the segments and the file's details. */
  describe(detail, query) {
    const { hit, element } = this;
    this.duration = detail.duration;
    this.pieceSeconds = detail.piece_seconds;
    if (detail.duration) this.strip.show(detail.spans, detail.duration, Boolean(query.q || query.query));
    const recorded = detail.recorded != null && `recorded ${new Date(1000 * detail.recorded).toLocaleDateString("en-GB", { dateStyle: "medium" })}`;
    const facts = [detail.duration && clock(detail.duration), `${detail.width} × ${detail.height}`, detail.codec, recorded, detail.camera, detail.copies.length && `copies: ${detail.copies.join(", ")}`,
      hit.duplicates?.length && `near-duplicates: ${hit.duplicates.join(", ")}`, detail.note];
    element.querySelector(".notes").textContent = facts.filter(Boolean).join(" · ");
    const trouble = detail.offline ? OFFLINE : {
      missing: "The file is missing.\nIs a disk not mounted? Restore the file, or index its folder again: centerclip index",
      changed: "The file has changed since it was indexed.\nIndex it again: centerclip index",
      unreadable: "The file can no longer be read.\nCheck that it plays in a video player.",
    }[detail.file];
    if (trouble) this.say(trouble);
    else if (!detail.audible && !this.pieces) this.convert(this.position); // it would play silently
  }

  listen() {
    const { video } = this;
    video.addEventListener("loadedmetadata", () => {
      // A picture that the browser cannot decode beside a sound that it can is no error: it plays, black.
      if (!video.videoWidth && !this.pieces) this.convert(this.wanted);
      else video.currentTime = Math.max(0, this.wanted - this.offset);
    });
    video.addEventListener("canplay", () => this.say(""));
    video.addEventListener("timeupdate", () => this.moved());
    video.addEventListener("seeking", () => this.moved());
    video.addEventListener("ended", () => {
      const next = this.offset + this.pieceSeconds;
      if (this.pieces && next < this.duration) this.convert(next);
    });
    video.addEventListener("error", () => this.failed());
  }

  start(source) {
    this.video.src = source;
    this.play();
  }

  play() { this.video.play().catch(() => {}); } // a browser may require a click first

  get position() { return this.offset + (this.video.readyState ? this.video.currentTime : Math.max(0, this.wanted - this.offset)); }

  moved() {
    this.strip.move(this.position);
    const piece = Math.floor(this.offset / (this.pieceSeconds || 1)) + 1;
    // Have the next piece ready before this one ends.
    if (this.pieces && this.ahead !== piece && this.video.currentTime > this.pieceSeconds / 3 && piece * this.pieceSeconds < this.duration) {
      this.ahead = piece;
      fetch(`${stream(this.hit.video_id)}?as=mp4&piece=${piece}`, { headers: { range: "bytes=0-0" } }).catch(() => {});
    }
  }

  seek(seconds) {
    this.wanted = seconds;
    const inside = seconds >= this.offset && seconds < this.offset + this.pieceSeconds;
    if (this.pieces && !inside) { this.convert(seconds); return; }
    if (this.video.readyState) this.video.currentTime = seconds - this.offset;
    this.strip.move(seconds);
  }

  /** Play the converted piece that holds a time. */
  convert(seconds) {
    const length = this.pieceSeconds || 30, piece = Math.floor(seconds / length);
    Object.assign(this, { pieces: true, pieceSeconds: length, piece, offset: piece * length, wanted: seconds });
    this.say("This browser cannot play the file as it is.\nConverting the next 30 seconds …", true);
    this.start(`${stream(this.hit.video_id)}?as=mp4&piece=${piece}`);
  }

  async failed() {
    if (!this.element || !this.video.getAttribute("src")) return;
    const source = this.video.currentSrc || this.video.src, { element } = this;
    const answer = await fetch(source, { headers: { range: "bytes=0-0" } }).catch(() => null);
    if (this.element !== element) return;
    if (!answer) this.say("The server does not respond.\nStart it again with: centerclip serve");
    else if (!answer.ok) {
      const problem = await answer.json().catch(() => ({}));
      this.say(`${problem.title || "The video cannot be played"}.\n${problem.detail || ""}`);
    } else if (!this.pieces) this.convert(this.wanted);
    else this.say("This browser can play neither the file nor its converted version.\nOpen it in a video player.");
  }

  say(text, veil = false) {
    this.message.hidden = !text;
    this.message.classList.toggle("veil", veil);
    this.message.textContent = text;
  }

  async copy(button) {
    const label = button.querySelector("span"), address = this.actions.link(this.hit, this.position);
    try {
      await navigator.clipboard.writeText(address);
      label.textContent = "Copied";
    } catch {
      prompt("Link:", address); // without HTTPS, browsers give pages of other machines no clipboard
    }
    setTimeout(() => { label.textContent = "Copy link"; }, 1600);
  }

  /** Close; `notify` calls onClose. */
  close(notify = true) {
    if (!this.element) return;
    const { item, element, video } = this;
    this.element = this.hit = null;
    this.watcher?.destroy();
    video.removeAttribute("src");
    video.load();
    // Some browsers let go of the focus in a video's own controls before Esc is told of: then it is nowhere.
    const inside = element.contains(document.activeElement) || document.activeElement === document.body;
    element.remove();
    item?.classList.remove("playing");
    if (inside && notify) item?.querySelector(".open").focus();
    if (notify) this.actions.onClose();
  }
}
