// Why packets are dropped, what became of one packet, and what is wrong with the machine.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { client, noteFailure, useCall, useWatch, type Failure } from "./client.ts";
import type { CaptureResponse, Finding, Step, TraceResponse, WatchedOutcome } from "./gen/culvert/v1/culvert_pb.ts";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Chart, clock, count, Empty, octets, packets, Problem, Section, some, Table, unitOf, type Series } from "./parts.tsx";

const hour = 3_600_000;
const linesDrawn = 6;

// stepNames are the names of steps for people.
const stepNames: Record<string, string> = {
  in: "Received", sid: "Local SID", session: "Session", steered: "Steered to", tunnel: "Tunnel", policy: "SR policy", "next hop": "Next hop", out: "Sent", dropped: "Dropped",
};

// Journey draws the steps of a packet, one after the other.
export function Journey(p: { packet: TraceResponse; steps: Step[] }): JSX.Element {
  return (
    <ol class="journey" aria-label="Steps of the packet">
      {p.steps.map((s, i) => (
        <li key={i} class={s.name === "dropped" ? "bad" : s.name === "out" ? "good" : undefined}>
          <b>{stepNames[s.name] ?? s.name}{s.name === "in" && p.packet.interface ? ` by ${p.packet.interface}` : ""}{s.name === "out" && p.packet.egress ? ` by ${p.packet.egress}` : ""}</b>
          {s.text.split(" | ").map((layer) => (
            <span key={layer}>{layer}</span>
          ))}
        </li>
      ))}
      {!p.packet.drop && !p.steps.some((s) => s.name === "out") && <li><b>{p.packet.reason}</b><span>{p.packet.text}</span></li>}
    </ol>
  );
}

interface Sample {
  time: number;
  seconds: number;
  packets: Record<string, bigint>;
}

function Drops(): JSX.Element {
  const [outcomes, setOutcomes] = useState<WatchedOutcome[] | undefined>(undefined);
  const [viewer, setViewer] = useState("");
  const examples = useRef(new Map<string, CaptureResponse>());
  const samples = useRef<Sample[]>([]);
  const [open, setOpen] = useState("");
  const failed = useWatch("drops", [], (m, first) => {
    if (first) {
      samples.current = [];
      setViewer(m.viewer);
    }
    setOutcomes(m.drops?.outcomes ?? []);
    for (const s of m.drops?.samples ?? []) if (s.time) samples.current.push({ time: timestampMs(s.time), seconds: s.seconds, packets: s.packets });
    for (const e of m.drops?.examples ?? []) if (e.packet) examples.current.set(e.packet.reason, e);
  });
  if (!outcomes) return <Problem failed={failed} />;
  const dropped = outcomes.filter((o) => o.outcome?.drop && o.outcome.packets > 0n).sort((a, b) => (b.rate?.packets ?? 0) - (a.rate?.packets ?? 0) || Number((b.outcome?.packets ?? 0n) - (a.outcome?.packets ?? 0n)));
  const all = outcomes.reduce((n, o) => n + (o.outcome?.packets ?? 0n), 0n);
  const lost = dropped.reduce((n, o) => n + (o.outcome?.packets ?? 0n), 0n);
  const to = Date.now(), from = Math.max(to - hour, Math.min(to - 60_000, samples.current[0]?.time ?? to));
  const sums = new Map<string, bigint>();
  for (const s of samples.current) for (const [reason, n] of Object.entries(s.packets)) sums.set(reason, (sums.get(reason) ?? 0n) + n);
  const reasons = [...sums].sort((a, b) => Number(b[1] - a[1])).slice(0, linesDrawn).map(([reason]) => reason);
  const series: Series[] = reasons.map((reason) => ({ name: reason, points: samples.current.map((s) => [s.time, Number(s.packets[reason] ?? 0n) / s.seconds]) }));
  return (
    <>
      <Problem failed={failed} />
      <p>{count(lost)} of {count(all)} packets were dropped since the data path was loaded.</p>
      {dropped.length === 0 && <Empty>No packet was dropped. If packets are missing, capture some below: those that are left to the kernel are not drops.</Empty>}
      {series.length > 0 && <Chart label={`Drops of the last hour by reason: ${reasons.join(", ")}`} series={series} from={from} to={to} unit={unitOf("/s")} />}
      {dropped.length > 0 && (
        <Table label="Drops by reason" columns={[{ name: "Reason" }, { name: "What it means" }, { name: "Now", n: true }, { name: "Packets", n: true }, { name: "Octets", n: true }, { name: "Example" }]}
          rows={dropped.map((o) => {
            const reason = o.outcome!.reason;
            return { key: reason, cells: [reason, o.outcome!.text, packets(o.rate), count(o.outcome!.packets), octets(o.outcome!.bytes),
              examples.current.has(reason) ? <button type="button" class="choice" aria-expanded={open === reason} onClick={() => setOpen(open === reason ? "" : reason)}>{clock(examples.current.get(reason)?.packet?.time)}</button> : "none yet"] };
          })} />
      )}
      {examples.current.has(open) && <Journey packet={examples.current.get(open)!.packet!} steps={examples.current.get(open)!.steps} />}
      {dropped.length > 0 && <p class="note">While this view is open, an example is taken of each reason that grows, once a minute at most.{viewer && ` This token does not see ${viewer}.`}</p>}
    </>
  );
}

