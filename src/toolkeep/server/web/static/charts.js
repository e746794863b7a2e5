// The charts of the overview, and their figures as a table. What page.js has is used once it is there.
"use strict";

function resolved(name) {
  const probe = document.createElement("i");
  probe.className = name;
  body.append(probe);
  const found = getComputedStyle(probe).backgroundColor;
  probe.remove();
  return found;
}

const whole = Array.from({ length: 12 }, (_, zeros) => [1, 2, 5].map((digit) => digit * 10 ** zeros)).flat();

// Milliseconds as the server writes durations.
function lasting(ms) {
  const [number, unit] = ms < 1 ? [ms * 1000, "µs"] : ms < 1000 ? [ms, "ms"] : [ms / 1000, "s"];
  return ms ? `${numeral.format(+number.toPrecision(3))} ${unit}` : "0";
}

function asLine({ label, kind, values }) {
  const points = { show: values.filter((value) => value !== null).length === 1, size: 6 }; // no line has one end
  return { values, series: { label, stroke: resolved(`key-${kind}`), width: 1.75, points, spanGaps: true } };
}

// Counts as bars, one on the other. The highest is drawn first, and covered by those below it.
function stacked(times, lines) {
  let sums = times.map(() => 0);
  return lines
    .map(({ label, kind, values }) => {
      sums = sums.map((sum, at) => sum + (values[at] ?? 0));
      const paths = uPlot.paths.bars({ size: [0.8, 40] });
      return { values: sums, series: { label, fill: resolved(`key-${kind}`), width: 0, points: { show: false }, paths } };
    })
    .reverse();
}

function draw(chart) {
  chart.dataset.drawn = "";
  chart.replaceChildren();
  const { times, lines } = JSON.parse(document.getElementById(chart.dataset.chart).textContent);
  const soft = getComputedStyle(chart).color;
  const grid = { stroke: "rgb(128 128 128 / 16%)", width: 1 };
  const axis = { stroke: soft, grid, ticks: grid, font: "11px system-ui", size: 32 };
  const lasts = "lasts" in chart.dataset;
  const say = lasts ? lasting : numeral.format;
  const drawn = lasts ? lines.map(asLine) : stacked(times, lines);
  const step = lasts ? 0 : (times[1] - times[0]) / 2;
  const said = Object.assign(document.createElement("p"), { className: "chart-at" });
  const plot = new uPlot(
    {
      width: chart.clientWidth,
      height: chart.clientHeight,
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false, click() {} } },
      hooks: { setCursor: [({ cursor }) => sayPoint(said, cursor, times, lines, say)] },
      padding: [8, 30, 0, 0], // the last label is centered below its tick
      scales: { x: { time: true, range: (_, from, to) => [from - step, to + step] }, y: { range: (_, low, high) => [0, Math.max(high * 1.1, lasts ? 0.001 : 1)] } },
      axes: [
        { ...axis, space: 72, values: (_, ticks) => ticks.map(shortTime) },
        {
          ...axis,
          size: (_, labels) => Math.max(54, ...(labels ?? []).map((label) => 14 + 7 * label.length)),
          incrs: lasts ? undefined : whole, // there is no half of a call
          values: (_, ticks) => ticks.map(say),
        },
      ],
      series: [{}, ...drawn.map(({ series }) => series)],
    },
    [times, ...drawn.map(({ values }) => values)],
    chart,
  );
  chart.append(said);
  // A finger only points: it has no other way to see the values.
  plot.over.addEventListener("click", ({ pointerType }) => pointerType !== "touch" && showCallsAt(plot, times));
  chart.onkeydown = (event) => {
    if (event.key === "Enter") showCallsAt(plot, times);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = Math.min(Math.max((plot.cursor.idx ?? times.length) + step, 0), times.length - 1);
    plot.setCursor({ left: plot.valToPos(times[at], "x"), top: 0 });
    announce(said.textContent);
  };
}

// Time and values of the point under the cursor, on the side where the cursor is not.
function sayPoint(said, { idx, left }, times, lines, say) {
  const values = lines.map(({ label, values }) => `${label} ${values[idx] == null ? "—" : say(values[idx])}`);
  said.textContent = idx == null ? "" : [asFarAsNeeded(new Date(times[idx] * 1000)), ...values].join(" · ");
  said.classList.toggle("left", left > said.parentElement?.clientWidth / 2);
}

function showCallsAt({ cursor: { idx } }, times) {
  if (idx != null) location.href = callsAt(times, idx);
}

function callsAt(times, at, more = {}) {
  const [since, until] = [times[at], times[at] + times[1] - times[0]].map((time) => utc(new Date(time * 1000)));
  return `/ui/audit?${new URLSearchParams({ since, until, ...more })}`;
}

let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 120);
});

function redraw() {
  document.querySelectorAll("[data-drawn]").forEach(draw);
}

function drawAnew(root) {
  root.querySelectorAll("[data-chart]:not([data-drawn])").forEach(draw);
  fillTable();
}

// --- the figures as a table --------------------------------------------------------------------------------------

const figures = document.getElementById("figures");
figures.addEventListener("toggle", fillTable);

// It stands outside what is replaced when calls arrive, so that it stays open.
function fillTable() {
  const data = document.getElementById("calls-data");
  figures.hidden = !data;
  if (!data || !figures.open) return;
  const { times, lines } = JSON.parse(data.textContent);
  const [median] = JSON.parse(document.getElementById("latency-data").textContent).lines;
  const shown = times.map((_, at) => at).filter((at) => lines.some(({ values }) => values[at]));
  figures.querySelector("tbody").replaceChildren(...shown.map((at) => figuresOf(at, times, lines, median.values[at])));
  showTimes(figures);
}

function figuresOf(at, times, lines, median) {
  const row = document.createElement("tr");
  const time = Object.assign(document.createElement("time"), { dateTime: new Date(times[at] * 1000).toISOString() });
  const link = (more, ...inside) => {
    const found = document.createElement("a");
    found.href = callsAt(times, at, more);
    found.append(...inside);
    return found;
  };
  const cells = [link({}, time), ...lines.map(({ status, values }) => (values[at] ? link({ status }, numeral.format(values[at])) : "0"))];
  cells.push(median === null ? "" : link({ ran_ms: median }, lasting(median)));
  for (const cell of cells) row.insertCell().append(cell);
  return row;
}
