// The views of a report. All numbers come from the JSON in the page.
const data = JSON.parse(document.getElementById("data").textContent);

// Whether a speed is above or below even beyond noise.
function sideOf(row) {
  if (row.kind) return row.kind;
  if (row.low === undefined || row.low === 0) return "even";
  return row.low > 1 ? "good" : row.high < 1 ? "bad" : "even";
}
function ratioWords(row) {
  const word = row.ratio.toFixed(3);
  return row.low ? `${word} (${row.low.toFixed(3)} .. ${row.high.toFixed(3)})` : word;
}

// Speeds with their intervals, a line each. rows: {label, ratio, low, high, target, words} or {heading}.
function speedChart(title, caption, rows, quantity) {
  const speeds = rows.filter((row) => !row.heading);
  return figure(title, caption, `${title}: ${speeds.length} speeds; the table below has them`, (width) => {
    const narrow = width < 620, height = narrow ? 36 : 22, top = 34;
    const longest = Math.max(...speeds.map((row) => row.label.length)) * 6.9 + 14;
    const left = narrow ? 4 : Math.min(longest, width * 0.4), right = width - (narrow ? 8 : 150);
    const all = speeds.flatMap((row) => [row.ratio, row.low || row.ratio, row.high || row.ratio, row.target || row.ratio]);
    const x = logScale(...logExtent([...all, 0.99, 1.01], 1.02), left + 6, right);
    const bottom = top + rows.length * height, parts = [], marks = [];
    for (const tick of x.ticks(narrow ? 4 : 8))
      if (tick !== 1) parts.push(line(x(tick), top - 6, x(tick), bottom, "grid"), text(x(tick), top - 12, number(tick), { "text-anchor": "middle", class: "soft" }));
    parts.push(line(x(1), top - 6, x(1), bottom, "even"), text(x(1), top - 12, "1", { "text-anchor": "middle", class: "strong" }));
    rows.forEach((row, index) => {
      const middle = top + index * height + height / 2, y = narrow && !row.heading ? middle + 8 : middle;
      if (row.heading) return parts.push(text(0, y + 5, clipped(row.heading, width), { class: "strong" }));
      parts.push(text(0, (narrow ? y - 16 : y) + 4, clipped(row.label, narrow ? width * 0.55 : left)));
      const kind = sideOf(row);
      if (row.target) parts.push(line(x(row.target), y - 6, x(row.target), y + 6, "target"));
      if (row.low) parts.push(line(x(row.low), y, x(row.high), y, "span " + kind));
      parts.push(dot(x(row.ratio), y, kind));
      parts.push(text(width, (narrow ? y - 16 : y) + 4, ratioWords(row), { "text-anchor": "end" }));
      marks.push({ x: x(row.ratio), y, row: true, words: `${row.label}: ${ratioWords(row)} ${quantity}. ${row.words}` });
    });
    return { height: bottom + 6, parts, marks };
  });
}
function speedKey(target) {
  const entry = (kind, words) => html("span", {}, html("i", { class: kind }), words);
  return html("p", { class: "key" }, entry("good", "faster, beyond noise"), entry("", "within noise, or without an interval"),
              entry("bad", "slower, beyond noise"), ...(target ? [html("span", {}, "| the target")] : []));
}

// --- a log of tune ---

const geometric = (values) => (values.length ? geometricMean(values) : 0);
const timed = (unit) => unit.trials.filter((trial) => trial.mean_us > 0 && trial.rounds.length);
const modelOf = (unit) => unit.trials.find((trial) => trial.is_model) || unit.trials.find((trial) => unit.outcome && trial.key === unit.outcome.model);
const bestOf = (unit) => unit.outcome && unit.trials.find((trial) => trial.key === unit.outcome.best);
const lastRace = (trial) => trial.rounds[trial.rounds.length - 1].race;

