// The page. The search is kept in the address, so that it can be shared and the back button works.

import { api, clock, frame, watchReach } from "./api.js";
import { card } from "./cards.js";
import { Player } from "./player.js";

const TYPING_PAUSE_MS = 280; // without a key press, before a search starts
const MAX_RECENT = 8; // searches
const TOP = 24, MAX_TOP = 200, MAX_LIST = 500; // hits at first and after Show more; videos that a request lists
const $ = (id) => document.getElementById(id);
const TYPED = ["name", "camera"]; // filters that count while they are typed
const PASSED = ["folder", ...TYPED, "near", "after", "before", "recorded_after", "recorded_before", "only"]; // to the API as they are
const FILTERS = [...PASSED, "length", "moments", "all"];
const NAMES = ["q", "query", "like", "at", "in", ...FILTERS, "sort", "v", "t"];
const empty = Object.fromEntries(NAMES.map((name) => [name, ""]));

let state = { ...empty };
let sample = null; // the uploaded file: sent again when words are added
let shown = []; // the hits on the page
let likely = 0; // how many of them come before the cut
let top_ = TOP;
let status = null;
let running; // aborts the search that is running
let typing;

const player = new Player({
  onClose: () => go({ v: "", t: "" }, { push: false, search: false }),
  onAlike: (hit, seconds) => alike(hit, seconds),
  onRemove: (hit) => remove(hit),
  can: () => ({ reveal: status?.can_reveal, remove: status?.can_add_folders, sharpen: status?.can_sharpen }),
  link: (hit, seconds) => location.origin + address({ ...state, v: hit.video_id, t: seconds.toFixed(1) }),
});

// ---- the address --------------------------------------------------------------------------------------------------

function address(wanted) {
  const query = new URLSearchParams(Object.entries(wanted).filter(([name, value]) => name in empty && value));
  return location.pathname + (query.size ? `?${query}` : "");
}

function read() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(Object.keys(empty).map((name) => [name, query.get(name) ?? ""]));
}

/** Change the search. */
function go(change, { push = true, search = true } = {}) {
  state = { ...state, ...change };
  const target = address(state);
  if (target !== location.pathname + location.search) history[push ? "pushState" : "replaceState"](null, "", target);
  document.title = state.q ? `${state.q} · CenterCLIP` : "CenterCLIP";
  if (search) find();
}

addEventListener("popstate", () => restore());

function restore() {
  const before = state;
  state = read();
  if (state.query !== before.query) sample = null;
  fill();
  find();
}

/** Put the state into the fields. */
function fill() {
  if ($("q").value.trim() !== state.q) $("q").value = state.q;
  for (const name of FILTERS) {
    if ($(name).type === "checkbox") $(name).checked = state[name] === "1"; else $(name).value = state[name];
  }
  for (const name of ["sort", "in"]) $(name).value = state[name];
  showLooking();
  $("filters").disabled = Boolean(state.like); // "more like this" looks at all videos
  const active = FILTERS.filter((name) => state[name]).length;
  $("filter-count").hidden = !active;
  $("filter-count").textContent = active;
  $("toggle-filters").setAttribute("aria-label", active ? `Filters: ${active} set` : "Filters");
  $("sample").hidden = !(state.query || state.like || sample);
  $("q").placeholder = $("sample").hidden ? "Describe what the video shows" : "add words (optional)";
  if (state.like) { $("sample-name").textContent = "similar to this moment"; $("sample-picture").src = frame(state.like, Number(state.at || 0), 160); }
  else if (sample) { $("sample-name").textContent = sample.name || "image"; $("sample-picture").src = sample.picture; }
  else if (state.query) { $("sample-name").textContent = "image or clip"; $("sample-picture").removeAttribute("src"); }
}

/** The choice between what is shown and what is said, where there is one. */
function showLooking() { $("looking").hidden = !(state.q && (status?.has_text || state.in)) || Boolean(state.query || state.like || sample); }

// ---- searching ----------------------------------------------------------------------------------------------------

