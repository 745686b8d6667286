// Policies and what they carry; what the engine of traffic engineering plans.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { local, useWatch } from "./client.ts";
import type { ClassStatus, WatchedPolicy } from "./gen/culvert/v1/culvert_pb.ts";
import { bits, count, Empty, Facts, octets, Problem, Section, sentence, some, Table, unitOf } from "./parts.tsx";

const often = 5000; // milliseconds between two looks at the engine

interface Link {
  link: string;
  capacity: number;
  now: number;
  then: number;
}

interface Key {
  headend: string;
  endpoint: string;
  color: number;
}

interface Move extends Key {
  now: string;
  then: string;
  step: number;
}

// Exception is a demand that the plan treats otherwise than it would, and why.
interface Exception extends Key {
  why: string;
}

interface Engine {
  at: string;
  apply: boolean;
  word: string;
  problem?: string;
  plan?: { why: string; now: number; then: number; best: number; steps: number; moves: Move[] | null; links: Link[] | null; problems?: Exception[] };
  held?: Exception[];
  unknown?: Key[];
  failed?: string[];
  left_out?: string[];
}

const percent = (n: number): string => `${(100 * n).toFixed(n < 0.1 ? 1 : 0)} %`;
const rate = unitOf("bit/s");

// Bar shows a part of a whole, beside its number.
function Bar(p: { part: number; label: string }): JSX.Element {
  return <><meter class="bar" min={0} max={1} low={0.7} high={0.9} optimum={0} value={Math.min(1, p.part)} aria-label={p.label} /> <span class="figure">{percent(p.part)}</span></>;
}

// Exceptions are what a plan leaves as it is, or cannot do.
function Exceptions(p: { of: Engine }): JSX.Element | null {
  const demand = (e: Key): string => `${e.headend} to ${e.endpoint}${e.color ? `, color ${e.color}` : ""}`;
  const rows = [
    ...(p.of.failed ?? []).map((text) => ["does not answer", text]),
    ...(p.of.plan?.problems ?? []).map((e) => [demand(e), e.why]),
    ...(p.of.unknown ?? []).map((k) => [demand(k), "its rate is not measured"]),
    ...(p.of.held ?? []).map((e) => [demand(e), `keeps its lists: ${e.why}`]),
    ...(p.of.left_out ?? []).map((text) => ["left out", text]),
  ];
  return rows.length === 0 ? null : (
    <Table label="What the plan cannot do, or leaves as it is" columns={[{ name: "Demand" }, { name: "Why" }]}
      rows={rows.map((cells, i) => ({ key: String(i), cells }))} />
  );
}

function EngineView(): JSX.Element {
  const [state, setState] = useState<Engine | undefined | null>(undefined);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    const look = (): void => {
      local<Engine>("engine").then((s) => { setState(s ?? null); setProblem(""); }, (e: Error) => setProblem(e.message));
    };
    look();
    const timer = setInterval(() => document.hidden || look(), often);
    return () => clearInterval(timer);
  }, []);
  if (problem) return <p class="problem" role="alert">{sentence(problem)}</p>;
  if (!state) return <Empty>This page knows no engine. Where <code>culvert te run</code> runs, open the page by <code>culvert ui --engine ADDRESS</code>; its address is <code>engine.listen</code> of the network's file.</Empty>;
  const plan = state.plan;
  return (
    <>
      {state.problem && <p class="problem" role="alert">{sentence(state.problem)}</p>}
      <Facts of={[["State", state.word], ["Mode", state.apply ? "changes headends" : "changes nothing: engine.apply is false"], ["Last round", new Date(state.at).toLocaleTimeString("en-GB")],
        ...(plan ? [["Fullest link", `${percent(plan.now)} now, ${percent(plan.then)} after the plan; ${percent(plan.best)} is the least possible`] as [string, string], ["Why", plan.why] as [string, string]] : [])]} />
      <Exceptions of={state} />
      {plan && (plan.moves ?? []).length > 0 && (
        <Table label="What the plan changes" columns={[{ name: "Step", n: true }, { name: "From" }, { name: "To" }, { name: "Color", n: true }, { name: "Now" }, { name: "After" }]}
          rows={(plan.moves ?? []).map((m) => ({ key: `${m.headend} ${m.endpoint} ${m.color}`, cells: [m.step, m.headend, m.endpoint, m.color, m.now, m.then] }))} />
      )}
      {plan && (plan.links ?? []).length > 0 && (
        <Table label="Utilisation of links" columns={[{ name: "Link" }, { name: "Capacity", n: true }, { name: "Now", n: true }, { name: "After", n: true }]}
          rows={(plan.links ?? []).slice(0, 50).map((l) => ({ key: l.link, class: l.now > 0.9 ? "bad" : undefined, cells: [l.link, rate(l.capacity), <Bar part={l.now} label={`${l.link} now`} />, <Bar part={l.then} label={`${l.link} after the plan`} />] }))} />
      )}
    </>
  );
}

