"use strict";
// Keeps an open page current from its stream of server-sent events; without it the pages work, too.

const body = document.body;
const live = document.querySelector("#live");
let stream = null;
let address = "";
let waiting = 0;

// Makes `old` the same as `fresh`, and keeps elements, so that focus and selection stay.
function morph(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  morphChildren(old, fresh);
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset?.key : undefined;
}

function morphChildren(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) {
    if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  }
  let place = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const key = keyOf(child);
    const known = key === undefined ? undefined : keyed.get(key);
    if (known !== undefined && known !== place) old.insertBefore(known, place);
    if (known !== undefined) {
      place = known.nextSibling;
      morph(known, child);
    } else if (place === null || key !== undefined || keyOf(place) !== undefined) {
      old.insertBefore(child, place);
    } else {
      const next = place.nextSibling;
      morph(place, child);
      place = next;
    }
  }
  while (place !== null) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

function show(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const part = document.getElementById(id);
    const fresh = new DOMParser().parseFromString(html, "text/html").body;
    if (part !== null) morphChildren(part, fresh);
  }
}

function say(text, state) {
  if (live.textContent !== text) live.textContent = text;
  live.className = state;
}

// Says why there is no stream, in the words of the answer, which `EventSource` does not show.
async function explain(url, mine) {
  const asked = new AbortController();
  try {
    const answer = await fetch(url, { signal: asked.signal });
    if (!answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const [title, what] = ["h1", "main p"].map((each) => page.querySelector(each)?.textContent);
      if (mine === stream) say([title ?? `answer ${answer.status}`, what].join(": "), "bad");
    }
  } catch {
    // The broker is gone, which the page says already.
  } finally {
    asked.abort();
  }
}

function listen(url) {
  if (stream !== null) stream.close();
  clearTimeout(waiting);
  address = url;
  const mine = new EventSource(url);
  stream = mine;
  mine.onmessage = (event) => {
    if (mine !== stream) return;
    show(JSON.parse(event.data));
    say("live", "good");
  };
  mine.addEventListener("end", () => {
    mine.close();
    say("ended: load it again", "bad");
  });
  mine.onerror = () => {
    if (mine !== stream) return;
    say("not connected: trying again", "bad");
    // The browser tries again by itself, except after an answer that is no stream.
    if (mine.readyState !== EventSource.CLOSED) return;
    waiting = setTimeout(listen, 5000, url);
    explain(url, mine);
  };
}

if (body.dataset.stream !== undefined && live !== null) {
  listen(body.dataset.stream);
  // A browser has six connections to a host: pages that nobody sees leave them to the others.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) {
      listen(address);
      return;
    }
    stream.close();
    clearTimeout(waiting);
    say("paused", "");
  });
}

const filter = document.querySelector("#q");
if (filter !== null) {
  filter.addEventListener("input", () => {
    const query = new URLSearchParams(location.search);
    query.delete("q");
    if (filter.value) query.set("q", filter.value);
    const text = query.size ? `?${query}` : "";
    history.replaceState(null, "", location.pathname + text);
    clearTimeout(waiting);
    waiting = setTimeout(listen, 150, `/events${text}`);
  });
}

document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement;
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  document.querySelector("#find, #q")?.focus(); // a page without a search has a filter
});