function narrowing() {
  const [min_duration, max_duration] = state.length ? state.length.split("-") : ["", ""];
  return { ...Object.fromEntries(PASSED.map((name) => [name, state[name]])), min_duration, max_duration };
}

const options = () => ({ ...narrowing(), moments: state.moments && "true", all: state.all && "true", top: top_ });
const list = (offset, limit, signal) => api("/videos", { params: { sort: state.sort || "added", offset, limit, ...narrowing() }, signal });

const isSearch = () => Boolean(state.q || state.query || state.like || sample);

/** Run the search of the state, or list the newest videos. */
async function find() {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  $("hits").setAttribute("aria-busy", "true");
  try {
    const answer = await ask(signal);
    if (!signal.aborted) show(answer);
  } catch (problem) {
    if (problem.name !== "AbortError" && !signal.aborted) complain(problem);
  } finally {
    if (!signal.aborted) $("hits").setAttribute("aria-busy", "false");
  }
}

async function ask(signal) {
  if (sample && !state.query) {
    const form = new FormData();
    form.set("file", sample.file);
    if (state.q) form.set("q", state.q);
    note("Uploading …");
    const answer = await api("/search", { method: "POST", form, params: options(), signal });
    if (!signal.aborted) go({ query: answer.query }, { search: false });
    return answer;
  }
  if (state.query) return api("/search", { params: { query: state.query, ...options() }, signal });
  if (state.like) return api(`/videos/${state.like}/similar`, { params: { start: state.at, top: top_ }, signal });
  if (state.q) return api("/search", { params: { q: state.q, in: state.in, ...options() }, signal });
  const { videos, total } = await list(0, Math.min(top_, MAX_LIST), signal);
  return { hits: videos, total, list: true };
}

function show(answer) {
  player.close(false);
  shown = answer.hits;
  likely = answer.likely || shown.length;
  $("show-timeline").hidden = Boolean(answer.list) || !shown.length;
  showRecent();
  const cards = shown.map((hit) => card(hit, play, alike));
  if (answer.likely > 0 && answer.likely < cards.length) {
    for (const one of cards.slice(answer.likely)) one.classList.add("unlikely");
    cards.splice(answer.likely, 0, Object.assign(element("li", "Less likely"), { className: "cut" }));
  }
  $("hits").replaceChildren(...cards);
  $("more").hidden = answer.list ? shown.length >= answer.total : shown.length < top_ || top_ >= MAX_TOP;
  $("sorting").hidden = !answer.list || !answer.total;
  $("heading").textContent = answer.list ? "Videos" : "Hits";
  if (answer.list) describeList(answer);
  else if (!shown.length) note("Nothing found.", state.in === "text" ? "These words are not said or written in any video." : "No video matches the filters.", "empty");
  else if (!answer.convincing) note("Probably none of these matches.", "The closest ones:", "weak");
  else note(state.like ? "Similar videos, best first." : "", `${$("more").hidden ? "" : "Best "}${count(shown.length, state.moments ? "moment" : "video")} in ${(1000 * answer.seconds).toFixed(0)} ms`);
  reopen();
}

function describeList(answer) {
  if (answer.total) return note(`${count(answer.total, "video")}.`, "Describe what you are looking for, or drop an image.");
  if (FILTERS.some((name) => state[name])) return note("Nothing found.", "No video matches the filters.", "empty");
  if (status?.indexing.running) return note("Indexing has started.", "Videos appear here as they are indexed.", "empty");
  const how = status?.can_add_folders ? "Add a folder with the button below, or in a terminal: " : "In a terminal: ";
  return note("There are no videos yet.", how, "empty", status?.add_command);
}

const count = (number, thing) => `${number.toLocaleString("en")} ${thing}${number === 1 ? "" : "s"}`;

function note(strong, text = "", kind = "", code = "") {
  const parts = [Object.assign(document.createElement("strong"), { textContent: strong }), ` ${text}`.replace("  ", " ")];
  if (code) parts.push(Object.assign(document.createElement("code"), { textContent: code }));
  $("note").className = kind;
  $("note").replaceChildren(...parts);
}