function tuneSpeeds(source) {
  const rows = source.units.filter((unit) => unit.outcome && unit.outcome.best_over_model.pairs > 0).map((unit) => {
    const { median, low, high, pairs } = unit.outcome.best_over_model, best = bestOf(unit);
    const kept = unit.outcome.outcome === "row" ? "It is a row now." : "The model's choice stands.";
    return { label: unit.name, ratio: median, low, high, words: `${best ? best.label + ". " : ""}${pairs} pairs. ${kept}` };
  });
  if (!rows.length) return [];
  return [speedChart("Speed of the best schedule", "The time of the planner's choice over the time of the fastest other schedule, with its 95 % interval. Right of 1, the other schedule is faster.",
                     rows, "times the speed of the model's choice"), speedKey(false)];
}

function raceChart(unit) {
  const race = unit.races - 1, all = timed(unit).filter((trial) => lastRace(trial) === race), model = modelOf(unit);
  const rounds = (trial) => trial.rounds.filter((round) => round.race === race);
  if (!model || all.length < 2 || !rounds(model).length) return null;
  const modelAt = new Map(rounds(model).map((round) => [round.round, round.mean_us]));
  const trails = all.map((trial) => ({ trial, points: rounds(trial).filter((round) => modelAt.has(round.round)).map((round) => [round.round + 1, modelAt.get(round.round) / round.mean_us, round.mean_us]) }));
  const values = trails.flatMap((trail) => trail.points.map((point) => point[1])), last = Math.max(...modelAt.keys()) + 1, best = bestOf(unit);
  return figure("The race, round by round", "A line is a schedule: its speed over the model's choice, after each round. After a round the slower half is out. Blue: the winner.",
    `Race of ${all.length} schedules over ${last} rounds`, (width) => {
      const box = { left: 44, right: width - 14, top: 30, bottom: 270 };
      const x = linearScale(0.8, last + 0.2, box.left, box.right), y = logScale(...logExtent([...values, 1], 1.03), box.bottom, box.top);
      const parts = [svg("g")], marks = [];
      axes(parts[0], { ...box, x, y, xLabel: "round", yLabel: "speed over the model's choice", xTicks: Math.min(last, 8) });
      parts.push(line(box.left, y(1), box.right, y(1), "even"));
      const rank = (trail) => (trail.trial === best ? 2 : trail.trial.verdict === "measured" ? 1 : 0);
      trails.sort((a, b) => rank(a) - rank(b));
      for (const { trial, points } of trails) {
        if (!points.length) continue;
        const kind = trial === best ? "best" : trial.verdict === "measured" ? "finalist" : "out";
        parts.push(svg("polyline", { class: "trail " + kind, points: points.map(([round, speed]) => `${x(round)},${y(speed)}`).join(" ") }));
        const [round, speed, us] = points[points.length - 1];
        parts.push(dot(x(round), y(speed), kind === "best" ? "good" : "model", kind === "out" ? 2.5 : 4));
        marks.push({ x: x(round), y: y(speed), words: `${trial.label}: ${duration(us)} after round ${round}, ${speed.toFixed(3)} times the speed of the model's choice. ${kind === "out" ? "Then it was out." : "It was in at the end."}` });
      }
      marks.sort((a, b) => a.x - b.x || a.y - b.y);
      return { height: 312, parts, marks };
    });
}

