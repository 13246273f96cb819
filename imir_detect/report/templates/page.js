(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const sign = (text) => text.replace(/^-(?=0\.?0*$)/, "").replace("-", "\u2212");
  const show = (value, whole) =>
    value === null ? "\u2013" : typeof value === "string" ? value : sign(whole ? String(value) : value.toFixed(2));

  // Circuits: one is shown at a time, the heads that it names stand out.
  const graph = one(".graph");
  const heads = new Map(all(".head", graph).map((node) => [node.dataset.head, node]));
  function choose(index) {
    for (const card of all(".card")) card.setAttribute("aria-pressed", String(card.dataset.circuit === index));
    for (const node of all(".circuit, .said")) node.classList.toggle("in", node.dataset.circuit === index);
    for (const node of heads.values()) node.classList.toggle("in", node.dataset.circuits.split(" ").includes(index));
    light(pinned);
  }
  for (const card of all(".card")) card.addEventListener("click", () => choose(card.dataset.circuit));

  // Heads: hover shows, click pins, arrows walk.
  const details = one("#details");
  let pinned = null;
  function light(name) {
    const edges = all(".circuit.in .edge, .circuit.in .label", graph);
    const on = edges.filter((edge) => edge.dataset.ends.split(" ").includes(name));
    graph.classList.toggle("picking", on.length > 0);
    for (const edge of edges) edge.classList.toggle("on", on.includes(edge));
  }
  function describe(name) {
    details.replaceChildren();
    if (!name) {
      details.append(make("p", "Hover over a head, or click it, to read what it does.", "soft"));
      return;
    }
    const entry = data.heads[name];
    details.append(make("h3", name));
    const circuits = data.circuits.filter((c) => c.heads.includes(name)).map((c) => c.text);
    details.append(make("p", entry.role, "soft"));
    const list = make("ul");
    for (const text of entry.sentences) list.append(make("li", text));
    if (!entry.sentences.length) list.append(make("li", "nothing that a coordinate stands for"));
    details.append(list);
    if (circuits.length) details.append(make("p", "Part of: " + circuits.join("; ") + ".", "small"));
    const profile = one(`.profile[data-head="${name}"]`);
    if (profile) {
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const back = one(".back", profile);
      svg.setAttribute("viewBox", `0 0 ${back.getAttribute("width")} ${back.getAttribute("height")}`);
      svg.setAttribute("aria-hidden", "true");
      const copy = profile.cloneNode(true);
      copy.removeAttribute("transform");
      copy.classList.remove("pinned");
      one(".peak", copy).setAttribute("r", back.getAttribute("width") / 75);
      svg.append(copy);
      details.append(make("p", "Attention by distance: " + one("title", profile).textContent.split(": ").pop(), "small"), svg);
    }
    const button = make("button", "Its coordinates", "small");
    button.type = "button";
    button.addEventListener("click", () => {
      form.reset();
      form.elements.head.value = name;
      filter();
      one("#coordinates").scrollIntoView();
    });
    details.append(button);
  }
  function pin(name) {
    pinned = pinned === name ? null : name;
    for (const node of all(".pinned")) node.classList.remove("pinned");
    if (pinned) for (const node of all(`main [data-head="${pinned}"]`)) node.classList.add("pinned");
    describe(pinned);
    light(pinned);
  }
  function rove(node) {
    for (const other of heads.values()) other.setAttribute("tabindex", other === node ? "0" : "-1");
  }
  for (const [name, node] of heads) {
    node.addEventListener("pointerenter", () => { describe(name); light(name); });
    node.addEventListener("pointerleave", () => { describe(pinned); light(pinned); });
    node.addEventListener("focus", () => { rove(node); describe(name); light(name); });
    node.addEventListener("blur", () => { describe(pinned); light(pinned); });
    node.addEventListener("click", () => pin(name));
    node.addEventListener("keydown", (event) => {
      const [, layer, head] = name.match(/^L(\d+)H(\d+)$/).map(Number);
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (step) {
        const next = heads.get(`L${layer + step[0]}H${head + step[1]}`);
        if (next) next.focus();
        event.preventDefault();
      } else if (event.key === "Enter" || event.key === " ") {
        pin(name);
        event.preventDefault();
      } else if (event.key === "Escape" && pinned) pin(pinned);
    });
  }
  for (const node of all(".wall [data-head], #head-table tbody button"))
    node.addEventListener("click", () => {
      const name = node.closest("[data-head]").dataset.head;
      if (pinned !== name) pin(name);
      one("#circuits").scrollIntoView();
      heads.get(name).focus({ preventScroll: true });
    });
  describe(null);

  // Coordinates: all rows stay in memory as columns; one page of them is on the page.
  const columns = data.coordinates.map((c) => ({ ...c, at: c.levels ? (i) => c.levels[c.values[i]] : (i) => c.values[i] }));
  const index = Object.fromEntries(columns.map((c, i) => [c.name, i]));
  const size = columns.length ? columns[0].values.length : 0;
  const form = one("#filters");
  const pager = one("#pager");
  const PAGE = 50;
  let rows = [];
  let sorted = Array.from({ length: size }, (_, i) => i);
  let page = 0;
  form.hidden = pager.hidden = false;
  for (const name of ["unit", "head"])
    if (name in index) for (const level of columns[index[name]].levels) form.elements[name].append(make("option", level));
  function draw() {
    const last = Math.max(0, Math.ceil(rows.length / PAGE) - 1);
    page = Math.min(Math.max(0, page), last);
    const body = one("#coordinate-table tbody");
    body.replaceChildren(...rows.slice(page * PAGE, (page + 1) * PAGE).map((i) => {
      const line = make("tr");
      for (const column of columns) line.append(make("td", show(column.at(i), column.whole), column.levels ? "" : "n"));
      return line;
    }));
    one("span", pager).textContent = `page ${page + 1} of ${last + 1}`;
    const [back, next] = all("button", pager);
    back.disabled = page === 0;
    next.disabled = page === last;
    one("#count").textContent = `${rows.length.toLocaleString("en")} of ${size.toLocaleString("en")} rows`;
  }
  function filter() {
    const { text, unit, head, effect, cosine } = Object.fromEntries(new FormData(form));
    const wanted = text.trim().toLowerCase();
    const texts = columns.filter((c) => c.levels);
    const hits = texts.map((c) => c.levels.map((level) => level.toLowerCase().includes(wanted)));
    const is = (name, value, i) => !value || !(name in index) || columns[index[name]].at(i) === value;
    const atLeast = (name, least, i, size) => least === "" || (columns[index[name]].at(i) !== null && size(columns[index[name]].at(i)) >= Number(least));
    rows = sorted.filter((i) =>
      is("unit", unit, i) && is("head", head, i) &&
      atLeast("effect", effect, i, (v) => v) && atLeast("cosine", cosine, i, Math.abs) &&
      (!wanted || texts.some((c, k) => hits[k][c.values[i]])));
    page = 0;
    draw();
  }
  all("#coordinate-table thead button").forEach((button, column) =>
    button.addEventListener("click", () => {
      const turn = direction(button.parentNode);
      const values = columns[column].values;
      sorted.sort((a, b) => turn * order(values[a], values[b]) || a - b);
      filter();
    }));
  form.addEventListener("input", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const button of all("button", pager))
    button.addEventListener("click", () => { page += Number(button.dataset.step); draw(); });
  one("#save").addEventListener("click", () => {
    const quote = (value) => (value === null ? "" : typeof value === "number" ? value : `"${value.replaceAll('"', '""')}"`);
    const lines = [columns.map((c) => c.name), ...rows.map((i) => columns.map((c) => quote(c.at(i))))];
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([lines.map((l) => l.join(",")).join("\n") + "\n"], { type: "text/csv" }));
    link.download = "coordinates.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  filter();

  document.documentElement.dataset.ready = "yes";
})();