interface Wanted {
  source: string;
  destination: string;
  ue: string;
  interface: string;
  drops: boolean;
}

const mostShown = 100;

// Picks lists packets, and draws the journey of the one that is chosen.
function Picks(p: { label: string; list: CaptureResponse[] }): JSX.Element {
  const [chosen, setChosen] = useState(0);
  const one = p.list[chosen] ?? p.list[0];
  return (
    <div class="split">
      <ul class="picks" aria-label={p.label}>
        {p.list.map((m, i) => (
          <li key={i}><button type="button" class="choice" aria-pressed={m === one} onClick={() => setChosen(i)}>{clock(m.packet?.time)} {m.packet?.interface}{m.packet?.egress ? ` → ${m.packet.egress}` : ""} <small class={m.packet?.drop ? "wrong" : undefined}>{m.packet?.reason}</small></button></li>
        ))}
      </ul>
      {one?.packet && <Journey packet={one.packet} steps={one.steps} />}
    </div>
  );
}

// Paste explains packets that did not arrive.
function Paste(): JSX.Element {
  const status = useCall((signal) => client.status({}, { signal }), []);
  const [port, setPort] = useState("");
  const [text, setText] = useState("");
  const [list, setList] = useState<CaptureResponse[]>([]);
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState<Failure | undefined>(undefined);
  const names = (status.value?.interfaces ?? []).map((i) => i.resource?.name ?? "");
  const explain = async (): Promise<void> => {
    setBusy(true);
    setList([]);
    setFailed(undefined);
    try {
      setList((await client.explainPackets({ interface: port || names[0]!, text })).packets);
    } catch (error) {
      setFailed(noteFailure(error));
    }
    setBusy(false);
  };
  return (
    <>
      <form class="search" onSubmit={(e) => { e.preventDefault(); void explain(); }}>
        <label>Arrives by
          <select id="paste-interface" value={port} onChange={(e) => setPort(e.currentTarget.value)}>{names.map((n) => <option key={n} value={n}>{n}</option>)}</select>
        </label>
        <label class="wide">Packets
          <textarea id="paste-text" rows={3} value={text} placeholder="Hexadecimal digits from the Ethernet header on: a hex stream of Wireshark, or what tcpdump -xx prints" spellcheck={false} autocomplete="off" onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        <button type="submit" id="paste" disabled={busy || text.trim() === "" || names.length === 0}>{busy ? "Explaining…" : "Explain"}</button>
      </form>
      <Problem failed={failed ?? status.failed} />
      {list.length > 0 && <Picks label="Pasted packets" list={list} />}
    </>
  );
}