function registersChart(unit) {
  const all = timed(unit).filter((trial) => trial.registers > 0), model = modelOf(unit);
  if (!model || all.length < 2) return null;
  const held = [...new Set(all.map((trial) => trial.ctas_per_sm))].sort((a, b) => a - b);
  return figure("Registers and occupancy", "A dot is a schedule. The larger the dot, the more CTAs an SM holds at once" + (held[0] ? ` (${held[0]} to ${held[held.length - 1]}).` : "; this log does not say how many."),
    `Registers and speed of ${all.length} schedules`, (width) => {
      const box = { left: 44, right: width - 14, top: 30, bottom: 230 };
      const speed = (trial) => model.mean_us / trial.mean_us;
      const x = linearScale(...extent(all.map((trial) => trial.registers)), box.left, box.right), y = logScale(...logExtent([...all.map(speed), 1], 1.03), box.bottom, box.top);
      const parts = [svg("g")], marks = [], best = bestOf(unit);
      axes(parts[0], { ...box, x, y, xLabel: "registers of a thread", yLabel: "speed over the model's choice" });
      parts.push(line(box.left, y(1), box.right, y(1), "even"));
      for (const trial of all) {
        const size = 3 + 5 * (held.length > 1 ? held.indexOf(trial.ctas_per_sm) / (held.length - 1) : 0.3);
        parts.push(dot(x(trial.registers), y(speed(trial)), trial === best ? "good" : "model", size));
        marks.push({ x: x(trial.registers), y: y(speed(trial)), words: `${trial.label}: ${trial.registers} registers, ${trial.ctas_per_sm || "?"} CTAs an SM, ${duration(trial.mean_us)}, ${speed(trial).toFixed(3)} times the speed of the model's choice` });
      }
      marks.sort((a, b) => a.x - b.x || a.y - b.y);
      return { height: 272, parts, marks };
    });
}

function predictedChart(unit) {
  const all = timed(unit).filter((trial) => trial.predicted_us > 0);
  const title = "Predicted against measured";
  if (!all.length) return html("div", {}, html("h3", {}, title), html("p", { class: "soft" }, "The planner has no model of time for these schedules, or the log does not have its predictions."));
  return figure(title, "A dot is a schedule. On the line the prediction is right; above it the kernel takes longer than predicted.",
    `Predicted and measured times of ${all.length} schedules`, (width) => {
      const box = { left: 52, right: width - 14, top: 30, bottom: 230 };
      const x = logScale(...logExtent(all.map((trial) => trial.predicted_us)), box.left, box.right), y = logScale(...logExtent(all.map((trial) => trial.mean_us)), box.bottom, box.top);
      const parts = [svg("g")], marks = [], best = bestOf(unit);
      axes(parts[0], { ...box, x, y, xLabel: "predicted, us", yLabel: "measured, us" });
      const ends = [Math.min(...all.map((trial) => trial.predicted_us)), Math.max(...all.map((trial) => trial.predicted_us))];
      const measured = all.map((trial) => trial.mean_us), from = Math.max(ends[0], Math.min(...measured)), to = Math.min(ends[1], Math.max(...measured));
      if (from < to) parts.push(line(x(from), y(from), x(to), y(to), "roof"));
      for (const trial of all) {
        parts.push(dot(x(trial.predicted_us), y(trial.mean_us), trial === best ? "good" : "model"));
        marks.push({ x: x(trial.predicted_us), y: y(trial.mean_us), words: `${trial.label}: ${duration(trial.predicted_us)} predicted, ${duration(trial.mean_us)} measured` });
      }
      marks.sort((a, b) => a.x - b.x || a.y - b.y);
      return { height: 272, parts, marks };
    });
}

