// The node's part of a cluster, and all members at once.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { client, local, noteFailure, pageOf, shownNode, useCall, useStream, type Failure } from "./client.ts";
import type { FlowEnd, FlowsResponse, PolicyDecision, PolicyVerdict } from "./gen/culvert/v1/culvert_pb.ts";
import { clock, count, Empty, Facts, octets, Problem, Section, sentence, Table } from "./parts.tsx";

const flowsShown = 200;

function Nodes(): JSX.Element {
  const answer = useCall((signal) => client.listNodes({}, { signal }), []);
  const nodes = answer.value?.nodes ?? [];
  return (
    <>
      <Problem failed={answer.failed} />
      {answer.value && nodes.length === 0 && <Empty>This node knows no other. Each node of the cluster needs an agent: <code>culvert status --cluster</code> shows them.</Empty>}
      {nodes.length > 0 && (
        <Table label="Other nodes" columns={[{ name: "Node" }, { name: "Address" }, { name: "Pods' prefixes" }, { name: "Locator" }, { name: "Policies" }, { name: "State" }]}
          rows={nodes.map((n) => ({ key: n.node?.name || n.node?.address || "", cells: [shownNode && n.node?.name ? <a href={pageOf(n.node.name)}>{n.node.name}</a> : n.node?.name, n.node?.address, n.node?.prefixes.join(", "), n.node?.locator, n.policies.join(", ") || "–",
            n.state === "ready" && n.problems.length === 0 ? "ready" : <span class="wrong">{[n.state === "ready" ? "" : n.state, ...n.problems].filter(Boolean).join("; ")}</span>] }))} />
      )}
    </>
  );
}

