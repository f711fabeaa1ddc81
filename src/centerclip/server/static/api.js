// The REST API: fetch, with errors that say what to do.

const ROOT = "api/v1"; // relative to the page, which may be below a path of a proxy

export class Problem extends Error {
  constructor(status, kind, title, detail) {
    super(detail || title);
    Object.assign(this, { status, kind, title });
  }
}

let onReach = () => {};
/** Call `listener(true or false)` whenever the server was reached or not. */
export function watchReach(listener) { onReach = listener; }

/** Call the API. `params` become the query string, without empty ones. `raw`: the response itself, not its JSON. */
export async function api(path, { params = {}, method = "GET", json, form, signal, raw } = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== "" && value != null && value !== false));
  const address = `${ROOT}${path}${query.size ? `?${query}` : ""}`;
  const headers = json ? { "content-type": "application/json" } : {};
  let response;
  try {
    response = await fetch(address, { method, signal, headers, body: json ? JSON.stringify(json) : form });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    onReach(false);
    throw new Problem(0, "offline", "The server does not respond", "Start it again with: centerclip serve");
  }
  onReach(true);
  if (response.ok && raw) return response;
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json().catch(() => ({}));
  const kind = String(problem.type || "").split(":").pop() || "failed";
  throw new Problem(response.status, kind, problem.title || "Something went wrong", problem.detail);
}

/** A time as 1:02:03 or 2:03. */
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, String(whole % 60).padStart(2, "0")];
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** A part of a video as 0:12 – 0:19; with tenths where whole seconds would show nothing: 0:00.2 – 0:00.9. */
export function between(start, end) {
  const tenths = (seconds) => `${clock(seconds + 1e-6)}.${Math.floor(10 * seconds + 1e-6) % 10}`;
  return (end - start < 1 ? [tenths(start), tenths(end)] : [clock(start), clock(end)]).join(" – ");
}

const BEFORE_MARK = 60; // letters of a line: where its first mark comes later, the line is shown from there on
const SOURCES = { subtitle: "said", spoken: "said", written: "written", chapter: "chapter", title: "title", description: "description", name: "name" };

/** How a line came to be found, in a word. */
export function source(line) { return SOURCES[line.source] ?? "text"; }

/** Put a line into an element, with the words of the query marked. Its text is never read as HTML. */
export function quote(element, line) {
  element.hidden = !line || line.source === "name"; // which is there anyway
  if (element.hidden) return;
  const letters = [...line.text], parts = []; // marks count characters; a string's places are halves of some
  let at = (line.marks[0]?.[0] ?? 0) > BEFORE_MARK ? letters.lastIndexOf(" ", line.marks[0][0] - BEFORE_MARK / 2) + 1 : 0;
  if (at) parts.push("… ");
  for (const [first, last] of line.marks) {
    parts.push(letters.slice(at, first).join(""), Object.assign(document.createElement("mark"), { textContent: letters.slice(first, last).join("") }));
    at = last;
  }
  const timed = !["title", "description"].includes(line.source);
  element.replaceChildren(`${source(line)}${timed ? ` at ${clock(line.start)}` : ""}: `, ...parts, letters.slice(at).join(""));
}

/** The address of a frame of a video. */
export function frame(id, time, width = 320) {
  return `${ROOT}/videos/${id}/frames/${Math.max(0, time).toFixed(1)}.jpg?width=${width}`;
}

/** The address of the file of a video. */
export function stream(id) { return `${ROOT}/videos/${id}/stream`; }

/** The address of a part of a video as a file. */
export function clip(id, start, end) {
  return `${ROOT}/videos/${id}/clip.mp4?${new URLSearchParams({ start: start.toFixed(2), seconds: Math.min(600, Math.max(0.5, end - start)).toFixed(2) })}`;
}