// The roofs of the devices, and where each shape lies. points: {name, operations, bytes, compute_us, memory_us, us, kind}.
function roofline(points) {
  const usable = points.filter((point) => point.operations > 0 && point.bytes > 0 && point.us > 0 && point.compute_us > 0 && point.memory_us > 0);
  if (!usable.length) return null;
  const intensity = (point) => point.operations / point.bytes, rate = (point, us) => point.operations / us * 1e-6;
  return figure("Roofline", "A filled dot is what was measured. The hollow dot above it is the most that the device could do: its matrix rate, or its memory's bandwidth.",
    `Roofline of ${usable.length} shapes`, (width) => {
      const box = { left: 60, right: width - 14, top: 30, bottom: 330 };
      // One roof for each matrix rate; times in a file are rounded, so rates within a fiftieth are one.
      const roofs = [], alike = (a, b) => Math.abs(a / b - 1) < 0.02;
      for (const point of usable) {
        const peak = rate(point, point.compute_us), bandwidth = point.bytes / point.memory_us * 1e-6;
        if (!roofs.some(([p, b]) => alike(p, peak) && alike(b, bandwidth))) roofs.push([peak, bandwidth]);
      }
      const ridge = roofs.map(([peak, bandwidth]) => peak / bandwidth);
      const x = logScale(...logExtent([...usable.map(intensity), ...ridge], 2), box.left, box.right);
      const y = logScale(...logExtent([...usable.flatMap((point) => [rate(point, point.us), rate(point, Math.max(point.compute_us, point.memory_us))]), ...roofs.map(([peak]) => peak)], 1.6), box.bottom, box.top);
      const parts = [svg("g")], marks = [];
      axes(parts[0], { ...box, x, y, xLabel: "operations for each byte of memory", yLabel: "TFLOP/s" });
      const xs = [...usable.map(intensity), ...ridge], far = Math.max(...xs) * 2, near = Math.min(...xs) / 2;
      roofs.forEach(([peak, bandwidth], index) => {
        parts.push(svg("polyline", { class: "roof", points: [near, peak / bandwidth, far].map((at) => `${x(at)},${y(Math.min(peak, at * bandwidth))}`).join(" ") }));
        parts.push(text(box.right, y(peak) - 7, `${number(peak)} TFLOP/s`, { "text-anchor": "end", class: "soft" }));
        if (roofs.slice(0, index).some((other) => alike(other[1], bandwidth))) return;
        const middle = Math.sqrt(near * peak / bandwidth);
        parts.push(text(x(middle) - 8, y(middle * bandwidth) - 8, `${number(bandwidth)} TB/s`, { "text-anchor": "end", class: "soft" }));
      });
      for (const point of usable) {
        const at = x(intensity(point)), bound = Math.max(point.compute_us, point.memory_us), high = y(rate(point, bound)), low = y(rate(point, point.us));
        parts.push(line(at, high, at, low, "grid"), dot(at, high, "bound"), dot(at, low, "good"));
        marks.push({ x: at, y: low, words: `${point.name}: ${duration(point.us)}, ${number(rate(point, point.us))} TFLOP/s; at best ${duration(bound)}, by ${point.memory_us > point.compute_us ? "memory" : "matrix rate"}, so ${number(100 * bound / point.us)} % of it` });
      }
      marks.sort((a, b) => a.x - b.x || a.y - b.y);
      return { height: 372, parts, marks };
    });
}
function tuneRoofline(source) {
  return roofline(source.units.filter((unit) => unit.outcome).flatMap((unit) => {
    const runs = unit.outcome.outcome === "row" ? bestOf(unit) : modelOf(unit);
    const times = new Map(((runs && runs.times) || []).map((time) => [time.shape, time.us]));
    return unit.outcome.shapes.map((shape) => ({ ...shape, name: `${unit.name}, ${shape.shape}`, us: times.get(shape.shape) || 0 }));
  }));
}

// SM clocks in the order of the file. points: {name, low, high}.
function clockChart(points, caption) {
  const known = points.filter((point) => point.low > 0);
  if (!known.length) return html("div", {}, html("h3", {}, "Clocks"), html("p", { class: "soft" }, "No SM clock was known while this was measured."));
  return figure("Clocks", caption, `SM clocks of ${known.length} measurements`, (width) => {
    const box = { left: 48, right: width - 14, top: 30, bottom: 150 };
    const x = linearScale(0.5, known.length + 0.5, box.left, box.right), y = linearScale(...extent(known.flatMap((point) => [point.low, point.high]), 0.15), box.bottom, box.top);
    const parts = [svg("g")], marks = [];
    axes(parts[0], { ...box, x, y, xLabel: "in the order of the file", yLabel: "SM clock, MHz", xTicks: 6, yTicks: 4, xText: (v) => (Number.isInteger(v) ? number(v) : "") });
    known.forEach((point, index) => {
      const at = x(index + 1);
      if (point.low !== point.high) parts.push(line(at, y(point.low), at, y(point.high), "span"));
      parts.push(dot(at, y(point.high), "model", 2.5));
      marks.push({ x: at, y: y(point.high), words: `${point.name}: ${point.low === point.high ? point.low : point.low + " to " + point.high} MHz` });
    });
    return { height: 192, parts, marks };
  });
}
function tuneClocks(source) {
  const points = source.units.flatMap((unit) => {
    const rounds = new Map();
    for (const trial of unit.trials) for (const round of trial.rounds) rounds.set(`${round.race} ${round.round}`, round);
    return [...rounds.values()].sort((a, b) => a.race - b.race || a.round - b.round)
      .map((round) => ({ name: `${unit.name}, round ${round.round + 1}`, low: round.clock_mhz || 0, high: round.clock_mhz || 0 }));
  });
  return clockChart(points, "The SM clock at the end of each round. A clock that falls makes later rounds slower, for all schedules alike.");
}

