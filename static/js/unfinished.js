/* The run that was going when the page went. After a lost connection Gradio loads the page anew, while the server lets
 * an unwatched run go on for a minute: asking for the same settings again attaches to it. Kept for this tab only. */
const GRACE_MS = 50_000; // less than the server's minute, so that no page load starts a computation

const key = (slug) => `playable-run-${slug}`;

/** Notes that the run of this query is going, or (null) that none is. */
export function remember(slug, query) {
  try {
    if (query === null) sessionStorage.removeItem(key(slug));
    else sessionStorage.setItem(key(slug), JSON.stringify({ query, at: Date.now() }));
  } catch {
    // storage can be forbidden in an embedded page: then Run is pressed by hand
  }
}

/** The query of the run that was going when this tab's page went a moment ago, or null. */
export function unfinished(slug) {
  try {
    const { query, at } = JSON.parse(sessionStorage.getItem(key(slug)) ?? "{}");
    return Date.now() - at < GRACE_MS ? query : null;
  } catch {
    return null;
  }
}