// millis is a delay of some microseconds.
const millis = (us: bigint): string => (us === 0n ? "–" : `${(Number(us) / 1000).toFixed(2)} ms`);

function Policy(p: { of: WatchedPolicy }): JSX.Element | null {
  const s = p.of.policy;
  if (!s?.resource) return null;
  const r = s.resource;
  const whole = r.segmentLists.reduce((n, l) => n + (l.weight || 1), 0);
  return (
    <article class="policy">
      <h3>{r.name}</h3>
      <p>{[r.color ? `color ${r.color}` : "", r.endpoint ? `to ${r.endpoint}` : "", r.behavior, `from ${s.origin === "api" ? "the API" : s.origin}`].filter(Boolean).join(", ")}. <span class="live">{bits(p.of.rate)}</span>, {octets(s.counter?.bytes ?? 0n)} so far.</p>
      {r.segmentLists.length === 0 ? <Empty>{s.paths.length > 0 ? "No candidate path is valid: see why below." : "No candidate path is known. A controller, or the configuration, gives it one."}</Empty> : (
        <Table label={`Segment lists of ${r.name}`} columns={[{ name: "List" }, { name: "Share", n: true }, { name: "Rate", n: true }, { name: "Packets", n: true }, { name: "Round trip", n: true }, { name: "State" }]}
          rows={r.segmentLists.map((l, i) => ({ key: String(i), cells: [l.segments.join(" → "), percent((l.weight || 1) / whole), bits(p.of.lists[i]), count(s.lists[i]?.packets ?? 0n), millis(s.delays[i]?.mean ?? 0n),
            s.down[i] ? <span class="wrong">{s.down[i]}</span> : "up"] }))} />
      )}
      {s.paths.length > 0 && (
        <details open={r.segmentLists.length === 0}><summary>Why this path: {some(s.paths.length, "candidate")}</summary>
          <ul>{s.paths.map((v) => <li key={v.path}><b>{v.path || "the policy's own lists"}</b>, preference {v.preference}: {v.active ? "active" : v.valid ? (v.protects ? "valid, held ready" : "valid") : "not valid"}{v.why && `, ${v.why}`}</li>)}</ul>
        </details>
      )}
    </article>
  );
}

export function Paths(): JSX.Element {
  const [policies, setPolicies] = useState<WatchedPolicy[] | undefined>(undefined);
  const [classes, setClasses] = useState<ClassStatus[]>([]);
  const failed = useWatch("paths", [], (m, first) => {
    if (first || m.policies.length > 0 || m.classes.length > 0) {
      setPolicies(m.policies);
      setClasses(m.classes);
    }
  });
  return (
    <>
      <Problem failed={failed} />
      <Section title="Policies" note="SR policies of this node, and the segment lists that their packets take.">
        {policies?.length === 0 && <Empty>This node has no SR policy. Add one under <code>policies</code> in the configuration, or with <code>culvert policy add</code>.</Empty>}
        {policies?.map((v) => <Policy key={v.policy?.resource?.name ?? ""} of={v} />)}
      </Section>
      {classes.length > 0 && (
        <Section title="Traffic classes">
          <Table label="Traffic classes" columns={[{ name: "Class" }, { name: "Color", n: true }, { name: "Policies" }, { name: "Packets", n: true }, { name: "Octets", n: true }, { name: "State" }]}
            rows={classes.map((c) => ({ key: c.resource?.name ?? "", cells: [c.resource?.name, c.resource?.color, c.policies.join(", ") || "none", count(c.counter?.packets ?? 0n), octets(c.counter?.bytes ?? 0n),
              c.problem ? <span class="wrong">{c.problem}</span> : c.without.length > 0 ? <span class="wrong">no valid policy to {c.without.join(", ")}</span> : "ok"] }))} />
        </Section>
      )}
      <Section title="The network's plan" note="Utilisation of links before and after, as the engine of traffic engineering sees it."><EngineView /></Section>
    </>
  );
}