function Pods(): JSX.Element {
  const answer = useCall((signal) => client.listPods({}, { signal }), []);
  const pods = answer.value?.pods ?? [];
  return (
    <>
      <Problem failed={answer.failed} />
      {answer.value && pods.length === 0 && <Empty>No pod of this node has an address of Culvert. Pods that use the host's network are not listed.</Empty>}
      {pods.length > 0 && (
        <Table label="Pods" columns={[{ name: "Pod" }, { name: "Addresses" }, { name: "Tenant" }, { name: "Interface" }, { name: "State" }]}
          rows={pods.map((p) => ({ key: `${p.attachment?.containerId}/${p.attachment?.interface}`, cells: [`${p.pod?.namespace}/${p.pod?.name}`, p.addresses.join(", ") || "–", p.pod?.tenant || "–", p.pod?.hostInterface,
            p.problem ? <span class="wrong">{p.problem}</span> : "reachable"] }))} />
      )}
    </>
  );
}

function decision(d: PolicyDecision | undefined): string {
  if (!d) return "not asked";
  return `${d.allowed ? "allows" : "drops"}${d.policy ? ` by ${d.policy} ${d.rule}` : ""}${d.why ? `: ${d.why}` : ""}`;
}

function Verdict(): JSX.Element {
  const [ask, setAsk] = useState({ from: "", to: "", protocol: "TCP", port: "" });
  const [verdicts, setVerdicts] = useState<PolicyVerdict[] | undefined>(undefined);
  const [failed, setFailed] = useState<Failure | undefined>(undefined);
  const field = (name: "from" | "to" | "port", label: string, hint: string): JSX.Element => (
    <label>{label}<input id={`verdict-${name}`} value={ask[name]} required={name !== "port"} placeholder={hint} spellcheck={false} autocomplete="off" onInput={(e) => setAsk({ ...ask, [name]: e.currentTarget.value.trim() })} /></label>
  );
  return (
    <>
      <form
        class="search"
        onSubmit={(e) => {
          e.preventDefault();
          client.explainPolicy(ask).then((v) => { setVerdicts(v.verdicts); setFailed(undefined); }, (error) => { setVerdicts(undefined); setFailed(noteFailure(error)); });
        }}
      >
        {field("from", "From", "namespace/pod or address")}
        {field("to", "To", "namespace/pod or address")}
        <label>Protocol<select value={ask.protocol} onChange={(e) => setAsk({ ...ask, protocol: e.currentTarget.value })}>{["TCP", "UDP", "SCTP", "ICMP"].map((v) => <option key={v}>{v}</option>)}</select></label>
        {field("port", "Port", "any")}
        <button type="submit" id="verdict">Ask</button>
      </form>
      <Problem failed={failed} />
      {verdicts?.map((v, i) => (
        <p key={i} class="verdict"><b class={v.allowed ? "right" : "wrong"}>{v.allowed ? "Allowed" : "Dropped"}</b> from {v.from?.pod || v.from?.address} to {v.to?.pod || v.to?.address}. Egress {decision(v.egress)}. Ingress {decision(v.ingress)}.</p>
      ))}
    </>
  );
}

const end = (e: FlowEnd | undefined): string => (e ? `${e.pod || e.node || e.address || "hidden"}${e.port ? `:${e.port}` : ""}` : "–");

function Flows(): JSX.Element {
  const flows = useRef(new Map<bigint, FlowsResponse>());
  const [dropped, setDropped] = useState(false);
  const [, setVersion] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setVersion((v) => v + 1), 1000); // of the screen: flows come one by one
    return () => clearInterval(timer);
  }, []);
  const failed = useStream((signal) => client.flows({ sinceNs: 60_000_000_000n, follow: true, verdict: dropped ? "dropped" : "" }, { signal }), (f, first) => {
    if (first) flows.current.clear();
    flows.current.delete(f.id); // the latest last
    flows.current.set(f.id, f);
    for (const id of flows.current.keys()) {
      if (flows.current.size <= flowsShown) break;
      flows.current.delete(id);
    }
  }, [dropped]);
  const list = [...flows.current.values()].filter((f) => !dropped || f.verdict === "dropped").reverse();
  return (
    <>
      <label class="check"><input type="checkbox" checked={dropped} onChange={(e) => setDropped(e.currentTarget.checked)} />Dropped ones only</label>
      <Problem failed={failed} />
      {!failed && list.length === 0 && <Empty>No flow of a pod in the last minute.</Empty>}
      {list.length > 0 && (
        <Table label="Flows" columns={[{ name: "Last" }, { name: "From" }, { name: "To" }, { name: "Protocol" }, { name: "Packets", n: true }, { name: "Octets", n: true }, { name: "Way" }, { name: "Verdict" }]}
          rows={list.map((f) => ({ key: String(f.id), cells: [clock(f.last), end(f.source), end(f.destination), f.protocol, count(f.packets), octets(f.octets), [f.path, f.srPolicy, f.class].filter(Boolean).join(" "),
            f.verdict === "dropped" ? <span class="wrong">{["dropped", f.reason, ...f.networkPolicies].filter(Boolean).join(", ")}</span> : f.verdict] }))} />
      )}
    </>
  );
}

export function Cluster(): JSX.Element {
  const answer = useCall((signal) => client.status({}, { signal }), []);
  const o = answer.value?.overlay;
  if (!answer.value) return <Problem failed={answer.failed} />;
  if (!o) return <Empty>This node is no member of a cluster: its configuration has no <code>overlay</code>. <code>culvert ui --cluster</code> shows all nodes, and the page of each.</Empty>;
  return (
    <>
      {(o.problem || o.problems.length > 0) && <p class="problem" role="alert">{sentence([o.problem, ...o.problems].filter(Boolean).join("; "))}</p>}
      <Facts of={[["Node", o.self?.name || "–"], ["Address", o.self?.address || "–"], ["Locator", o.self?.locator || "–"], ["MTU of pods", count(o.mtu)], ["NetworkPolicy", o.networkPolicy], ["Isolated pods", count(o.isolated)],
        ...(o.bgpSessions ? [["BGP", `${o.bgpEstablished} of ${o.bgpSessions} established`] as [string, string]] : [])]} />
      <Section title="Nodes"><Nodes /></Section>
      <Section title="Pods of this node"><Pods /></Section>
      <Section title="May they talk?" note="Which NetworkPolicies decide about packets between two pods or addresses."><Verdict /></Section>
      <Section title="Flows" note="Of this node's pods, the latest first."><Flows /></Section>
    </>
  );
}