function tuneLead(source) {
  const ended = source.units.filter((unit) => unit.outcome), gained = ended.filter((unit) => unit.outcome.outcome === "row");
  const devices = [...new Set(source.units.map((unit) => unit.device))].join(", ");
  const speed = geometric(ended.map((unit) => (unit.outcome.outcome === "row" ? unit.outcome.best_over_model.median : 1)));
  const words = [`Tuned on ${devices}: ${gained.length} of ${source.units.length} units gained a row.`];
  if (ended.length) words.push(`Together they are ${speed.toFixed(3)} times as fast as the planner's choices, by the geometric mean.`);
  if (ended.length < source.units.length) words.push(`${source.units.length - ended.length} have not come to an end.`);
  if (source.unreadable) words.push(`${source.unreadable} of ${source.lines} lines could not be read.`);
  return words.join(" ");
}

function showTune(source, place) {
  place.append(html("p", {}, tuneLead(source)));
  if (source.units.some((unit) => unit.outcome && !unit.outcome.times_mean_something))
    place.append(html("p", { class: "warning" }, "These times are the emulator's. They say nothing about any GPU."));
  if (!data.races_in_full) place.append(html("p", { class: "warning" }, "The races are not shown in full: the page would exceed 2 MB. The log has them all."));
  place.append(...tuneSpeeds(source));
  const chosen = html("select", {}, ...source.units.map((unit, index) => html("option", { value: index }, unit.name)));
  const views = html("div", {});
  const show = () => {
    const unit = source.units[chosen.value], pair = html("div", { class: "pair" });
    for (const chart of [registersChart(unit), predictedChart(unit)]) if (chart) pair.append(chart);
    views.replaceChildren(...[raceChart(unit), pair].filter(Boolean));
  };
  chosen.addEventListener("change", show);
  place.append(html("p", { class: "pick" }, html("label", {}, "Race of ", chosen)), views);
  show();
  for (const chart of [tuneRoofline(source), tuneClocks(source)]) if (chart) place.append(chart);
}

// --- a CSV of compare_peers.py ---

function peerRows(source) {
  const column = (...names) => source.columns.findIndex((name) => names.includes(name));
  const at = { row: column("row", "case"), arm: column("arm"), peer: column("peer"), ours: column("ours_ms"), peers: column("peer_ms"), ratio: column("ratio", "speed_vs_peer"),
               low: column("low"), high: column("high"), target: column("target"), first: column("sm_mhz_first", "sm_mhz"), last: column("sm_mhz_last", "sm_mhz"), note: column("note") };
  return source.rows.map((cells) => {
    const word = (index) => (index < 0 ? "" : cells[index]), value = (index) => Number(word(index)) || 0;
    return { row: word(at.row), arm: word(at.arm), peer: word(at.peer), ours: value(at.ours), peers: value(at.peers), ratio: value(at.ratio), low: value(at.low), high: value(at.high),
             target: value(at.target), clockFirst: value(at.first), clockLast: value(at.last), note: word(at.note) };
  });
}