function complain(problem) {
  if (problem.kind === "token-needed") { askToken(); return; }
  if (problem.kind === "offline") return; // the bar says it, and the hits stay
  player.close(false);
  shown = [];
  $("hits").replaceChildren();
  $("more").hidden = $("sorting").hidden = $("show-timeline").hidden = true;
  if (problem.kind === "no-index") { describeList({ total: 0 }); return; }
  if (problem.kind === "unknown-query") { sample = null; go({ query: "" }, { push: false, search: false }); fill(); }
  if (problem.status === 413 || problem.status === 415 || problem.status === 422) { sample = null; fill(); }
  note(`${problem.title}.`, problem.message, "empty");
}

// ---- playing ------------------------------------------------------------------------------------------------------

function play(hit, item, { at = hit.start ?? 0, focus = true } = {}) {
  if (player.hit === hit && player.element) { player.close(); return; }
  if (focus) remember();
  go({ v: hit.video_id, t: at.toFixed(1) }, { search: false });
  const query = state.query ? { query: state.query } : { q: state.q };
  player.open(hit, item, { at, query, focus });
}

/** Open the video named in the address: among the hits, or above them. */
async function reopen() {
  if (!state.v) return;
  const at = Number(state.t || 0);
  const same = (item) => item.dataset.video === state.v;
  const cards = [...document.querySelectorAll("#hits .card")], items = cards.filter(same);
  const item = items.find((one) => Math.abs(one.dataset.start - at) < 0.2) ?? items[0];
  if (item) { play(shown[cards.indexOf(item)], item, { at, focus: false }); return; }
  try {
    const video = await api(`/videos/${state.v}`);
    play({ ...video, score: null }, null, { at, focus: false });
  } catch (problem) {
    note(`${problem.title}.`, problem.message, "weak");
  }
}

function alike(hit, seconds = hit.start) {
  sample = null;
  top_ = TOP;
  $("q").value = "";
  go({ ...empty, like: hit.video_id, at: seconds == null ? "" : seconds.toFixed(1) });
  fill();
  scrollTo({ top: 0 });
}

// ---- search box, filters, uploads ---------------------------------------------------------------------------------

$("q").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => say({ push: false }), TYPING_PAUSE_MS);
});
// A form of several fields without a button is not submitted by Enter.
$("q").addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); say({ push: true }); remember(); } });

function say({ push }) {
  clearTimeout(typing);
  const q = $("q").value.trim();
  if (q === state.q && !push) return;
  top_ = TOP;
  scrollTo({ top: 0 });
  // Words beside an image are a new query, so the image is sent again; words replace "more like this".
  go({ q, v: "", t: "", like: "", at: "", query: sample ? "" : q ? "" : state.query }, { push: push || !state.q });
  fill();
}

for (const name of FILTERS) {
  $(name).addEventListener(TYPED.includes(name) ? "input" : "change", () => {
    clearTimeout(typing);
    const value = $(name).type === "checkbox" ? ($(name).checked ? "1" : "") : $(name).value.trim();
    typing = setTimeout(() => { top_ = TOP; go({ [name]: value, v: "", t: "" }, { push: false }); fill(); }, TYPED.includes(name) ? TYPING_PAUSE_MS : 0);
  });
}
$("clear-filters").addEventListener("click", () => { go(Object.fromEntries(FILTERS.map((name) => [name, ""]))); fill(); });
$("toggle-filters").addEventListener("click", () => {
  const open = $("filters").hidden;
  $("filters").hidden = !open;
  $("toggle-filters").setAttribute("aria-expanded", String(open));
  if (open) { loadFolders(); $("folder").focus(); }
});

async function loadFolders() {
  const { folders } = await api("/folders").catch(() => ({ folders: [] }));
  const options = folders.map((folder) => new Option(`${folder.name} (${folder.videos})`, folder.id));
  $("folder").replaceChildren(new Option("All folders", ""), ...options);
  $("folder").value = state.folder;
}

