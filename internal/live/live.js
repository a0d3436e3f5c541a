// Keeps the parts of the page that have data-live up to date from "events". Only what
// differs is changed, so focus, selection and what a screen reader has read stay.
"use strict";
(() => {
  const pause = document.getElementById("pause");
  const connection = document.getElementById("connection");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let source = null, paused = false, last = 0, later = 0;

  function say(text) {
    if (connection.textContent !== text) connection.textContent = text;
  }

  function morph(old, fresh) {
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
      old.replaceWith(fresh);
    } else if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
    } else {
      for (const { name } of [...old.attributes]) {
        if (!fresh.hasAttribute(name)) old.removeAttribute(name);
      }
      for (const { name, value } of fresh.attributes) {
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      const olds = [...old.childNodes], freshs = [...fresh.childNodes];
      freshs.forEach((f, i) => i < olds.length ? morph(olds[i], f) : old.append(f));
      olds.slice(freshs.length).forEach((o) => o.remove());
    }
  }

  function update(html) {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    for (const part of fresh.querySelectorAll("[data-live]")) {
      const old = document.getElementById(part.id);
      // Rows that change places under the one who is about to press a button in one
      // of them would be a trap.
      const busy = part.hasAttribute("data-hold") && old && old.contains(document.activeElement);
      if (old && !busy) morph(old, part);
    }
  }

  function connect() {
    if (paused || document.hidden || source) return;
    source = new EventSource("events");
    source.onopen = () => say("Live.");
    source.onmessage = (e) => {
      // The newest event is shown later and not dropped: it may be the last one for a long time.
      clearTimeout(later);
      later = setTimeout(() => {
        last = Date.now();
        update(e.data);
      }, calm.matches ? last + 5000 - Date.now() : 0);
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        say("Live updates are not available: the page shows an earlier state. Reload it to try again.");
      } else {
        say("The connection is lost; trying again.");
      }
    };
  }

  function disconnect(text) {
    clearTimeout(later);
    if (source) source.close();
    source = null;
    say(text);
  }

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (paused) disconnect("Paused."); else connect();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) disconnect(paused ? "Paused." : "Paused while the page is hidden."); else connect();
  });

  // Forms with data-stay do what they do without leaving the page.
  document.addEventListener("submit", async (e) => {
    if (!e.target.hasAttribute("data-stay")) return;
    e.preventDefault();
    try {
      const answer = await fetch(e.target.getAttribute("action"), {
        method: "POST", redirect: "manual", body: new URLSearchParams(new FormData(e.target, e.submitter)),
      });
      if (answer.status >= 400) say("The request was refused: " + await answer.text());
    } catch {
      say("The request did not get through.");
    }
  });

  connect();
})();
