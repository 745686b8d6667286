// The node and what it is connected to, from the access side to the core.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { useWatch } from "./client.ts";
import type { StatusResponse, TopologyGroup, TopologyLink, TopologyNode } from "./gen/culvert/v1/culvert_pb.ts";
import { bits, count, Empty, Facts, moment, packets, Problem, Section, Table } from "./parts.tsx";
import { timestampDate } from "@bufbuild/protobuf/wkt";

const columns = 5;
const box = { width: 178, height: 62, gap: 14, apart: 52 };

interface Picture {
  nodes: Map<string, TopologyNode>;
  links: Map<string, TopologyLink>;
  groups: TopologyGroup[];
}

interface Place {
  x: number;
  y: number;
}

const order = ["node", "port", "peer", "pods", "smf", "policy", "tunnel", "member", "bgp", "more"];

function sorted(nodes: Iterable<TopologyNode>): TopologyNode[] {
  return [...nodes].sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.name.localeCompare(b.name, "en", { numeric: true }));
}

// places puts each column's entries below each other, in the middle of the height.
function places(p: Picture): { at: Map<string, Place>; width: number; height: number } {
  const all = sorted(p.nodes.values());
  const used = Array.from({ length: columns }, (_, c) => all.filter((n) => n.column === c)).filter((c) => c.length > 0);
  const height = Math.max(1, ...used.map((c) => c.length)) * (box.height + box.gap) + box.gap;
  const at = new Map<string, Place>();
  used.forEach((c, i) => {
    const top = (height - c.length * (box.height + box.gap) + box.gap) / 2;
    c.forEach((n, j) => at.set(n.id, { x: 2 + i * (box.width + box.apart), y: top + j * (box.height + box.gap) }));
  });
  return { at, width: used.length * (box.width + box.apart) - box.apart + 4, height };
}

const cut = (text: string, most: number): string => (text.length > most ? text.slice(0, most - 1) + "…" : text);