$("pick").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => { if ($("file").files[0]) take($("file").files[0]); $("file").value = ""; });
$("sample-remove").addEventListener("click", () => { sample = null; go({ query: "", like: "", at: "", v: "", t: "" }); fill(); $("q").focus(); });

async function take(file) {
  const limits = status?.limits;
  if (limits && file.size > limits.bytes) {
    note("This file is too large.", `The limit is ${Math.round(limits.bytes / 2 ** 20)} MB. Cut a shorter clip.`, "weak");
    return;
  }
  if (!/^(image|video)\//.test(file.type) && file.type) {
    note("Not an image or a video.", "Choose an image or a short video clip.", "weak");
    return;
  }
  sample = { file, name: file.name, picture: file.type.startsWith("image/") ? URL.createObjectURL(file) : "static/icon.svg" };
  top_ = TOP;
  go({ ...empty, q: state.q, ...Object.fromEntries(FILTERS.map((name) => [name, state[name]])) }, { push: false, search: false });
  fill();
  find();
}

let inside = 0;
let own = false; // a hit is being dragged out of the page
addEventListener("dragstart", () => { own = true; });
addEventListener("dragend", () => { own = false; });
const carries = (event) => !own && [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragenter", (event) => { if (carries(event)) { inside += 1; $("drop").hidden = false; } });
addEventListener("dragleave", (event) => { if (carries(event) && --inside <= 0) { inside = 0; $("drop").hidden = true; } });
addEventListener("dragover", (event) => { if (carries(event)) event.preventDefault(); });
addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  inside = 0;
  $("drop").hidden = true;
  if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
});
addEventListener("paste", (event) => {
  const file = event.clipboardData?.files[0];
  if (file) { event.preventDefault(); take(file); }
});
for (const name of ["sort", "in"]) $(name).addEventListener("change", () => go({ [name]: $(name).value, v: "", t: "" }, { push: false }));
$("more").firstElementChild.addEventListener("click", async () => {
  if (isSearch()) { top_ = Math.min(MAX_TOP, top_ * 2); find(); return; }
  const answer = await list(shown.length, 2 * TOP).catch(complain);
  if (!answer) return;
  shown = [...shown, ...answer.videos];
  top_ = shown.length;
  $("hits").append(...answer.videos.map((video) => card(video, play, alike)));
  $("more").hidden = shown.length >= answer.total;
});

// ---- recent searches, timelines -----------------------------------------------------------------------------------

/** The sentences that were searched for with Enter, or of which a hit was played; newest first, in this browser only. */
function recent() {
  try { return JSON.parse(localStorage.getItem("recent") ?? "[]").filter((one) => typeof one === "string"); } catch { return []; }
}

function keep(list) { try { localStorage.setItem("recent", JSON.stringify(list.slice(0, MAX_RECENT))); } catch { /* no room, or not allowed */ } }

function remember() { if (state.q) keep([state.q, ...recent().filter((one) => one !== state.q)]); }

function showRecent() {
  const list = isSearch() ? [] : recent();
  const button = (name, text, action) => {
    const made = Object.assign(element("button", ""), { type: "button", className: name });
    made.append(element("span", text));
    made.addEventListener("click", action);
    return made;
  };
  const again = (q) => { $("q").value = q; say({ push: true }); remember(); };
  $("recent").hidden = !list.length;
  $("recent").replaceChildren(element("span", "Recent"), ...list.map((q) => button("chip", q, () => again(q))), button("text", "Clear", () => { keep([]); showRecent(); $("q").focus(); }));
}

