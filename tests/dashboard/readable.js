// What on a page cannot be read or has no name: texts of too little contrast with what is behind them (below 4.5:1),
// controls and pictures without a name.
() => {
  const numbers = (text) => {
    const match = /(rgba?|color)\((?:srgb )?([^)]+)\)/.exec(text || "");
    if (!match) return null;
    const parts = match[2].split(/[ ,/]+/).map(Number), most = match[1] === "color" ? 255 : 1; // of mixed colours, shares
    return [...parts.slice(0, 3).map((part) => part * most), parts.length > 3 ? parts[3] : 1];
  };
  const luminance = (color) => {
    const [r, g, b] = color.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const over = (color, share, ground) => [0, 1, 2].map((i) => color[i] * share + ground[i] * (1 - share));
  const ground = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = numbers(getComputedStyle(at).backgroundColor);
      if (color && color[3] > 0) layers.push(color);
      if (color && color[3] === 1) break;
    }
    return layers.reverse().reduce((below, color) => over(color, color[3], below), [255, 255, 255]);
  };
  const contrast = (color, share, element) => {
    const below = ground(element);
    const [low, high] = [luminance(over(color, share, below)), luminance(below)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const shown = (element) =>
    element.checkVisibility({ opacityProperty: true, visibilityProperty: true }) &&
    element.getClientRects().length && !element.closest("noscript, script, style, [disabled], .bars, .axis-extent");
  const found = { faint: new Set(), nameless: [], pictures: [] };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || !shown(element)) continue;
    const style = getComputedStyle(element), svg = element instanceof SVGElement;
    const color = numbers(svg ? style.fill : style.color);
    if (!color) continue;
    let share = color[3] * (svg ? Number(style.fillOpacity) : 1);
    for (let at = element; at; at = at.parentElement) share *= Number(getComputedStyle(at).opacity);
    const ratio = contrast(color, share, element);
    if (ratio < 4.5) found.faint.add(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  for (const input of document.querySelectorAll("input[placeholder]")) {
    const color = numbers(getComputedStyle(input, "::placeholder").color), ratio = contrast(color, color[3], input);
    if (shown(input) && ratio < 4.5) found.faint.add(`placeholder of ${input.id}: ${ratio.toFixed(2)}`);
  }
  for (const element of document.querySelectorAll("a[href], button, input, select, textarea, [tabindex]")) {
    const named = ["aria-label", "aria-labelledby", "title"].some((name) => element.getAttribute(name));
    const said = element.textContent.trim() || (element.closest("label") || element).textContent.trim();
    const label = element.labels && element.labels.length;
    if (element.tabIndex >= 0 && shown(element) && !named && !said && !label && !element.closest(".ag-root-wrapper")) {
      found.nameless.push(element.outerHTML.slice(0, 120));
    }
  }
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    if (shown(plot) && !plot.closest("[role=img][aria-label]")) found.pictures.push(plot.parentElement.id);
  }
  for (const image of document.querySelectorAll("img")) if (!image.alt) found.pictures.push(image.src.slice(0, 60));
  return { ...found, faint: [...found.faint] };
}
