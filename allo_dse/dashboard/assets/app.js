"use strict";
// What runs in the browser: theme, pages, gestures reduced to a few numbers, keys, and saving plots.

(function () {
  const PAGES = ["front", "progress", "design", "compare"];
  const skip = () => window.dash_clientside.no_update;

  function pageOf(pathname) {
    const name = (pathname || "/").split("/")[1];
    return PAGES.includes(name) ? name : PAGES[0];
  }

  function press(id) {
    const element = document.getElementById(id);
    if (element) element.click();
  }

  // The page's head has chosen one, and told the server by a cookie, which draws the first picture in its colours.
  function setTheme(name) {
    document.cookie = "theme=" + name + ";path=/;samesite=strict";
    document.documentElement.dataset.theme = name;
    document.documentElement.dataset.agThemeMode = name;
    return name;
  }
  setTheme(document.documentElement.dataset.theme);

  const scatterPlot = () => document.querySelector("#scatter .js-plotly-plot:not(.dash-graph--pending)");
  const scatterDrawn = new Promise(function (done) {
    const timer = window.setInterval(function () {
      if (!scatterPlot()) return;
      window.clearInterval(timer);
      window.requestAnimationFrame(() => window.setTimeout(done));
    }, 20);
  });

  // The table's script is large: it is fetched and compiled after the scatter has been drawn.
  const { createElement, lazy, Suspense } = window.React;
  const LateGrid = lazy(() => scatterDrawn.then(() => new Promise(function (done) {
    const script = document.createElement("script");
    script.onload = () => done({ default: window.dash_ag_grid.AgGrid });
    script.src = window.alloGrid;
    document.head.append(script);
  })));
  window.dash_ag_grid = { AgGrid: (props) => createElement(Suspense, { fallback: null }, createElement(LateGrid, props)) };

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    allo: {
      theme: function (clicks, before) {
        if (!clicks) return skip();
        window.localStorage.alloTheme = before === "dark" ? "light" : "dark";
        return setTheme(window.localStorage.alloTheme);
      },

      page: function (pathname) {
        const now = pageOf(pathname);
        // Plots that were drawn while their page was hidden learn their size when it is shown.
        for (const wait of [30, 400, 1500]) window.setTimeout(() => window.dispatchEvent(new Event("resize")), wait);
        for (const name of PAGES) {
          const tab = document.getElementById("tab-" + name);
          if (tab) {
            if (name === now) tab.setAttribute("aria-current", "page");
            else tab.removeAttribute("aria-current");
          }
        }
        return PAGES.map((name) => ({ display: name === now ? "block" : "none" }));
      },

      // Only what was drawn goes to the server, not the points in it: the server selects among all designs.
      gesture: function (selected, x, y) {
        if (selected === undefined) return skip();
        if (!selected) return null;
        if (selected.range && selected.range.x) return { x: x, y: y, range: selected.range };
        if (selected.lassoPoints && selected.lassoPoints.x) return { x: x, y: y, lasso: selected.lassoPoints };
        return skip();
      },

      // What is visible (also of an axis that did not change), which tool is chosen, and from where space is seen. The
      // server repeats all of it, because the next figure would undo it.
      zoom: function (changed, x, y, log, before) {
        const layout = document.querySelector("#scatter .js-plotly-plot")?.layout, keys = Object.keys(changed || {});
        const kept = { tool: changed?.dragmode || before.tool, camera: changed?.["scene.camera"] || before.camera };
        if (!layout || !keys.some((key) => /^[xy]axis\.(auto)?range/.test(key))) return [skip(), kept];
        const spans = ["xaxis", "yaxis"].map((axis) => (layout[axis].autorange ? null : [...layout[axis].range]));
        return [spans.some(Boolean) ? { x: x, y: y, log: log, spans: spans } : null, kept];
      },

      brush: function (restyled, figure) {
        if (!restyled || !figure || !figure.data || !figure.data.length) return [skip(), skip(), skip()];
        const changes = restyled[0], found = {};
        for (const key of Object.keys(changes)) {
          const match = /^dimensions\[(\d+)\]\.constraintrange/.exec(key);
          if (!match) continue;
          const dimension = figure.data[0].dimensions[Number(match[1])];
          const value = changes[key] && changes[key][0];
          found[dimension.name] = value ? (Array.isArray(value[0]) ? value : [value]) : null;
        }
        // The plot shows now what no callback has drawn; and the same brush twice is news.
        return Object.keys(found).length ? [found, null, null] : [skip(), skip(), skip()];
      },

      purge: function () {
        const grid = window.dash_ag_grid;
        if (grid.getApiAsync) {
          grid.getApiAsync("table").then(function (api) {
            if (!api || !api.getCacheBlockState) return;
            // The rows of the first block stay until the new ones have come; further down the table begins anew.
            if (Object.keys(api.getCacheBlockState()).length > 1) api.purgeInfiniteCache();
            else api.refreshInfiniteCache();
          });
        }
        return Date.now();
      },

      image: function () {
        const context = window.dash_clientside.callback_context;
        const hit = context.triggered.find((t) => t.value);
        if (!hit) return skip();
        const id = JSON.parse(hit.prop_id.slice(0, hit.prop_id.lastIndexOf(".")));
        const plot = document.querySelector("#" + CSS.escape(id.graph) + " .js-plotly-plot");
        if (plot && window.Plotly) {
          const dark = document.documentElement.dataset.theme === "dark";
          const shown = { data: plot.data, layout: Object.assign({}, plot.layout, { paper_bgcolor: dark ? "#1d2129" : "#ffffff" }) };
          const size = { width: plot.clientWidth, height: plot.clientHeight };
          window.Plotly.downloadImage(shown, Object.assign({ format: id.format, filename: id.graph, scale: id.format === "png" ? 2 : 1 }, size));
        }
        return Date.now();
      },

      help: function (open, close) {
        const dialog = document.getElementById("help");
        if (!dialog) return skip();
        const triggered = window.dash_clientside.callback_context.triggered;
        if (triggered.some((t) => t.prop_id.startsWith("help-button") && t.value)) dialog.showModal();
        else if (dialog.open) dialog.close();
        return skip();
      },
    },
  });

  // New designs wait while something is drawn in a plot: redrawing would end the gesture.
  document.addEventListener("pointerdown", function (event) {
    if (event.target.closest && event.target.closest(".js-plotly-plot")) window.dash_clientside.set_props("live", { disabled: true });
  }, true);
  document.addEventListener("pointerup", () => window.dash_clientside.set_props("live", { disabled: false }), true);

  // The parallel coordinates need WebGL, which takes long to draw without a graphics card; so they follow when scatter
  // and table have been drawn and nothing has changed for a while, and only while they are on screen. Asked by clock: an
  // IntersectionObserver speaks once per change, and not at all while a browser without a graphics card skips frames.
  const QUIET_MS = 500, AT_MOST_EVERY_MS = 1500;
  let seen = null, since = 0, told = null, toldAt = 0;
  window.setInterval(function () {
    const plot = document.getElementById("parallel"), scatter = scatterPlot();
    if (!plot || !scatter || !document.querySelector("#table .ag-row")) return;
    if (scatter.data !== seen) {
      seen = scatter.data;
      since = Date.now();
    }
    const box = plot.getBoundingClientRect();
    const visible = Math.min(box.bottom, window.innerHeight) - Math.max(box.top, 0) >= Math.max(box.height / 4, 1);
    const now = Date.now();
    if (!visible || told === seen || now - since < QUIET_MS || now - toldAt < AT_MOST_EVERY_MS) return;
    told = seen;
    toldAt = now;
    window.dash_clientside.set_props("parallel-wanted", { data: now });
  }, 100);

  document.addEventListener("keydown", function (event) {
    const tag = event.target.tagName;
    const typing = tag === "INPUT" || tag === "TEXTAREA" || tag === "SELECT" || event.target.isContentEditable;
    if (event.key === "Escape" && tag === "INPUT") event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const dialog = document.getElementById("help");
    if (dialog && dialog.open) return;
    const byKey = { t: "theme-button", "?": "help-button", r: "make-reference", c: "compare-now", j: "next-design", k: "previous-design", Escape: "clear" };
    if (event.key >= "1" && event.key <= "4") press("tab-" + PAGES[Number(event.key) - 1]);
    else if (event.key === "/") {
      event.preventDefault();
      document.getElementById("page-front").style.display = "block"; // what is hidden cannot be focused
      document.getElementById("filter").focus();
      press("tab-front");
    } else if (event.key === "Enter" && event.target === document.body) press("open-design");
    else if (byKey[event.key]) press(byKey[event.key]);
  });
})();