function showPeers(source, place) {
  const all = peerRows(source), rows = all.filter((row) => row.ratio > 0), arms = new Set(rows.map((row) => row.arm));
  const peers = [...new Set(rows.map((row) => row.peer))];
  const best = new Map();  // of our arms on a row against a peer: the fastest
  for (const row of rows) {
    const key = row.row + "\n" + row.peer;
    if (!best.has(key) || best.get(key).ratio < row.ratio) best.set(key, row);
  }
  const chosen = html("select", {}, ...[...arms].map((arm) => html("option", { value: "=" + arm }, "arm " + arm)), html("option", { value: "best" }, "our fastest arm on each row"), html("option", { value: "" }, "all arms"));
  chosen.value = arms.has("auto") ? "=auto" : arms.size > 1 ? "" : "best";  // an arm that the measurement itself picked looks too good
  const views = html("div", {}), sums = html("p", {});
  const show = () => {
    const picked = rows.filter((row) => (chosen.value === "best" ? best.get(row.row + "\n" + row.peer) === row : chosen.value === "" || "=" + row.arm === chosen.value));
    const counted = chosen.value === "" || arms.size < 2 ? "" : chosen.value === "best" ? " of our fastest arm" : ` of arm ${chosen.value.slice(1)}`;
    sums.textContent = `${new Set(picked.map((row) => row.row)).size} rows against ${peers.filter(Boolean).join(", ") || "no peer"}: ours is ahead, beyond noise, in ${picked.filter((row) => row.low > 1).length} of ${picked.length} comparisons${counted}.`
      + (chosen.value === "best" && arms.size > 1 ? ` The fastest of ${arms.size} arms was picked by these times, so it looks faster than it is.` : "");
    const lines = peers.flatMap((peer) => {
      const of = picked.filter((row) => row.peer === peer);
      if (!of.length) return [];
      const heading = `${peer || "no peer"}: ${of.filter((row) => row.low > 1).length} of ${of.length} ahead, ${of.filter((row) => row.high < 1 && row.high > 0).length} behind, ${geometric(of.map((row) => row.ratio)).toFixed(3)} by the geometric mean`;
      return [{ heading }, ...of.map((row) => ({ label: chosen.value === "" && arms.size > 1 ? `${row.row}, ${row.arm}` : row.row, ratio: row.ratio, low: row.low, high: row.high, target: row.target,
        words: `Ours ${duration(row.ours * 1e3)}${row.peers ? `, ${row.peer} ${duration(row.peers * 1e3)}` : ""}${row.arm ? `, arm ${row.arm}` : ""}. ${row.note}` }))];
    });
    views.replaceChildren(...(lines.length ? [speedChart("Speed against the peers", "The peer's time over ours, with its 95 % interval. Right of 1, ours is faster.", lines, "times the peer's speed")] : []), speedKey(picked.some((row) => row.target)));
  };
  chosen.addEventListener("change", show);
  place.append(sums);
  if (arms.size > 1) place.append(html("p", { class: "pick" }, html("label", {}, "Show ", chosen)));
  place.append(views);
  show();
  place.append(clockChart(all.map((row) => ({ name: `${row.row}${row.arm ? ", " + row.arm : ""}`, low: Math.min(row.clockFirst, row.clockLast), high: Math.max(row.clockFirst, row.clockLast) })),
                          "The SM clock before and after each row's rounds. Ratios are paired, so a clock that moves changes them little; it does change the times."));
}

// --- bench --json ---

