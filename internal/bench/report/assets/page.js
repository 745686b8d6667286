"use strict";
// Draws the charts of the page. What they show was worked out by the report, and
// stands in the element "data"; here is only how a browser shows it.
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);
  const drawn = new Map(); // element's id -> ECharts instance
  const shades = [1, 0.4, 0.15, 0];
  const dashes = ["solid", [8, 4], [3, 3], [10, 3, 3, 3]];
  // Signs of others' figures, in turn: symbol, its outline in the legend, pattern.
  const strangers = [
    ["diamond", "M10 1 15 6 10 11 5 6Z", [4, 4]],
    ["triangle", "M10 1 15 11 5 11Z", [1.5, 3]],
    ["rect", "M5.5 1.5H14.5V10.5H5.5Z", [9, 3]],
  ];
  const stranger = (a) => strangers[a.variant % strangers.length];
  const root = document.documentElement;

  const colours = () => {
    const style = getComputedStyle(root);
    const get = (name) => style.getPropertyValue(name).trim();
    return { ink: get("--ink"), muted: get("--muted"), rule: get("--rule"), ground: get("--ground"), panel: get("--panel") };
  };

  // tick writes a number below an axis, as the pictures have it.
  const tick = (v) => {
    const a = Math.abs(v);
    const [by, unit] = a >= 1e12 ? [1e12, "T"] : a >= 1e9 ? [1e9, "G"] : a >= 1e6 ? [1e6, "M"] : a >= 1e4 ? [1e3, "k"] : [1, ""];
    return String(parseFloat((v / by).toPrecision(4))).replace("-", "\u2212") + (unit && "\u202f" + unit);
  };

  const escape = (s) => s.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

  const axis = (c, t, value, narrow) => {
    const log = value ? c.logY : c.logX;
    const base = {
      type: log ? "log" : "value",
      min: value ? c.min : "dataMin", max: value ? c.max : "dataMax",
      minInterval: !value && c.series.every((s) => s.points.every((p) => Number.isInteger(p.x))) ? 1 : 0,
      axisLabel: { color: t.ink, fontSize: 13, formatter: tick, hideOverlap: true },
      axisLine: { show: !value, lineStyle: { color: t.muted } }, axisTick: { show: false },
      splitLine: { show: value, lineStyle: { color: t.rule } },
      ...(value && !log ? { interval: c.step } : { startValue: c.min }), // of bars on a logarithmic axis
    };
    const decade = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-9;
    if (log && value) Object.assign(base.axisLabel, { showMinLabel: decade(c.min), showMaxLabel: decade(c.max) });
    // Columns begin and end where packets do: at no number that is worth a name.
    if (!value && c.kind === "density") Object.assign(base.axisLabel, { showMinLabel: false, showMaxLabel: false });
    if (value || !c.categories) return base;
    return {
      ...base, type: "category", data: c.categories, inverse: c.flat, min: null, max: null,
      axisLine: { show: !c.flat, lineStyle: { color: t.muted } },
      axisLabel: {
        color: t.ink, fontSize: 13, interval: 0, lineHeight: 16,
        ...(c.flat ? { width: narrow ? 112 : 240, overflow: "break" } : {}),
      },
    };
  };

  // along puts a pair in the order of the axes.
  const along = (c, x, y) => (c.flat ? [y, x] : [x, y]);

  // whiskers are the intervals of bars and dots, which lie.
  const whiskers = (c, s, at, t) => ({
    type: "custom", name: s.name, silent: true, z: 5, tooltip: { show: false },
    data: s.points.filter((p) => p.interval).map((p) => [p.low, p.high, p.x]),
    encode: { x: [0, 1], y: 2 },
    renderItem: (_, api) => {
      const low = api.coord([api.value(0), api.value(2)]);
      const high = api.coord([api.value(1), api.value(2)]);
      const band = api.size([0, 1])[1];
      const bar = c.kind === "bars";
      const thick = (0.76 * band) / c.series.length;
      const y = bar ? low[1] - 0.38 * band + (at + 0.5) * thick : low[1];
      const cap = bar ? Math.min(4, 0.3 * thick) : 0;
      const style = { stroke: bar ? t.ink : s.colour, lineWidth: bar ? 1.2 : 2, fill: "none" };
      return { type: "path", shape: { pathData: `M${low[0]},${y}H${high[0]}M${low[0]},${y - cap}v${2 * cap}M${high[0]},${y - cap}v${2 * cap}` }, style };
    },
  });

  // band is the interval of a line.
  const band = (s) => ({
    type: "custom", name: s.name, silent: true, z: 1, tooltip: { show: false },
    data: [s.points.flatMap((p) => [p.x, p.low, p.high])],
    renderItem: (_, api) => {
      const edge = (key) => s.points.map((p) => api.coord([p.x, p.interval ? p[key] : p.y]));
      return { type: "polygon", shape: { points: [...edge("high"), ...edge("low").reverse()] }, style: { fill: s.colour, opacity: 0.16 } };
    },
  });

  const value = (c) => (p) => ({ value: along(c, p.x, p.y), text: p.text });

  const drawBars = (c, s, at, t) => [
    {
      type: "bar", name: s.name, data: s.points.map(value(c)), barGap: "14%", barCategoryGap: "24%", barMinWidth: 3,
      itemStyle: { color: s.colour, borderColor: s.colour, borderWidth: s.variant ? 1 : 0 },
      ...(s.variant ? { itemStyle: { color: fade(s.colour, shades[s.variant] ?? 0), borderColor: s.colour, borderWidth: 1 } } : {}),
    },
    whiskers(c, s, at, t),
  ];

  const drawDots = (c, s, at, t) => [
    { type: "scatter", name: s.name, data: s.points.map(value(c)), symbolSize: 9, itemStyle: { color: s.colour, opacity: 1 } },
    whiskers(c, s, at, t),
  ];

  const drawLine = (c, s) => {
    const dense = c.kind === "density";
    const line = {
      type: "line", name: s.name, data: s.points.map(value(c)), showSymbol: !dense, symbol: "circle", symbolSize: 6,
      step: false, z: 3, itemStyle: { color: s.colour }, lineStyle: { color: s.colour, width: 2, type: dashes[s.variant] ?? dashes[3] },
    };
    return c.kind === "lines" && s.points.length > 1 ? [line, band(s)] : [line];
  };

  const fade = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");

  // A figure that is beyond the axes stands at their end, with its value.
  const atEdge = (p, t) => ({
    symbolOffset: [0, 18 * (p.level ?? 0)],
    label: {
      show: true, formatter: p.label, position: p.beyond === "right" ? "left" : "right", distance: 6,
      color: t.ink, fontSize: 12, backgroundColor: t.ground, padding: [1, 3],
    },
  });

  // Others' figures: hollow, and of no colour of ours.
  const drawAnchor = (c, a, t) => ({
    type: "scatter", name: a.name, symbol: stranger(a)[0], symbolSize: 12, z: 6,
    itemStyle: { color: t.ground, borderColor: t.muted, borderWidth: 1.6, opacity: 1 },
    data: a.points.filter((p) => p.x !== null).map((p) => ({ ...value(c)(p), ...(p.beyond ? atEdge(p, t) : {}) })),
    markLine: {
      silent: true, symbol: "none", label: { show: false }, lineStyle: { color: t.muted, type: stranger(a)[2], width: 1.3 },
      data: a.points.filter((p) => p.x === null).map((p) => (c.flat ? { xAxis: p.y } : { yAxis: p.y })),
    },
  });

  const reference = (c, t) =>
    c.reference === null ? [] : [{
      type: "line", name: "", data: [], silent: true,
      markLine: {
        silent: true, symbol: "none", label: { show: false }, lineStyle: { color: t.muted, type: "solid", width: 1.2 },
        data: [c.flat ? { xAxis: c.reference } : { yAxis: c.reference }],
      },
    }];

  const tooltip = (c, t) => ({
    trigger: "item", confine: true, backgroundColor: t.panel, borderColor: t.rule, textStyle: { color: t.ink, fontSize: 14 },
    formatter: (p) => {
      const x = c.categories ? c.categories[p.value[c.flat ? 1 : 0]] : c.kind === "density" ? "" : tick(p.value[0]);
      return [p.seriesName, x].filter(Boolean).map((s) => `<b>${escape(s)}</b>`).join("<br>") + "<br>" + escape(p.data.text);
    },
  });

  const option = (c, narrow) => {
    const t = colours();
    const draw = { bars: drawBars, forest: drawDots }[c.kind] ?? drawLine;
    const [x, y] = along(c, axis(c, t, false, narrow), axis(c, t, true, narrow));
    return {
      animation: false, backgroundColor: "transparent", textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 4, right: narrow ? 16 : 24, top: 12, bottom: 4, containLabel: true },
      legend: { show: false, data: [...c.series, ...c.anchors].map((s) => s.name) },
      tooltip: tooltip(c, t), xAxis: x, yAxis: y,
      series: [...c.series.flatMap((s, i) => draw(c, s, i, t)), ...c.anchors.map((a) => drawAnchor(c, a, t)), ...reference(c, t)],
    };
  };

  const show = (c) => {
    const el = document.getElementById(c.element);
    el.style.height = c.height + "px";
    const chart = drawn.get(c.element) ?? echarts.init(el, null, { renderer: "svg" });
    drawn.set(c.element, chart);
    chart.resize();
    const selected = chart.getOption()?.legend?.[0]?.selected;
    chart.setOption(option(c, el.clientWidth < 560), true);
    for (const [name, on] of Object.entries(selected ?? {})) if (!on) chart.dispatchAction({ type: "legendUnSelect", name });
  };

  const sign = (c, s, anchor) => {
    if (anchor && s.points.every((p) => p.x === null)) return `<path d="M0 6H20" stroke="currentColor" stroke-width="1.4" stroke-dasharray="${stranger(s)[2].join(" ")}"/>`;
    if (anchor) return `<path d="${stranger(s)[1]}" fill="none" stroke="currentColor" stroke-width="1.4"/>`;
    if (c.flat) return `<rect x="2" y="1" width="16" height="10" fill="${s.colour}" fill-opacity="${shades[s.variant] ?? 0}" stroke="${s.colour}"/>`;
    const dash = { 0: "none", 1: "5 2", 2: "2 2" }[s.variant] ?? "6 2 2 2";
    return `<path d="M0 6H20" stroke="${s.colour}" stroke-width="2.4" stroke-dasharray="${dash}"/>`;
  };

  // The legend is made of buttons, so that the keyboard reaches it.
  const legend = (c) => {
    const list = document.querySelector(`.legend[data-for="${c.element}"]`);
    for (const s of list ? [...c.series, ...c.anchors] : []) {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      button.innerHTML = `<svg viewBox="0 0 20 12" aria-hidden="true">${sign(c, s, !s.colour)}</svg>`;
      button.append(s.name);
      button.addEventListener("click", () => {
        const on = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(on));
        drawn.get(c.element).dispatchAction({ type: on ? "legendSelect" : "legendUnSelect", name: s.name });
      });
      list.append(document.createElement("li"));
      list.lastChild.append(button);
    }
  };

  const all = () => charts.forEach(show);

  const themes = { "": "as the system's", light: "light", dark: "dark" };
  const theme = document.getElementById("theme");
  theme.addEventListener("click", () => {
    const names = Object.keys(themes);
    const next = names[(names.indexOf(root.dataset.theme ?? "") + 1) % names.length];
    if (next) root.dataset.theme = next;
    else delete root.dataset.theme;
    theme.textContent = "theme: " + themes[next];
    all();
  });

  // Paper is white, and has every row.
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open])")] };
    root.dataset.theme = "light";
    before.closed.forEach((d) => (d.open = true));
    all();
  });
  addEventListener("afterprint", () => {
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    before.closed.forEach((d) => (d.open = false));
    all();
  });

  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(all, 100);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  charts.forEach(legend);
  all();
})();
