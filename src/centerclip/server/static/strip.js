// The timeline under the player: how well each segment matches. Click or use the arrow keys to jump.

import { clock } from "./api.js";

const MAX_BARS = 600; // a long film has more segments: a bar then shows the best of several
const SVG = "http://www.w3.org/2000/svg";

export class Strip {
  /** `element` is the slider, `jump(seconds)` moves the player. */
  constructor(element, jump) {
    Object.assign(this, { element, jump, spans: [], duration: 1, at: 0 });
    this.head = Object.assign(document.createElement("span"), { className: "head" });
    this.tip = Object.assign(document.createElement("span"), { className: "tip", hidden: true });
    const time = (event) => {
      const box = element.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * this.duration;
    };
    element.addEventListener("pointerdown", (event) => {
      element.setPointerCapture(event.pointerId);
      this.jump(this.startOf(time(event)));
    });
    element.addEventListener("pointermove", (event) => {
      this.showTip(time(event));
      if (event.buttons) this.jump(time(event));
    });
    element.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Draw the segments `[{start, end, score}]`; `scored` tells whether there was a query. */
  show(spans, duration, scored) {
    Object.assign(this, { spans, duration: duration || 1, scored });
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${this.duration} 1`);
    svg.setAttribute("preserveAspectRatio", "none");
    const scores = spans.map((span) => span.score);
    const low = Math.min(...scores), high = Math.max(...scores), room = Math.max(high - low, 0.02);
    for (const bar of merged(spans)) {
      const rect = document.createElementNS(SVG, "rect");
      const share = scored ? (bar.score - low) / room : 0.25;
      const height = 0.08 + 0.87 * share, gap = Math.min((bar.end - bar.start) * 0.06, this.duration / 400);
      const place = { x: bar.start, y: 1 - height, width: Math.max(bar.end - bar.start - gap, this.duration / 2000), height };
      for (const [name, value] of Object.entries(place)) rect.setAttribute(name, value.toFixed(4));
      if (!scored || share < 0.7) rect.classList.add("far");
      svg.append(rect);
    }
    this.element.replaceChildren(svg, this.head, this.tip);
    this.element.setAttribute("aria-valuemax", Math.round(this.duration));
    this.move(this.at);
  }

  /** Show the player's position. */
  move(seconds) {
    this.at = seconds;
    this.head.style.left = `${(100 * seconds) / this.duration}%`;
    this.element.setAttribute("aria-valuenow", Math.round(seconds));
    this.element.setAttribute("aria-valuetext", this.text(seconds));
  }

  text(seconds) {
    const span = this.spans[this.number(seconds)];
    return span && this.scored ? `${clock(seconds)}, match ${span.score.toFixed(2)}` : clock(seconds);
  }

  showTip(seconds) {
    this.tip.hidden = false;
    this.tip.textContent = this.text(seconds).replace(", match", "  ·");
    const share = seconds / this.duration;
    this.tip.style.left = `${100 * share}%`;
    this.tip.style.transform = `translateX(${-100 * share}%)`;
  }

  number(seconds) {
    const found = this.spans.findIndex((span) => seconds < span.end);
    return found < 0 ? this.spans.length - 1 : found;
  }

  startOf(seconds) { return this.spans[this.number(seconds)]?.start ?? seconds; }

  key(event) {
    const here = this.number(this.at + 0.05);
    const best = this.spans.reduce((top, span, place) => (span.score > this.spans[top].score ? place : top), 0);
    const steps = { ArrowLeft: here - 1, ArrowRight: here + 1, PageDown: here + 10, PageUp: here - 10, Home: 0, End: this.spans.length - 1, ArrowUp: best, ArrowDown: best };
    if (!(event.key in steps) || !this.spans.length) return;
    event.preventDefault();
    event.stopPropagation();
    this.jump(this.spans[Math.min(this.spans.length - 1, Math.max(0, steps[event.key]))].start);
  }
}

function merged(spans) {
  const share = Math.ceil(spans.length / MAX_BARS);
  if (share <= 1) return spans;
  const bars = [];
  for (let first = 0; first < spans.length; first += share) {
    const part = spans.slice(first, first + share);
    bars.push({ start: part[0].start, end: part.at(-1).end, score: Math.max(...part.map((span) => span.score)) });
  }
  return bars;
}