function showBench(source, place) {
  const bench = source.bench;
  place.append(html("p", {}, `${bench.rows.length} shapes on ${bench.device}, ${bench.rounds} rounds of ${bench.launches_per_round} launches, L2 flushed.`));
  const points = bench.rows.map((row) => ({ ...row, bytes: row.bytes || row.kv_bytes, name: `${row.config}, ${row.shape}`, us: row.median_us }));
  const chart = roofline(points.filter((point) => point.compute_us));
  if (chart) place.append(chart);
  const shares = points.filter((row) => row.bound_us > 0).map((row) => ({ label: row.name, kind: "even", ratio: row.bound_us / row.us, low: row.bound_us / row.p90_us, high: row.bound_us / row.p10_us,
    words: `${duration(row.us)}, at best ${duration(row.bound_us)}; ${row.registers} registers` }));
  if (shares.length) place.append(speedChart("Share of the best that the device could do", "The predicted bound over the median time. The line spans the 10th and the 90th percentile.", shares, "of the best"));
}

// --- two runs ---

function showComparison(compared, place) {
  const rows = compared.rows.map((row) => ({ label: row.what, ratio: row.a_us / row.b_us, words: `A ${duration(row.a_us)}, B ${duration(row.b_us)}` }));
  const others = [[compared.only_a, "A"], [compared.only_b, "B"]].filter(([count]) => count).map(([count, name]) => `${count} only in ${name}`);
  place.append(html("p", {}, `A is ${compared.a}, B is ${compared.b}. They share ${rows.length} rows${others.length ? "; " + others.join(", ") : ""}. B is ${geometric(rows.map((row) => row.ratio)).toFixed(3)} times as fast as A, by the geometric mean.`));
  place.append(html("p", { class: "soft" }, "The two runs were not paired: clocks and machines may differ, so there are no intervals."));
  place.append(speedChart("Speed of B over A", "A's time over B's. Right of 1, B is faster.", rows, "times A's speed"));
}

// --- CSV of all numbers ---

function csvOf() {
  const quoted = (cell) => (/[",\n\r]/.test(String(cell)) ? `"${String(cell).replaceAll('"', '""')}"` : String(cell));
  const lines = [];
  if (data.compare) lines.push(["row", "a_us", "b_us"], ...data.compare.rows.map((row) => [row.what, row.a_us, row.b_us]), []);
  for (const source of data.sources) {
    if (source.kind === "peers") lines.push(["file", ...source.columns], ...source.rows.map((cells) => [source.name, ...cells]));
    if (source.kind === "bench") {
      const names = [...new Set(source.bench.rows.flatMap(Object.keys))];
      lines.push(["file", ...names], ...source.bench.rows.map((row) => [source.name, ...names.map((name) => (row[name] === undefined ? "" : row[name]))]));
    }
    if (source.kind === "tune") {
      lines.push(["file", "unit", "device", "schedule", "verdict", "round", "mean_us", "shape", "us", "samples", "registers", "spill_bytes", "ctas_per_sm", "predicted_us", "key"]);
      for (const unit of source.units) for (const trial of unit.trials) {
        const last = trial.rounds[trial.rounds.length - 1];
        for (const time of trial.times.length ? trial.times : [{ shape: "", us: "", samples: "" }])
          lines.push([source.name, unit.name, unit.device, JSON.stringify(trial.schedule), trial.verdict, last ? last.round : "", trial.mean_us, time.shape, time.us, time.samples, trial.registers, trial.spill_bytes, trial.ctas_per_sm, trial.predicted_us, trial.key]);
      }
    }
    lines.push([]);
  }
  return lines.map((cells) => cells.map(quoted).join(",")).join("\n");
}

function start() {
  document.getElementById("lead").replaceChildren(data.sources.map((source) => source.name).join(", "));
  if (data.compare) showComparison(data.compare, document.querySelector("#compare .charts"));
  data.sources.forEach((source, index) => {
    const place = document.querySelector(`#source-${index} .charts`);
    ({ tune: showTune, peers: showPeers, bench: showBench })[source.kind](source, place);
  });
  const button = document.getElementById("csv");
  button.hidden = false;
  button.addEventListener("click", () => {
    const link = html("a", { href: URL.createObjectURL(new Blob([csvOf()], { type: "text/csv" })), download: "report.csv" });
    link.click();
    URL.revokeObjectURL(link.href);
  });
}
start();