$("show-timeline").addEventListener("click", () => {
  for (const option of $("timeline-format").options) option.disabled = option.hidden = !status?.timelines.includes(option.value);
  $("timeline-wrong").textContent = "";
  $("timeline-count").textContent = `${count(likely, "moment")}, best first, with timecodes and markers.`;
  $("timeline-dialog").showModal();
});
$("timeline-cancel").addEventListener("click", () => $("timeline-dialog").close());
$("timeline-dialog").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const format = $("timeline-format").value, name = state.q || "hits";
  const moments = shown.slice(0, likely).map(({ video_id, start, end, score }) => ({ video_id, start, end, score }));
  try {
    const answer = await api("/timeline", { method: "POST", json: { format, name, handles: Number($("timeline-handles").value), moments }, raw: true });
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(await answer.blob()), download: `${name.slice(0, 60)}.${format}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    $("timeline-dialog").close();
    const missing = Number(answer.headers.get("x-left-out"));
    if (missing) note(`${count(missing, "moment")} left out of the timeline:`, "the file is not there, or is a photograph.", "weak");
  } catch (problem) { $("timeline-wrong").textContent = problem.message; }
});

// ---- keys ---------------------------------------------------------------------------------------------------------

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, select, textarea");
  const cards = [...document.querySelectorAll("#hits .open")];
  if (event.key === "Escape") {
    if (player.element) player.close();
    else if (field?.id === "q" && field.value) { field.value = ""; say({ push: true }); }
    else if (document.activeElement !== $("q")) $("q").focus();
  } else if (event.key === "/" && !field) { event.preventDefault(); $("q").focus(); $("q").select(); }
  else if (event.key === "ArrowDown" && field?.id === "q" && cards.length) { event.preventDefault(); cards[0].focus(); }
  else if (event.key === "?" && !field) $("keys-dialog").showModal();
  else if (event.key === "m" && !field && (player.hit || event.target.matches(".open"))) {
    if (player.hit) alike(player.hit, player.position);
    else alike(shown[cards.indexOf(event.target)]);
  } else if (event.target.matches?.(".open")) moveFocus(event, cards);
});

function moveFocus(event, cards) {
  const here = cards.indexOf(event.target), box = event.target.getBoundingClientRect();
  const beside = (step) => cards[here + step];
  const row = (down) => {
    const others = cards.map((one) => [one, one.getBoundingClientRect()]).filter(([, other]) => (down ? other.top > box.top + 4 : other.top < box.top - 4));
    const near = others.sort(([, a], [, b]) => Math.abs(a.top - box.top) - Math.abs(b.top - box.top) || Math.abs(a.left - box.left) - Math.abs(b.left - box.left));
    return near[0]?.[0];
  };
  const target = { ArrowLeft: () => beside(-1), ArrowRight: () => beside(1), ArrowDown: () => row(true), ArrowUp: () => row(false) ?? $("q") }[event.key]?.();
  if (target) { event.preventDefault(); target.focus(); }
}

$("show-keys").addEventListener("click", () => $("keys-dialog").showModal());
addEventListener("scroll", () => document.body.classList.toggle("scrolled", scrollY > 8), { passive: true });

// ---- the server: figures, indexing, token, folders ----------------------------------------------------------------

let beat;
async function look() {
  clearTimeout(beat);
  const before = status;
  try {
    status = await api("/status");
    showStatus(before);
  } catch (problem) {
    if (problem.kind === "token-needed") { askToken(); return; }
  }
  const quick = status?.indexing.running || !$("offline").hidden || (status && !status.ready);
  beat = setTimeout(look, document.hidden ? 15000 : quick ? 1000 : 5000);
}

function showStatus(before) {
  const { indexing } = status;
  $("figures").textContent = status.index ? `${count(status.videos, "video")} · ${long()}${status.offline ? ` · ${status.offline} offline` : ""}${status.unreadable ? ` · ${status.unreadable} unreadable` : ""}` : "no index yet";
  $("add-folder").hidden = !status.can_add_folders;
  showLooking();
  $("indexing").hidden = !indexing.running && !indexing.error;
  $("indexing-progress").hidden = !indexing.running;
  if (indexing.error && !indexing.running) $("indexing-text").textContent = `Indexing stopped: ${indexing.error}`;
  else if (indexing.total) {
    const left = ((indexing.total - indexing.finished) * indexing.seconds) / Math.max(1, indexing.finished);
    $("indexing-text").textContent = `Indexing: ${indexing.finished.toLocaleString("en")} of ${indexing.total.toLocaleString("en")} files${indexing.finished ? `, about ${clock(left)} left` : ""}`;
    Object.assign($("indexing-progress"), { max: indexing.total, value: indexing.finished });
  } else {
    $("indexing-text").textContent = "Indexing …";
    $("indexing-progress").removeAttribute("value");
  }
  const grown = before && before.videos !== status.videos;
  if ((grown || (before && before.index !== status.index)) && !player.element && (!isSearch() || !shown.length)) find();
  if (!before && !shown.length && !isSearch() && !status.videos) describeList({ total: 0 });
}

function long() {
  const minutes = Math.round(status.hours * 60);
  return status.hours >= 1 ? `${status.hours.toFixed(1)} hours` : minutes ? count(minutes, "minute") : count(Math.round(status.hours * 3600), "second");
}

$("show-about").addEventListener("click", () => {
  const facts = status?.index ? { Videos: `${status.videos.toLocaleString("en")} (${long()})`, Segments: status.segments.toLocaleString("en"), Size: `${(status.bytes / 1e6).toFixed(1)} MB`, Model: status.model, Clustering: status.clustering } : {};
  const entries = Object.entries({ ...facts, CenterCLIP: status?.version ?? "" });
  $("about-facts").replaceChildren(...entries.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  const failures = $("about-failures");
  failures.hidden = !status?.unreadable;
  failures.firstElementChild.textContent = `${count(status?.unreadable ?? 0, "file")} could not be read`;
  failures.lastElementChild.replaceChildren(...(status?.failures ?? []).map(({ place, reason }) => element("li", `${place}: ${reason}`)));
  $("about-dialog").showModal();
});
const element = (name, text) => Object.assign(document.createElement(name), { textContent: text });

async function remove(hit) {
  if (!confirm(`Remove ${hit.title} from the index? The file stays where it is.`)) return;
  try {
    await api(`/videos/${hit.video_id}`, { method: "DELETE" });
  } catch (problem) { player.say(`${problem.title}.\n${problem.message}`); return; }
  player.close();
  find();
  look();
}

let wasGone = false;
watchReach((reached) => {
  $("offline").hidden = reached;
  if (reached && wasGone && !player.element) find();
  wasGone = !reached;
  if (!reached) { clearTimeout(beat); beat = setTimeout(look, 1500); }
});

function askToken() { if (!$("token-dialog").open) $("token-dialog").showModal(); }
$("token-dialog").addEventListener("cancel", (event) => event.preventDefault());
$("token-dialog").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    await api("/login", { method: "POST", json: { token: $("token").value } });
    $("token-dialog").close();
    look();
    find();
  } catch (problem) { $("token-wrong").textContent = problem.message; }
});

$("add-folder").addEventListener("click", () => { choose(""); $("folder-dialog").showModal(); });

/** Show a folder in the dialog, with those in it to look into. */
async function choose(path) {
  $("folder-wrong").textContent = "";
  $("folder-path").value = path;
  const { folders } = await api("/available-folders", { params: { path } }).catch(() => ({ folders: [] }));
  const entry = (text, target) => {
    const item = element("li", ""), button = Object.assign(element("button", text), { type: "button", className: "text" });
    button.addEventListener("click", () => choose(target));
    item.append(button);
    return item;
  };
  const up = path ? [entry("↑ up", path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : "")] : [];
  $("folder-list").replaceChildren(...up, ...folders.map((folder) => entry(folder.split("/").pop(), folder)));
}
$("folder-cancel").addEventListener("click", () => $("folder-dialog").close());
$("look-again").addEventListener("click", () => addFolder(null));
$("folder-dialog").querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); addFolder($("folder-path").value.trim() || "."); });
async function addFolder(path) {
  try {
    await api("/folders", { method: "POST", json: { path } });
    $("folder-dialog").close();
    look();
  } catch (problem) { $("folder-wrong").textContent = problem.message; }
}

async function begin() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token) {
    history.replaceState(null, "", location.pathname + location.search); // so that it is not shared with a link
    await api("/login", { method: "POST", json: { token } }).catch(() => {});
  }
  state = read();
  fill();
  if (FILTERS.some((name) => state[name])) await loadFolders();
  look();
  find();
}

begin();
