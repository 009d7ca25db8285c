"use strict";
// What runs in the browser besides gestures.js: theme, pages, keys, and saving plots.

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

  // The scatter takes clicks when it is made, and has been on the screen when it is drawn.
  window.scatterMade = new Promise(function (done) {
    const timer = window.setInterval(function () {
      if (!document.querySelector("#scatter .js-plotly-plot:not(.dash-graph--pending)")) return;
      window.clearInterval(timer);
      done();
    }, 20);
  });
  window.scatterDrawn = window.scatterMade.then(() => new Promise((done) => window.requestAnimationFrame(() => window.setTimeout(done))));

  // Large scripts are fetched and compiled when the scatter has been drawn and their component is needed.
  const { Children, createElement, lazy, Suspense } = window.React;
  function later(library, component) {
    const Late = lazy(() => window.scatterDrawn.then(() => new Promise(function (done) {
      const script = document.createElement("script");
      script.onload = () => done({ default: window[library][component] });
      script.src = window.alloScripts[library];
      document.head.append(script);
    })));
    window[library] = { [component]: (props) => createElement(Suspense, { fallback: null }, createElement(Late, props)) };
  }
  later("dash_ag_grid", "AgGrid");
  later("dash_cytoscape", "Cytoscape");

  // Components of app/parts.py.
  const cells = (tag, texts, properties) => texts.map((text, at) => createElement(tag, { key: at, ...properties }, text));
  window.allo_dse = {
    Card: function ({ id, title, note, tools, wide, children }) {
      const parts = Children.toArray(children), words = note ? createElement("p", { className: "hint" }, note) : null;
      const head = [createElement("h2", null, title), words, createElement("div", { className: "tools" }, ...parts.slice(0, tools))];
      return createElement("section", { id: id, className: wide ? "card wide" : "card" },
        createElement("div", { className: "card-head" }, ...head), ...parts.slice(tools));
    },
    Facts: ({ pairs }) => createElement("dl", { className: "facts" }, pairs.map(([name, value], at) =>
      createElement("div", { key: at }, createElement("dt", null, name), createElement("dd", null, value)))),
    Save: ({ graph }) => ["PNG", "SVG"].map((format) => createElement("button", {
      key: format, className: "small", title: "Save this plot as " + format, onClick: () => save(graph, format.toLowerCase()),
    }, format)),
    Table: ({ head, rows, classes }) => createElement("div", { className: "table-box" }, createElement("table", null,
      createElement("thead", null, createElement("tr", null, cells("th", head, { scope: "col" }))),
      createElement("tbody", null, rows.map((row, at) => createElement("tr", { key: at, className: classes[at] }, cells("td", row)))))),
  };

  function save(name, format) {
    const plot = document.querySelector("#" + CSS.escape(name) + " .js-plotly-plot");
    if (!plot || !window.Plotly) return;
    const dark = document.documentElement.dataset.theme === "dark";
    const shown = { data: plot.data, layout: { ...plot.layout, paper_bgcolor: dark ? "#1d2129" : "#ffffff" } };
    const size = { width: plot.clientWidth, height: plot.clientHeight };
    window.Plotly.downloadImage(shown, { format: format, filename: name, scale: format === "png" ? 2 : 1, ...size });
  }

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
        return [...PAGES.map((name) => ({ display: name === now ? "block" : "none" })), ...window.dash_clientside.gestures.opened(now)];
      },

      swap: (clicks, first, second) => (clicks ? [second, first] : [skip(), skip()]),

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

  // Links to the sections of a long page. Asked by clock: pages are drawn by Dash, part by part.
  function headings() {
    const page = [...document.querySelectorAll(".page")].find((one) => one.style.display === "block");
    return page && page.id !== "page-front" ? [...page.querySelectorAll(".card-head h2")].filter((head) => head.offsetParent) : [];
  }
  window.setInterval(function () {
    const links = document.getElementById("sections"), found = headings(), names = found.map((head) => head.textContent);
    if (!links || links.dataset.names === names.join()) return;
    links.dataset.names = names.join();
    links.replaceChildren(...names.map(function (name, number) {
      const link = document.createElement("button");
      link.textContent = name;
      link.className = "small";
      link.addEventListener("click", () => headings()[number]?.scrollIntoView());
      return link;
    }));
  }, 500);

  // As links do: what Dash is told of might come when another page has been chosen already.
  const LEADS_TO = { "open-design": "tab-design", "compare-now": "tab-compare", "compare-picked": "tab-compare" };
  document.addEventListener("click", (event) => press(LEADS_TO[event.target.closest?.("button")?.id]));

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
