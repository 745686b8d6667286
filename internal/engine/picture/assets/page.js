"use strict";
// The page reads without this script. It lets people choose a demand and a time; the address
// remembers both, so that a page that is reloaded shows the same.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const demand = $("demand"), slider = $("frame"), follow = $("follow");
  document.querySelector(".controls").hidden = false;

  const level = (u) => (u < 0 ? -1 : u < 1 ? 0 : u < 500 ? 1 : u < 800 ? 2 : u < 1000 ? 3 : 4);
  const words = (u) => (u < 0 ? "not there" : (u / 10).toFixed(1) + " %");
  const at = () => (slider ? Number(slider.value) : data.frames.length - 1);

  // pathAt is where the chosen demand goes at a frame.
  const pathAt = (frame) => {
    let found = null;
    for (const p of data.demands[demand.value] ?? []) if (p.from <= frame) found = p;
    return found;
  };

  const draw = () => {
    const frame = at(), used = data.used[frame] ?? [], path = demand.value === "" ? null : pathAt(frame);
    const parts = new Map(path ? path.shares : []);
    data.links.forEach((about, i) => {
      const link = $("l" + i), label = $("t" + i), on = demand.value === "" || parts.has(i);
      if (!link) return;
      const u = level(used[i]), part = parts.get(i);
      link.setAttribute("class", "link u" + u + (on ? "" : " off"));
      link.querySelector("path").setAttribute("marker-end", `url(#tip${u})`);
      link.querySelector("title").textContent = about + ": " + words(used[i]) + (part === undefined ? "" : `; ${(part / 10).toFixed(0)} % of the demand`);
      if (!label) return;
      label.textContent = part !== undefined ? (part / 10).toFixed(0) + " % of it" : on && used[i] >= 1 ? (used[i] / 10).toFixed(0) + " %" : "";
    });
    if (slider) $("when").textContent = data.frames[frame];
    const cursor = $("cursor");
    if (cursor) {
      const box = cursor.ownerSVGElement.viewBox.baseVal, times = data.frames.length - 1;
      cursor.setAttribute("transform", `translate(${-(box.width - 72) * (1 - data.at[frame] / Math.max(1, data.at[times]))} 0)`);
    }
    paths();
  };

  // paths lists where the chosen demand went.
  const paths = () => {
    const section = $("paths");
    if (!section) return;
    section.hidden = demand.value === "";
    if (section.hidden) return;
    $("of").textContent = demand.selectedOptions[0].textContent;
    section.querySelector("tbody").replaceChildren(
      ...[...data.demands[demand.value]].reverse().map((p) => {
        const row = document.createElement("tr");
        for (const text of [data.frames[p.from], p.lists]) row.insertCell().textContent = text;
        return row;
      }),
    );
  };

  const remember = () => {
    const state = new URLSearchParams();
    if (demand.value !== "") state.set("demand", demand.selectedOptions[0].textContent);
    if (slider && slider.value !== slider.max) state.set("time", data.frames[at()]);
    if (follow?.checked) state.set("follow", "1");
    history.replaceState(null, "", "#" + state);
    draw();
  };

  const state = new URLSearchParams(location.hash.slice(1));
  for (const o of demand.options) if (o.textContent === state.get("demand")) demand.value = o.value;
  if (slider && data.frames.includes(state.get("time"))) slider.value = data.frames.indexOf(state.get("time"));
  if (follow) {
    follow.checked = state.has("follow");
    setInterval(() => follow.checked && location.reload(), Number(follow.dataset.every));
  }
  for (const el of [demand, slider, follow]) el?.addEventListener("input", remember);
  draw();
})();
