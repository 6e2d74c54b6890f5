// The console's own script: live pictures, charts, the viewer's time zone, keys and the dialog. No inline code,
// nothing is evaluated; without it every page still works.
"use strict";
(() => {
  const body = document.body;
  const pulse = document.getElementById("pulse");
  const dialog = document.getElementById("dialog");

  // Times: written in UTC by the server, shown in the viewer's zone.
  const sameDay = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const otherDay = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  function localize(within) {
    const today = new Date().toDateString();
    for (const element of within.querySelectorAll("time[data-ms]")) {
      const at = new Date(Number(element.dataset.ms));
      element.textContent = (at.toDateString() === today ? sameDay : otherDay).format(at);
    }
  }

  // Morph: make `old` look like `next` and leave alone what is the same, so that focus, selection and open
  // details survive a refresh. Elements with data-keep get new attributes, never new children.
  function morph(old, next) {
    if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName || (old.id || "") !== (next.id || "")) {
      old.replaceWith(next);
      return;
    }
    if (old.nodeType === Node.TEXT_NODE || old.nodeType === Node.COMMENT_NODE) {
      if (old.data !== next.data) old.data = next.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.hasAttribute("data-keep")) return;
    const news = [...next.childNodes];
    const olds = [...old.childNodes];
    news.forEach((child, at) => (at < olds.length ? morph(olds[at], child) : old.append(child)));
    olds.slice(news.length).forEach((child) => child.remove());
  }

  // Charts: uPlot on what the server put beside them.
  const charts = new Map();
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const LABELS = { rate: ["in", "out", "/s"], runs: ["runs", "failed", "/s"], time: ["wait p95", "run p95", "ms"] };
  function draw(figure) {
    const series = JSON.parse(figure.dataset.series);
    const data = [series.at, series.a, series.b];
    const known = charts.get(figure);
    if (known) {
      if (known.shown !== figure.dataset.series) known.plot.setData(data);
      known.shown = figure.dataset.series;
      tellNewest(known.plot);
      return;
    }
    const target = figure.querySelector(".plot");
    const [first, second, unit] = LABELS[figure.dataset.chart];
    const value = (_, number) => (number == null ? "–" : `${number.toLocaleString(undefined, { maximumFractionDigits: number < 10 ? 2 : number < 100 ? 1 : 0 })} ${unit}`);
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const line = (label, stroke) => ({ label, stroke, width: 1.75, value, points: { show: figure.dataset.chart === "time", size: 4, fill: stroke }, fill: figure.dataset.chart === "rate" && label === "out" ? `${stroke}22` : undefined });
    const plot = new uPlot(
      {
        width: Math.max(200, target.clientWidth), height: 150,
        cursor: { y: false, drag: { x: false, y: false } },
        legend: { live: true },
        hooks: { ready: [tellNewest] }, // before, it would write over what the legend was told
        scales: { x: { time: true }, y: { range: (_, least, most) => [0, Math.max(1, (most || 0) * 1.1)] } },
        padding: [6, 8, 0, 0],
        axes: [{ ...axis, size: 22, space: 90, values: (_, seconds) => seconds.map((second) => sameDay.format(second * 1000)) }, { ...axis, size: 50, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString()) }],
        series: [{ label: "at", value: (_, second) => (second == null ? "" : sameDay.format(second * 1000)) }, line(first, color("--accent")), line(second, color("--second"))],
      },
      data, target,
    );
    charts.set(figure, { plot, shown: figure.dataset.series });
  }
  // The legend shows the newest values until a pointer asks for others.
  function tellNewest(plot) {
    if (plot.cursor.idx != null && plot.cursor.left >= 0) return;
    const at = plot.data[1].findLastIndex((value) => value != null);
    if (at >= 0) plot.setLegend({ idx: at }, false);
  }
  function drawAll() {
    for (const [figure, { plot }] of charts) {
      if (!figure.isConnected) { plot.destroy(); charts.delete(figure); }
    }
    if (typeof uPlot === "undefined") return;
    document.querySelectorAll("figure[data-chart]").forEach(draw);
  }
  function drawAnew() {
    for (const { plot } of charts.values()) plot.destroy();
    charts.clear();
    drawAll();
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAnew);
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(() => {
      for (const [figure, { plot }] of charts) plot.setSize({ width: Math.max(200, figure.querySelector(".plot").clientWidth), height: 150 });
    }, 100);
  });

  // Live: one stream while the tab is seen and nobody paused it.
  let source = null;
  let paused = false;
  function say(state, text) {
    if (!pulse) return;
    pulse.className = `pulse ${state}`;
    pulse.textContent = text;
  }
  function put(place, html) {
    const next = place.cloneNode(false);
    next.innerHTML = html; // rendered by the server, which escaped every text in it
    morph(place, next);
    localize(place);
  }
  function show({ html, outage }) {
    const live = document.getElementById("live");
    put(document.getElementById("outage"), outage || "");
    if (html !== null) put(live, html); // else the last picture stays
    if (typeof htmx !== "undefined") htmx.process(live);
    drawAll();
    const away = document.querySelector(".verdict.away");
    say(away ? "away" : "live", away ? "no Redis" : "live");
  }
  function connect() {
    if (source || paused || document.hidden || !body.dataset.live) return;
    source = new EventSource(body.dataset.live);
    source.addEventListener("picture", (event) => show(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      say("away", "console away");
      if (source && source.readyState === EventSource.CLOSED) { disconnect(); setTimeout(connect, 3000); }
    });
  }
  function disconnect() {
    if (source) source.close();
    source = null;
  }
  function toggle() {
    paused = !paused;
    if (paused) { disconnect(); say("", "paused"); } else { say("", "connecting"); connect(); }
  }
  document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
  addEventListener("pagehide", disconnect);
  addEventListener("pageshow", (event) => event.persisted && connect());
  if (pulse) pulse.addEventListener("click", toggle);

  // The dialog of an action.
  body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target === dialog && !dialog.open) {
      dialog.showModal();
      (dialog.querySelector("[autofocus]") || dialog).focus();
    }
    localize(event.target.isConnected ? event.target : document);
  });
  body.addEventListener("htmx:responseError", (event) => {
    // A refusal is a page of its own: show it where the dialog would have been.
    if (event.detail.target !== dialog) return;
    const page = new DOMParser().parseFromString(event.detail.xhr.responseText, "text/html");
    const told = page.querySelector(".verdict");
    const close = Object.assign(document.createElement("button"), { textContent: "Close", autofocus: true });
    close.dataset.close = "";
    dialog.replaceChildren(...(told ? [told] : ["This did not work."]), close);
    dialog.showModal();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) { event.preventDefault(); dialog.close(); }
    if (event.target === dialog) dialog.close();
  });

  // Keys.
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    if (event.key === "/") {
      const input = document.querySelector("main input[type=search]") || document.querySelector("input[type=search]");
      if (input) { event.preventDefault(); input.focus(); input.select(); }
    } else if (event.key === "p" && pulse) {
      toggle();
    } else {
      const link = document.querySelector(`a[data-key="${CSS.escape(event.key)}"]`);
      if (link) link.click();
    }
  });

  localize(document);
  drawAll();
  connect();
})();
