// Small parts that views are made of.
import type { ComponentChildren, JSX } from "preact";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import type { Failure } from "./client.ts";
import type { Rate } from "./gen/culvert/v1/culvert_pb.ts";

const units = ["", "k", "M", "G", "T"];

function scaled(n: number): [string, string] {
  let i = 0;
  while (n >= 999.5 && i < units.length - 1) {
    n /= 1000;
    i++;
  }
  return [n === 0 ? "0" : n >= 99.95 ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2), units[i] ?? ""];
}

export function bits(rate: Rate | undefined): string {
  if (!rate) return "–";
  const [n, unit] = scaled(rate.bits);
  return `${n} ${unit}bit/s`;
}

export function packets(rate: Rate | undefined): string {
  if (!rate) return "–";
  return `${rate.packets >= 10 || rate.packets === 0 ? Math.round(rate.packets).toLocaleString("en") : rate.packets.toFixed(1)}/s`;
}

export function count(n: bigint | number): string {
  return n.toLocaleString("en");
}

export function octets(n: bigint): string {
  const [text, unit] = scaled(Number(n));
  return unit === "" ? `${text} B` : `${text} ${unit}B`;
}

// some is a number with its noun: 1 list, 2 lists.
export function some(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

// moment is a time of any day.
export function moment(t: Date): string {
  return t.toLocaleString("sv-SE");
}

export const hex = (n: bigint | number): string => "0x" + n.toString(16);

export function clock(t: Timestamp | undefined): string {
  return t ? timestampDate(t).toLocaleTimeString("en-GB") : "";
}

export function Section(p: { title: string; note?: ComponentChildren; children: ComponentChildren }): JSX.Element {
  return (
    <section>
      <h2>{p.title}</h2>
      {p.note && <p class="note">{p.note}</p>}
      {p.children}
    </section>
  );
}

// Empty says why there is nothing, and what to do.
export function Empty(p: { children: ComponentChildren }): JSX.Element {
  return <p class="empty">{p.children}</p>;
}

export function Problem(p: { failed: Failure | undefined }): JSX.Element | null {
  if (!p.failed || p.failed.token) return null;
  return p.failed.absent ? <Empty>{sentence(p.failed.text)}</Empty> : <p class="problem" role="alert">{sentence(p.failed.text)}</p>;
}

export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");
}

// Facts are names with values.
export function Facts(p: { of: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {p.of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// Column of a table: n says that it holds numbers.
export interface Column {
  name: string;
  n?: boolean;
}

// Table can be scrolled where it is too wide, also by keyboard.
export function Table(p: { label: string; columns: Column[]; rows: { key: string; cells: ComponentChildren[]; class?: string }[] }): JSX.Element {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={p.label}>
      <table>
        <thead>
          <tr>
            {p.columns.map((c) => (
              <th key={c.name} scope="col" class={c.n ? "n" : undefined}>{c.name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {p.rows.map((r) => (
            <tr key={r.key} class={r.class}>
              {r.cells.map((cell, i) => (
                <td key={i} class={p.columns[i]?.n ? "n" : undefined}>{cell}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// Series is a line of a chart: values by time in milliseconds.
export interface Series {
  name: string;
  points: [number, number][];
}

const colours = 6; // of lines, in page.css

// Chart draws lines over time. The same is in words beside it: a chart is a picture.
export function Chart(p: { label: string; series: Series[]; from: number; to: number; unit: (n: number) => string }): JSX.Element {
  const width = 720, height = 180, left = 84, bottom = 22, top = 10;
  const most = Math.max(1e-9, ...p.series.flatMap((s) => s.points.map(([, v]) => v)));
  const step = niceStep(most / 3);
  const ceiling = Math.ceil(most / step) * step;
  const x = (t: number): number => left + ((t - p.from) / (p.to - p.from)) * (width - left - 8);
  const y = (v: number): number => top + (1 - v / ceiling) * (height - top - bottom);
  const ticks = Array.from({ length: Math.round(ceiling / step) + 1 }, (_, i) => i * step);
  const times = [0, 0.5, 1].map((f) => p.from + f * (p.to - p.from));
  const name = (t: number): string => new Date(t).toLocaleTimeString("en-GB", p.to - p.from > 600_000 ? { hour: "2-digit", minute: "2-digit" } : {});
  return (
    <figure class="chart">
      <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={p.label}>
        {ticks.map((v) => (
          <g key={v}>
            <line class="grid" x1={left} x2={width - 8} y1={y(v)} y2={y(v)} />
            <text class="tick" x={left - 8} y={y(v) + 4} text-anchor="end">{p.unit(v)}</text>
          </g>
        ))}
        {times.map((t, i) => (
          <text key={i} class="tick" x={x(t)} y={height - 4} text-anchor={i === 0 ? "start" : i === 2 ? "end" : "middle"}>{name(t)}</text>
        ))}
        {p.series.map((s, i) => (
          <polyline key={s.name} class={`line c${i % colours}`} points={s.points.map(([t, v]) => `${x(t).toFixed(1)},${y(v).toFixed(1)}`).join(" ")} />
        ))}
      </svg>
      <figcaption>
        {p.series.map((s, i) => (
          <span key={s.name} class="legend"><i class={`c${i % colours}`} />{s.name}</span>
        ))}
      </figcaption>
    </figure>
  );
}

function niceStep(rough: number): number {
  const power = 10 ** Math.floor(Math.log10(rough));
  for (const f of [1, 2, 5, 10]) if (f * power >= rough) return f * power;
  return 10 * power;
}

export function unitOf(unit: string): (n: number) => string {
  return (n) => {
    const [text, prefix] = scaled(n);
    return `${text.replace(/\.0+$/, "").replace(/(\.\d*[1-9])0+$/, "$1")} ${prefix}${unit}`;
  };
}