function Capture(): JSX.Element {
  const [wanted, setWanted] = useState<Wanted>({ source: "", destination: "", ue: "", interface: "", drops: false });
  const [list, setList] = useState<CaptureResponse[]>([]);
  const [running, setRunning] = useState<AbortController | undefined>(undefined);
  const [said, setSaid] = useState<Failure | string | undefined>(undefined);
  useEffect(() => () => running?.abort(), [running]);
  const capture = async (): Promise<void> => {
    const controller = new AbortController();
    setRunning(controller);
    setList([]);
    setSaid("Waiting for packets.");
    let packets: CaptureResponse[] = [];
    try {
      for await (const m of client.capture({ filter: wanted }, { signal: controller.signal })) {
        if (m.packet) setList((packets = [...packets, m].slice(0, mostShown)));
      }
      setSaid(packets.length === 0 ? "No packet came in 30 seconds. Leave conditions out, or send one." : `${some(packets.length, "packet")}.`);
    } catch (error) {
      setSaid(controller.signal.aborted ? (packets.length === 0 ? "Stopped before a packet came." : `Stopped after ${some(packets.length, "packet")}.`) : noteFailure(error));
    }
    setRunning(undefined);
  };
  const field = (name: "source" | "destination" | "ue" | "interface", label: string, hint: string): JSX.Element => (
    <label>{label}
      <input id={`capture-${name}`} value={wanted[name]} placeholder={hint} spellcheck={false} autocomplete="off" onInput={(e) => setWanted({ ...wanted, [name]: e.currentTarget.value.trim() })} />
    </label>
  );
  return (
    <>
      <form class="search" onSubmit={(e) => { e.preventDefault(); running ? running.abort() : void capture(); }}>
        {field("source", "From", "any prefix")}
        {field("destination", "To", "any prefix")}
        {field("ue", "Of the UE", "any address")}
        {field("interface", "Received by", "any interface")}
        <label class="check"><input type="checkbox" checked={wanted.drops} onChange={(e) => setWanted({ ...wanted, drops: e.currentTarget.checked })} />Dropped ones only</label>
        <button type="submit" id="capture">{running ? "Stop" : "Capture"}</button>
      </form>
      {typeof said === "string" ? <p aria-live="polite">{said}</p> : <Problem failed={said} />}
      {list.length > 0 && <Picks label="Captured packets" list={list} />}
    </>
  );
}

const levels: Record<string, string> = { ok: "ok", warn: "warning", fail: "wrong" };
const weight = (f: Finding): number => ["fail", "warn", "ok"].indexOf(f.level);

function Doctor(): JSX.Element {
  const [round, setRound] = useState(0);
  const answer = useCall((signal) => client.doctor({}, { signal }), [round]);
  const all = [...(answer.value?.findings ?? [])].sort((a, b) => weight(a) - weight(b));
  const bad = all.filter((f) => f.level !== "ok");
  return (
    <>
      <p>
        <button type="button" disabled={answer.busy} onClick={() => setRound(round + 1)}>{answer.busy ? "Examining…" : "Examine again"}</button>
        {answer.value && <span class="beside" aria-live="polite">{bad.length === 0 ? `All ${all.length} checks found nothing.` : `${bad.length} of ${all.length} checks found something.`}</span>}
      </p>
      <Problem failed={answer.failed} />
      {bad.length > 0 && (
        <ul class="findings">
          {bad.map((f, i) => (
            <li key={i} class={f.level}>
              <b>{f.name}</b> <small>{levels[f.level] ?? f.level}</small>
              <p>{f.detail}</p>
              {f.fix && <p>Fix: {f.fix}</p>}
              {f.command.length > 0 && <pre tabIndex={0}>{f.command.join(" ")}</pre>}
            </li>
          ))}
        </ul>
      )}
      {all.length > bad.length && (
        <details><summary>{some(all.length - bad.length, "check")} that found nothing</summary><ul>{all.filter((f) => f.level === "ok").map((f, i) => <li key={i}>{f.name}: {f.detail}</li>)}</ul></details>
      )}
    </>
  );
}

export function Why(): JSX.Element {
  return (
    <>
      <Section title="Drops"><Drops /></Section>
      <Section title="Explain a packet" note="Captures packets for 30 seconds, at most 100, and shows what the data path did with each. While a capture runs, packets cost more time."><Capture /></Section>
      <Section title="Explain a packet that you have" note="Shows what the data path would do with it now. Nothing is sent, counted or charged."><Paste /></Section>
      <Section title="This machine" note="What culvert doctor finds here."><Doctor /></Section>
    </>
  );
}