// across is a curve between the facing sides of two boxes; the two directions lie beside each other.
function across(a: Place, b: Place): string {
  const right = b.x > a.x;
  const shift = right ? -4 : 4;
  const x1 = right ? a.x + box.width : a.x, x2 = right ? b.x : b.x + box.width;
  const y1 = a.y + box.height / 2 + shift, y2 = b.y + box.height / 2 + shift;
  const middle = (x1 + x2) / 2;
  return `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
}

// thickness says how much passes: a line of 1 Gbit/s is thick.
function thickness(l: TopologyLink): number {
  const rate = l.forward?.bits ?? 0;
  return rate < 1 ? 1.2 : Math.min(7, 1.2 + Math.log10(rate) * 0.6);
}

function Drawing(p: { picture: Picture; group: string }): JSX.Element {
  const { at, width, height } = places(p.picture);
  const links = [...p.picture.links.values()].filter((l) => at.has(l.from) && at.has(l.to));
  const on = (l: TopologyLink): boolean => p.group === "" || l.groups.includes(p.group);
  const lit = new Set(links.filter(on).flatMap((l) => [l.from, l.to]));
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Drawing of the topology">
      <svg class="topology" viewBox={`0 0 ${width} ${height}`} style={{ minWidth: `${width * 0.8}px`, maxWidth: `${width * 1.15}px` }} role="img" aria-label="This node, its ports, and what they lead to. The table below says the same in words.">
        {links.map((l) => (
          <path key={l.id} class={`link ${l.control ? "control" : ""} ${l.forward?.bits ? "busy" : ""} ${on(l) ? (p.group ? "lit" : "") : "off"}`} d={across(at.get(l.from)!, at.get(l.to)!)} stroke-width={thickness(l)}>
            <title>{`${l.from} to ${l.to}: ${l.control ? "signalling" : bits(l.forward)}`}</title>
          </path>
        ))}
        {[...at].map(([id, place]) => {
          const n = p.picture.nodes.get(id)!;
          const rates = n.received || n.sent ? `${n.received ? "in " + bits(n.received) : ""}${n.received && n.sent ? "  " : ""}${n.sent ? "out " + bits(n.sent) : ""}` : "";
          return (
            <g key={id} class={`box ${n.kind} ${n.problem ? "bad" : ""} ${p.group && !lit.has(id) ? "off" : ""}`} transform={`translate(${place.x} ${place.y})`}>
              <title>{[n.name, n.detail, n.problem].filter(Boolean).join(": ")}</title>
              <rect width={box.width} height={box.height} rx="8" />
              <text class="name" x="12" y={n.detail || rates || n.problem ? 22 : 36}>{cut(n.name, 20)}</text>
              <text class="detail" x="12" y="39">{cut(n.detail, 26)}</text>
              <text class={n.problem ? "wrong" : "rates"} x="12" y="54">{cut(n.problem || rates, n.problem ? 28 : 34)}</text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

function Groups(p: { of: TopologyGroup[]; chosen: string; choose: (id: string) => void }): JSX.Element | null {
  if (p.of.length === 0) return null;
  return (
    <Section title="Slices and classes" note="Choose one to see the paths that its packets may take.">
      <div class="scroll" tabIndex={0} role="region" aria-label="Slices and classes">
        <table>
          <thead>
            <tr><th scope="col">Name</th><th scope="col">Kind</th><th scope="col">Detail</th><th scope="col" class="n">Sessions</th><th scope="col" class="n">Uplink</th><th scope="col" class="n">Downlink</th></tr>
          </thead>
          <tbody>
            {p.of.map((g) => (
              <tr key={g.id} class={g.id === p.chosen ? "chosen" : undefined}>
                <td><button type="button" class="choice" aria-pressed={g.id === p.chosen} onClick={() => p.choose(g.id === p.chosen ? "" : g.id)}>{g.name}</button></td>
                <td>{g.kind}</td>
                <td>{g.detail}</td>
                <td class="n">{g.kind === "slice" ? count(g.sessions) : ""}</td>
                <td class="n">{bits(g.uplink)}</td>
                <td class="n">{g.kind === "slice" ? bits(g.downlink) : ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function since(s: StatusResponse): string {
  return s.started ? moment(timestampDate(s.started)) : "–";
}

function Glance(p: { status: StatusResponse }): JSX.Element {
  const s = p.status;
  const facts: [string, string][] = [["Version", s.version], ["Running since", since(s)]];
  if (s.upf) {
    facts.push(["Sessions", `${count(s.upf.sessions)} of ${count(s.upf.maxSessions)}`], ["SMFs", `${count(s.upf.associationsUp)} of ${count(s.upf.associations)} answer`]);
    if (s.upf.n4.length > 0) facts.push(["N4", s.upf.n4.join(", ")]);
  }
  if (s.overlay) facts.push(["Pods", count(s.overlay.pods)], ["Other nodes", count(s.overlay.nodes)]);
  return <Facts of={facts} />;
}

export function Topology(): JSX.Element {
  const picture = useRef<Picture>({ nodes: new Map(), links: new Map(), groups: [] });
  const [status, setStatus] = useState<StatusResponse | undefined>(undefined);
  const [, setVersion] = useState(0);
  const [group, setGroup] = useState("");
  const failed = useWatch("topology", [], (m, first) => {
    const p = picture.current;
    if (first) {
      p.nodes.clear();
      p.links.clear();
      setStatus(m.status);
    }
    for (const n of m.topology?.nodes ?? []) p.nodes.set(n.id, n);
    for (const l of m.topology?.links ?? []) p.links.set(l.id, l);
    for (const id of m.topology?.gone ?? []) p.nodes.delete(id) || p.links.delete(id);
    if (m.topology && m.topology.groups.length > 0) p.groups = m.topology.groups;
    setVersion((v) => v + 1);
  });
  const p = picture.current;
  const chosen = p.groups.some((g) => g.id === group) ? group : "";
  const rows = sorted(p.nodes.values()).map((n) => ({
    key: n.id,
    cells: [n.link ? <a href={`#/${n.link}`}>{n.name}</a> : n.name, n.detail, n.problem ? <span class="wrong">{n.problem}</span> : "ok", bits(n.received), packets(n.received), bits(n.sent), packets(n.sent)],
  }));
  return (
    <>
      <Problem failed={failed} />
      {status && <Glance status={status} />}
      {p.nodes.size > 0 && <Drawing picture={p} group={chosen} />}
      {status && status.interfaces.length === 0 && !status.overlay && <Empty>No interface is configured. Name the interfaces and their roles in the configuration file, under <code>interfaces</code>.</Empty>}
      <Groups of={p.groups} chosen={chosen} choose={setGroup} />
      {rows.length > 0 && (
        <Section title="Ports, peers, tunnels and policies">
          <Table label="Ports, peers, tunnels and policies" rows={rows} columns={[{ name: "Name" }, { name: "What" }, { name: "State" }, { name: "In", n: true }, { name: "Packets in", n: true }, { name: "Out", n: true }, { name: "Packets out", n: true }]} />
        </Section>
      )}
    </>
  );
}
