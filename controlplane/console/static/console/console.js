// Small comforts. Every page works without them.
(function () {
  "use strict";
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // --- theme, menu -------------------------------------------------------------------------
  const root = document.documentElement;
  const showTheme = () => $$("[data-theme-name]").forEach((e) => { e.textContent = root.dataset.theme || "auto"; });
  const themes = ["auto", "light", "dark"];
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-theme-switch]")) {
      const next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3];
      if (next === "auto") delete root.dataset.theme; else root.dataset.theme = next;
      try { localStorage.setItem("theme", next); } catch (e) { root.dataset.storage = "none"; }
      showTheme();
    }
    const menu = event.target.closest("[data-menu]");
    if (menu) menu.setAttribute("aria-expanded", String($("#menu").classList.toggle("open")));
  });
  showTheme();
  // A preference that is saved holds here too.
  document.addEventListener("submit", (event) => {
    if (event.target.matches("[data-theme-form]")) {
      const theme = new FormData(event.target).get("theme");
      try { if (theme) localStorage.setItem("theme", theme); else localStorage.removeItem("theme"); } catch (e) { root.dataset.storage = "none"; }
    }
  });

  // --- copy --------------------------------------------------------------------------------
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).innerText.trim());
    const word = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = word; }, 1200);
  });

  // --- time moves on -----------------------------------------------------------------------
  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  function relative(at, now) {
    const gap = (at - now) / 1000;
    const size = Math.abs(gap);
    if (size < 1) return "just now";
    const [seconds, name] = units.find(([s]) => size >= s);
    const said = Math.floor(size / seconds) + " " + name;
    return gap > 0 ? "in " + said : said + " ago";
  }
  function tick() {
    const now = Date.now();
    $$("[data-relative]").forEach((e) => { e.textContent = relative(Date.parse(e.dataset.relative), now); });
    $$("[data-axis]").forEach((axis) => {
      const start = Number(axis.dataset.start);
      const x = Math.min(100, ((now - start) / (Number(axis.dataset.end) - start)) * 100) + "%";
      const line = $("[data-now] line", axis);
      line.setAttribute("x1", x);
      line.setAttribute("x2", x);
      $("[data-now] circle", axis).setAttribute("cx", x);
      $(".axis-past", axis).setAttribute("width", x);
    });
  }
  setInterval(tick, 1000);

  // --- dialogs -----------------------------------------------------------------------------
  const dialog = $("#dialog");
  document.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-dialog]");
    if (link && !event.metaKey && !event.ctrlKey) {
      event.preventDefault();
      const answer = await fetch(link.href, { headers: { "HX-Request": "true" } }).catch(() => null);
      if (!answer || !answer.ok || answer.redirected) { location.href = link.href; return; }
      $("#dialog-body").innerHTML = await answer.text();
      dialog.showModal();
    }
    if (dialog.open && (event.target.closest("[data-close]") || event.target === dialog)) {
      event.preventDefault();
      dialog.close();
    }
  });

  // --- a lost connection says so -----------------------------------------------------------
  const lost = $("#lost");
  for (const name of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(name, () => { lost.hidden = false; });
  }
  document.addEventListener("htmx:afterOnLoad", (event) => {
    if (event.detail.xhr.status < 400) lost.hidden = true;
  });
  // What is being read or pointed at is not replaced under the reader's hands.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const live = event.target;
    if (live.id === "live" && (dialog.open || document.hidden || live.contains(document.activeElement))) {
      event.preventDefault();
    }
  });

  // --- a form that changes something is sent once, however often it is clicked ---------------
  document.addEventListener("submit", (event) => {
    const form = event.target;
    // Not `form.method`: that is a field of this name where a form has one.
    if (form.getAttribute("method") !== "post" || form.hasAttribute("hx-post")) return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "1";
  });
  addEventListener("pageshow", () => $$("form[data-sent]").forEach((form) => delete form.dataset.sent));

  // --- ticked rows -------------------------------------------------------------------------
  const count = $("[data-bulk-count]");
  if (count) {
    const whole = count.textContent;
    const noun = count.dataset.bulkCount || "job";
    const all = $("[data-tick-all]");
    const ticks = $$("[data-tick]");
    const showTicked = () => {
      const ticked = ticks.filter((tick) => tick.checked).length;
      count.textContent = ticked ? ticked + " ticked " + noun + (ticked === 1 ? "" : "s") : whole;
      all.checked = ticked === ticks.length;
      all.indeterminate = ticked > 0 && ticked < ticks.length;
    };
    all.hidden = false;
    document.addEventListener("change", (event) => {
      if (event.target === all) ticks.forEach((tick) => { tick.checked = all.checked; });
      if (event.target === all || ticks.includes(event.target)) showTicked();
    });
    showTicked();
  }

  // --- keyboard ----------------------------------------------------------------------------
  let current = -1;
  function move(step) {
    const rows = $$("[data-row]");
    if (!rows.length) return;
    rows.forEach((row) => row.classList.remove("current"));
    current = Math.max(0, Math.min(rows.length - 1, current + step));
    rows[current].classList.add("current");
    rows[current].scrollIntoView({ block: "nearest" });
  }
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input:not([type=checkbox]), select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const link = (selector) => { const found = $(selector); if (found) found.click(); return found; };
    switch (event.key) {
      case "/": { const field = $("[data-search]"); if (field) { event.preventDefault(); field.focus(); } break; }
      case "j": move(1); break;
      case "k": move(-1); break;
      case "Enter": if (!event.target.closest("a, button, summary")) link("[data-row].current a"); break;
      case "n": link("[data-new]"); break;
      case "e": link("[data-edit]"); break;
      case "x": link("[data-row].current [data-tick]"); break;
      case "?": $("#help").showModal(); break;
    }
  });
})();
