"use strict";
// How a gesture becomes a picture: the browser's half. The way as a whole is described in app/gestures.py.

(function () {
  const plotOf = (id) => document.querySelector("#" + id + " .js-plotly-plot");
  const tell = (id, value) => window.dash_clientside.set_props(id, { data: value });
  const skip = () => window.dash_clientside.no_update;

  // ------------------------------------------------------------------------------------------------ what is done
  // What the server is told when a property of Dash changes; undefined for nothing.
  const set = (name, otherwise) => (value) => ({ do: "set", values: { [name]: value ?? otherwise } });
  const GESTURES = {
    "x.value": set("x"),
    "y.value": set("y"),
    "color.value": set("color", null),
    "log.value": set("log", []),
    "show.value": set("show", []),
    "runs.value": set("runs", []),
    "filter.value": set("filter", ""),
    "theme.data": set("theme"),
    "version.data": set("version"),
    "url.search": () => follow(),
    "table.cellClicked": (value) => value?.rowId && { do: "open", design: value.rowId }, // rows that are still asked for have none
    "table.selectedRows": function (rows) {
      const designs = [...(rows || []).map((row) => row._id), ...unticked].sort();
      if (String(designs) !== String(picked)) return { do: "pick", designs: (picked = designs) };
    },
  };

  // Not told by Dash, which of several presses in a row may only tell the last, and in another order.
  const PRESSED = {
    clear: { do: "clear" },
    "next-design": { do: "walk", step: 1 },
    "previous-design": { do: "walk", step: -1 },
    "make-reference": { do: "refer" },
  };
  document.addEventListener("click", function ({ target }) {
    const gesture = PRESSED[target.closest?.("button")?.id];
    if (!gesture) return;
    follow(); // a link before it, of which Dash may tell later
    ask(gesture);
  });

  // Only what was drawn goes to the server, not the points in it: the server selects among all designs.
  function selected(event) {
    const axes = { x: shown.x, y: shown.y };
    drawn.figure = null; // the plot shows more than it
    if (event?.range?.x) ask({ do: "box", range: { x: event.range.x, y: event.range.y }, ...axes });
  }

  function clicked(event) {
    const number = event.points[0]?.customdata;
    if (number !== undefined) ask({ do: "point", point: number });
  }

  // What is visible, also of an axis that did not change: the server repeats it, because the next figure would undo it.
  // Which tool is chosen is only known here.
  let tool = "select";
  function looked(changed) {
    tool = changed.dragmode || tool;
    if (!Object.keys(changed).some((key) => /^[xy]axis\.(auto)?range/.test(key))) return;
    const layout = plotOf("scatter").layout;
    const spans = ["xaxis", "yaxis"].map((axis) => (layout[axis].autorange ? null : [...layout[axis].range]));
    const zoom = spans.some(Boolean) ? { x: shown.x, y: shown.y, log: shown.log, spans: spans } : null;
    ask({ do: "set", values: { zoom: zoom } });
  }

  function brushed([changes]) {
    const axes = {}, dimensions = plotOf("parallel").data[0].dimensions;
    for (const [key, value] of Object.entries(changes)) {
      const number = /^dimensions\[(\d+)\]\.constraintrange/.exec(key)?.[1];
      if (number) axes[dimensions[number].name] = value?.[0] ? (Array.isArray(value[0][0]) ? value[0] : [value[0]]) : null;
    }
    if (!Object.keys(axes).length) return;
    told = null; // the plot now shows a state that was not drawn by hand
    ask({ do: "brush", axes: axes });
  }

  // Dash keeps a plot's figure and would draw it again, as it was when the page began, with every change of the layout.
  function listen(plot, handlers) {
    for (const [event, handler] of Object.entries(handlers)) {
      plot.removeAllListeners(event);
      plot.on(event, handler);
    }
  }

  // ----------------------------------------------------------------------------------------- asking and drawing
  let state = null; // after all that the server has been told of, as it said last
  let shown = null; // that of the answer that was drawn last: `state`, unless that has been overtaken
  let drawn = {}; // marks of the figure and rows that are drawn
  const own = { sort: [] }; // the part of the state that only the browser changes
  const ordered = () => JSON.stringify(own.sort);
  const done = []; // gestures that the server has not been told of
  let asking = false;
  let begin;
  const begun = new Promise((done) => (begin = done)); // what is done before waits

  async function post(address, question, from) {
    const body = JSON.stringify({ ...question, state: { ...from, ...own } });
    const response = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, body: body });
    if (!response.ok) throw new Error(address + ": " + response.status);
    return response.json();
  }

  async function ask(gesture) {
    done.push(gesture);
    if (asking) return;
    asking = true;
    try {
      if (!state) await begun;
      while (done.length) {
        const order = ordered();
        const answer = await post("/gestures", { gestures: done.splice(0), drawn: drawn }, state);
        while (drawing) await new Promise((done) => window.setTimeout(done, 20)); // redrawing would end the gesture
        state = answer.state;
        if (!done.length) await draw(answer, order);
        if (!done.length && order !== ordered()) done.push({ do: "set", values: {} }); // of which the address does not know
      }
    } finally {
      asking = false;
    }
  }

  // Not at every step of a walk: browsers refuse an address that changes too often. Dash has to know it, because it
  // goes to the next page from the address that it knows.
  let address = "", written = window.location.search, writing; // the page begins with what its address says
  function locate(query) {
    if (address !== query) write((address = query));
  }

  function write() {
    window.clearTimeout(writing);
    writing = window.setTimeout(function () {
      follow();
      window.history.replaceState(window.history.state, "", window.location.pathname + address);
      written = window.location.search;
      window.dispatchEvent(new PopStateEvent("popstate"));
    }, 300);
  }

  // A link says which design to open. Dash may tell of it when the page has written its own address over it.
  function follow() {
    if (!state || window.location.search === written) return;
    written = window.location.search;
    const design = new URLSearchParams(written).get("design");
    if (design && design !== state.design) ask({ do: "open", design: design });
    write();
  }

  // What is looked at first comes first.
  async function draw(answer, order) {
    await window.scatterDrawn;
    shown = state;
    if (answer.figure) {
      const { layout } = answer.figure;
      layout.dragmode = tool;
      layout.selectionrevision = Date.now(); // it has what is selected: Plotly forgets what it shows of that itself
      await window.Plotly.react(plotOf("scatter"), answer.figure);
    }
    if (answer.rows && grid) fill(answer.rows, order);
    picked = state.selection?.keys || [];
    if (!picked.length) unticked.clear();
    if (grid && !picked.length && grid.getSelectedNodes().length) grid.deselectAll();
    drawn = answer.drawn;
    say(answer.words);
    publish();
    locate(answer.address);
    if (page !== "front") for (const name of ["design", "reference"]) if (published[name] !== state[name]) tell(name, (published[name] = state[name]));
    changedAt = Date.now();
  }

  // What Dash's own callbacks read, such as those that save tables.
  function publish() {
    tell("shown", { state: { ...shown, ...own } });
  }

  // Told place by place: of two calls of a callback in a row Dash may drop what the first returned.
  let said = {};

  function say(words) {
    for (const [place, value] of Object.entries(words)) {
      if (JSON.stringify(said[place]) === JSON.stringify(value)) continue;
      const [id, property] = place.split(".");
      window.dash_clientside.set_props(id, { [property]: value });
      said[place] = value;
    }
  }

  // ---------------------------------------------------------------------------------------------------- the table
  let grid = null, rows = null; // rows: the first ones, which have come with an answer, and their order
  let picked = []; // designs that the server knows to be ticked
  const unticked = new Set(); // those among them that the address says, whose rows have not been in the table yet
  let latest = 0; // of the questions for rows, and the answers that have had some: what is said of older ones is past

  const source = {
    getRows: async function (request) {
      own.sort = request.sortModel;
      if (state) publish();
      const number = ++latest, before = shown;
      let found = request.startRow === 0 && rows?.order === ordered() && rows;
      rows = null;
      if (!found) {
        found = await post("/rows", { start: request.startRow, end: request.endRow }, shown);
        if (number === latest) say({ "table-note.children": found.note });
        if (number === latest && before === shown && !asking) locate(found.address);
      }
      request.successCallback(found.rows, found.count);
      if (unticked.size) grid.forEachNode((node) => unticked.delete(node.id) && node.setSelected(true));
    },
  };

  // The rows of the first block stay until they are replaced; further down the table begins anew.
  function fill(found, order) {
    rows = { ...found, order: order };
    latest += 1;
    const blocks = Object.values(grid.getCacheBlockState());
    if (blocks.length === 1 && grid.getDisplayedRowCount()) grid.refreshInfiniteCache();
    else grid.purgeInfiniteCache();
  }

  // ------------------------------------------------------------------------------------- the parallel coordinates
  // They need WebGL, which takes long to draw without a graphics card; so they follow when scatter and table have been
  // drawn and nothing has changed for a while, and only while they are on screen. Asked by clock: an
  // IntersectionObserver speaks once per change, and not at all while a browser without a graphics card skips frames.
  const QUIET_MS = 500, AT_MOST_EVERY_MS = 1500;
  let changedAt = 0, told = null, toldAt = 0;

  window.setInterval(function () {
    const plot = plotOf("parallel");
    const filled = document.querySelector("#table .ag-row") || document.getElementById("table-note")?.textContent.startsWith("0 of");
    if (!plot || !state || !filled) return;
    const { show, filter, selection, runs, color, version, theme } = state, wanted = { show, filter, selection, runs, color, version, theme };
    const box = plot.getBoundingClientRect(), now = Date.now(), text = JSON.stringify(wanted);
    const visible = Math.min(box.bottom, window.innerHeight) - Math.max(box.top, 0) >= Math.max(box.height / 4, 1);
    if (!visible || told === text || asking || now - changedAt < QUIET_MS || now - toldAt < AT_MOST_EVERY_MS) return;
    told = text;
    toldAt = now;
    listen(plot, { plotly_restyle: brushed });
    tell("parallel-wanted", wanted);
  }, 100);

  // ------------------------------------------------------------------------------------------------- runs that grow
  const ASKED_EVERY_MS = 1000;
  const known = {};
  let drawing = false; // by hand, in a plot: what is new waits for its end

  function hold({ type, buttons, target }) {
    drawing = Boolean(buttons & 1 && (drawing || (type === "pointerdown" && target.closest?.(".js-plotly-plot"))));
  }
  for (const name of ["pointerdown", "pointermove", "pointerup", "pointercancel"]) document.addEventListener(name, hold, true);

  window.setInterval(async function () {
    if (!state || drawing || asking) return;
    known.version ??= state.version;
    known.alive ??= Boolean(document.querySelector("#status .live"));
    const response = await fetch("/growth").catch(() => null); // the server may have ended
    if (!response?.ok) return;
    for (const [name, value] of Object.entries(await response.json())) if (known[name] !== value) tell(name, (known[name] = value));
  }, ASKED_EVERY_MS);

  // ------------------------------------------------------------------------------------------------ where Dash is
  let page = "front", published = {};
  let pair = []; // that the page of comparisons shows

  Promise.all([window.scatterMade, begun]).then(function () {
    const deselected = () => (asking || state.selection) && ask({ do: "clear" });
    listen(plotOf("scatter"), { plotly_selected: selected, plotly_deselect: deselected, plotly_click: clicked, plotly_relayout: looked });
  });

  window.dash_clientside = Object.assign({}, window.dash_clientside, {
    gestures: {
      // The other pages learn which design and reference are chosen when one of them is shown, every time: of two calls
      // in a row Dash may drop what the first returned.
      opened: function (name) {
        page = name;
        if (state) write();
        if (page === "front" || !state) return [skip(), skip()];
        published = { design: state.design, reference: state.reference };
        return Object.values(published);
      },

      done: function () {
        for (const { prop_id: name, value } of window.dash_clientside.callback_context.triggered) {
          const gesture = GESTURES[name](value);
          if (gesture) ask(gesture);
        }
      },

      compared: function (first, second) {
        if (first && second && String(pair) !== String([first, second])) ask({ do: "compare", pair: (pair = [first, second]) });
      },

      begun: function (first) {
        if (state) return;
        ({ state, drawn, address, words: said } = first);
        shown = state;
        published = { design: state.design, reference: state.reference }; // which the page came with
        own.sort = state.sort;
        for (const design of (picked = state.selection?.keys || [])) unticked.add(design);
        begin();
        follow();
      },

      // Dash's own source asks: Dash puts it in when the table is ready, which may be twice. The table waits for two
      // answers at most, so this one is given up.
      table: function (request) {
        grid = window.dash_ag_grid.getApi("table");
        if (grid.getGridOption("datasource") !== source) {
          grid.applyColumnState({ state: own.sort.map((by, place) => ({ ...by, sortIndex: place })) });
          grid.setGridOption("datasource", source);
        }
        request?.failCallback?.();
      },
    },
  });
})();