// Member is what `culvert status --cluster -o json` says of a node.
interface Member {
  node: string;
  problem?: string;
  status?: { version: string; started: string; resources: Record<string, number>; outcomes: { drop: boolean; packets: number }[]; overlay?: { problem?: string; self: { address?: string; locator?: string }; mtu?: number; pods: number; nodes: number; problems?: string[]; network_policy: string; bgp_sessions?: number; bgp_established?: number } };
}

const round = 10_000; // milliseconds between two rounds through the cluster

export function Members(): JSX.Element {
  const [members, setMembers] = useState<Member[] | undefined>(undefined);
  const [problem, setProblem] = useState("");
  const [at, setAt] = useState("");
  useEffect(() => {
    let timer = 0, ended = false;
    const look = async (): Promise<void> => {
      try {
        if (!document.hidden) {
          setMembers(await local<Member[]>("cluster"));
          setProblem("");
          setAt(new Date().toLocaleTimeString("en-GB"));
        }
      } catch (e) {
        setProblem((e as Error).message);
      }
      if (!ended) timer = window.setTimeout(look, round);
    };
    void look();
    return () => { ended = true; window.clearTimeout(timer); };
  }, []);
  const wrong = (m: Member): string => [m.problem, m.status ? m.status.overlay?.problem : "", ...(m.status?.overlay?.problems ?? [])].filter(Boolean).join("; ");
  const bad = (members ?? []).filter((m) => !m.status || wrong(m));
  const sum = (f: (m: Member) => number): string => count((members ?? []).reduce((n, m) => n + f(m), 0));
  const drops = (m: Member): number => (m.status?.outcomes ?? []).reduce((n, o) => n + (o.drop ? o.packets : 0), 0);
  return (
    <>
      <h1>Cluster</h1>
      {problem && <p class="problem" role="alert">{sentence(problem)}</p>}
      {!members && !problem && <p>Asking the agents of all nodes.</p>}
      {members && (
        <>
          <Facts of={[["Nodes", count(members.length)], ["Ready", count(members.length - bad.length)], ["Pods", sum((m) => m.status?.overlay?.pods ?? 0)], ["Dropped packets", sum(drops)], ["As of", at]]} />
          {members.length === 0 && <Empty>The cluster has no node. Check the kubeconfig and the context.</Empty>}
          <Table label="Nodes of the cluster" columns={[{ name: "Node" }, { name: "State" }, { name: "Address" }, { name: "Locator" }, { name: "Pods", n: true }, { name: "MTU", n: true }, { name: "Policies", n: true }, { name: "BGP", n: true }, { name: "Dropped", n: true }, { name: "NetworkPolicy" }, { name: "Version" }]}
            rows={[...members].sort((a, b) => Number(bad.includes(b)) - Number(bad.includes(a))).map((m) => {
              const o = m.status?.overlay;
              return { key: m.node, cells: [m.status ? <a href={pageOf(m.node)}>{m.node}</a> : m.node, wrong(m) || !m.status ? <span class="wrong">{wrong(m) || "no answer"}</span> : "ready", o?.self.address, o?.self.locator, o && count(o.pods), o?.mtu && count(o.mtu), m.status && count(m.status.resources["policy"] ?? 0),
                o?.bgp_sessions ? `${o.bgp_established ?? 0}/${o.bgp_sessions}` : "–", m.status && count(drops(m)), o?.network_policy, m.status?.version] };
            })} />
          <p class="note">Each agent is asked in its pod every 10 seconds. Choose a node to see its page.</p>
        </>
      )}
    </>
  );
}
