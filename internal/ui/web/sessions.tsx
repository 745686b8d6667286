// Sessions: find some, and follow one.
import type { JSX } from "preact";
import { useRef, useState } from "preact/hooks";
import { client, useCall, useWatch } from "./client.ts";
import type { PDRPolicy, SessionStatus, WatchedSession } from "./gen/culvert/v1/culvert_pb.ts";
import { bits, Chart, count, Empty, Facts, hex, octets, packets, Problem, Section, Table, unitOf, type Series } from "./parts.tsx";

const perPage = 25;
const followed = 120_000; // milliseconds of a chart

type By = "ue" | "seid" | "teid";

interface Search {
  by: By;
  text: string;
  slice: string;
}

// number reads what people write: decimal, or hexadecimal after 0x.
function number(text: string): bigint | undefined {
  return /^(0x[0-9a-f]{1,16}|\d{1,20})$/i.test(text) ? BigInt(text) : undefined;
}

// wrong is why a search cannot be made, in words.
function wrong(s: Search): string {
  if (s.text === "" || (s.by === "ue" ? /^[0-9a-f.:]+$/i.test(s.text) : number(s.text) !== undefined)) return "";
  return s.by === "ue" ? "Give an address, such as 10.45.0.7 or 2001:db8:45::7." : `Give a ${s.by.toUpperCase()} as a number, such as 4097 or 0x1001.`;
}

async function find(s: Search, after: bigint, signal: AbortSignal): Promise<{ sessions: SessionStatus[]; total: number }> {
  const n = number(s.text) ?? 0n;
  const answer = await client.listSessions({
    slice: s.slice, limit: perPage, after,
    ...(s.by === "ue" ? { ue: s.text } : {}),
    ...(s.by === "teid" ? { teid: Number(n) } : {}),
    ...(s.by === "seid" && s.text ? { seid: n } : {}),
  }, { signal });
  return answer;
}

function SearchForm(p: { search: Search; set: (s: Search) => void }): JSX.Element {
  const [draft, setDraft] = useState(p.search);
  const problem = wrong(draft);
  return (
    <form
      class="search" role="search"
      onSubmit={(e) => {
        e.preventDefault();
        if (!problem) p.set({ ...draft, text: draft.text.trim(), slice: draft.slice.trim() });
      }}
    >
      <label>By
        <select value={draft.by} onChange={(e) => setDraft({ ...draft, by: e.currentTarget.value as By })}>
          <option value="ue">UE address</option>
          <option value="seid">SEID</option>
          <option value="teid">TEID</option>
        </select>
      </label>
      <label>Value
        <input id="find" value={draft.text} aria-invalid={problem !== ""} aria-describedby="find-problem" spellcheck={false} autocomplete="off" onInput={(e) => setDraft({ ...draft, text: e.currentTarget.value.trim() })} />
      </label>
      <label>Slice
        <input id="slice" value={draft.slice} placeholder="any" spellcheck={false} autocomplete="off" onInput={(e) => setDraft({ ...draft, slice: e.currentTarget.value })} />
      </label>
      <button type="submit">Search</button>
      <p id="find-problem" class="wrong">{problem}</p>
    </form>
  );
}

function List(): JSX.Element {
  const [search, setSearch] = useState<Search>({ by: "ue", text: "", slice: "" });
  const [pages, setPages] = useState<bigint[]>([0n]); // the SEIDs that pages begin after
  const answer = useCall((signal) => find(search, pages[pages.length - 1]!, signal), [search, pages]);
  const rates = useRef(new Map<bigint, WatchedSession>());
  const [, setVersion] = useState(0);
  const list = answer.value?.sessions ?? [];
  const seids = list.map((s) => s.seid);
  const failed = useWatch("sessions", seids, (m) => {
    for (const s of m.sessions) if (s.session) rates.current.set(s.session.seid, s);
    setVersion((v) => v + 1);
  });
  const rows = list.map((s) => {
    const now = rates.current.get(s.seid);
    const live = now?.session ?? s;
    return {
      key: String(s.seid), class: now?.gone ? "off" : undefined,
      cells: [<a href={`#/sessions/${hex(s.seid)}`}>{hex(s.seid)}</a>, s.ue.length > 0 ? s.ue.join(", ") : "–", s.slice || "–", s.dnn || "–", s.association,
        now?.gone ? "ended" : bits(now?.uplink), bits(now?.downlink), octets(live.uplink?.bytes ?? 0n), octets(live.downlink?.bytes ?? 0n)],
    };
  });
  const total = answer.value?.total ?? 0;
  return (
    <>
      <SearchForm search={search} set={(s) => { setSearch(s); setPages([0n]); }} />
      <Problem failed={answer.failed ?? failed} />
      {answer.value && list.length === 0 && (
        <Empty>{search.text || search.slice ? "No session matches. Try part of the search only: the slice, or the address." : "There is no session yet. An SMF makes one when a UE asks for it; the topology shows whether an SMF is connected."}</Empty>
      )}
      {list.length > 0 && (
        <>
          <Table label="Sessions" rows={rows} columns={[{ name: "SEID", n: true }, { name: "UE" }, { name: "Slice" }, { name: "DNN" }, { name: "SMF" }, { name: "Uplink", n: true }, { name: "Downlink", n: true }, { name: "Uplink total", n: true }, { name: "Downlink total", n: true }]} />
          <nav class="pages" aria-label="Pages of the list">
            <button type="button" disabled={pages.length === 1} onClick={() => setPages(pages.slice(0, -1))}>Previous</button>
            <span aria-live="polite">{count(list.length)} here, {count(Math.max(0, total - list.length))} after them</span>
            <button type="button" disabled={total <= list.length} onClick={() => setPages([...pages, list[list.length - 1]!.seid])}>Next</button>
          </nav>
        </>
      )}
    </>
  );
}

// readable is JSON with indents. Numbers of 64 bits stay as they are, as text.
function readable(json: string): string {
  return JSON.stringify(JSON.parse(json.replace(/([:[,])(\d{16,})(?=[,}\]])/g, '$1"$2"')), null, 2);
}

// policyText is an SR policy as packets of a rule meet it.
function policyText(p: PDRPolicy): string {
  const v = p.verdict, path = v?.path ? `, path ${v.path}` : "", of = p.class ? `class ${p.class}: ` : "";
  if (!p.name) {
    return `${of}no policy, packets are dropped`;
  }
  return `${of}${p.name}${p.color ? `, color ${p.color}` : ""}${path}: ${v?.valid ? "valid" : ["not valid", v?.why].filter(Boolean).join(", ")}`;
}

function One(p: { seid: bigint }): JSX.Element {
  const [now, setNow] = useState<WatchedSession | undefined>(undefined);
  const history = useRef<{ up: [number, number][]; down: [number, number][] }>({ up: [], down: [] });
  const failed = useWatch("sessions", [p.seid], (m) => {
    for (const w of m.sessions) {
      setNow(w);
      const t = Date.now(), h = history.current;
      if (w.uplink) h.up.push([t, w.uplink.bits]);
      if (w.downlink) h.down.push([t, w.downlink.bits]);
      for (const list of [h.up, h.down]) while (list[0] && list[0][0] < t - followed) list.shift();
    }
  });
  const back = <p><a href="#/sessions">All sessions</a></p>;
  const s = now?.session;
  if (!s) return <>{back}<Problem failed={failed} /></>;
  if (now.gone) return <>{back}<Empty>Session {hex(p.seid)} has ended, or was never here. Look for the UE's new session in the list.</Empty></>;
  const to = Date.now();
  const series: Series[] = [{ name: "uplink", points: history.current.up }, { name: "downlink", points: history.current.down }];
  return (
    <>
      {back}
      <Problem failed={failed} />
      <h2>Session {hex(s.seid)}</h2>
      <Facts of={[["UE", s.ue.join(", ") || "–"], ["Slice", [s.slice || "none", s.sliceNote].filter(Boolean).join(": ")], ["DNN", s.dnn || "–"], ["SMF", s.association],
        ["SMF's SEID", s.cpSeid ? hex(s.cpSeid) : "–"], ["TEIDs", s.teids.map(hex).join(", ") || "–"], ["Buffered", `${count(s.buffered)} packets`],
        ["Uplink", <span class="live">{bits(now.uplink)}, {packets(now.uplink)}</span>], ["Downlink", <span class="live">{bits(now.downlink)}, {packets(now.downlink)}</span>]]} />
      <Chart label={`Rates of the last two minutes: uplink ${bits(now.uplink)}, downlink ${bits(now.downlink)} now`} series={series} from={to - followed} to={to} unit={unitOf("bit/s")} />
      <Section title="Rules">
        <Table label="Rules" columns={[{ name: "PDR", n: true }, { name: "Rule" }, { name: "SR policy" }, { name: "Rate", n: true }, { name: "Packets", n: true }, { name: "Octets", n: true }]}
          rows={s.pdrs.map((r, i) => ({ key: String(r.pdr), cells: [r.pdr, r.words || "hidden from viewers", r.policy ? policyText(r.policy) : "–", bits(now.pdrs[i]), count(r.counter?.packets ?? 0n), octets(r.counter?.bytes ?? 0n)] }))} />
      </Section>
      <Section title="Usage" note="What each URR has counted since its last report.">
        {s.urrs.length === 0 ? <Empty>The SMF asks for no reports: this session has no URR.</Empty> : (
          <Table label="Usage" columns={[{ name: "URR", n: true }, { name: "Next report", n: true }, { name: "Uplink", n: true }, { name: "Downlink", n: true }, { name: "Quota" }]}
            rows={s.urrs.map((u) => ({ key: String(u.urr), cells: [u.urr, count(u.sequence), octets(u.uplink), octets(u.downlink), u.exhausted ? <span class="wrong">used up</span> : "not used up"] }))} />
        )}
      </Section>
      {s.rules && (
        <details><summary>The session as the SMF said it</summary><pre tabIndex={0}>{readable(s.rules)}</pre></details>
      )}
    </>
  );
}

export function Sessions(p: { seid: string }): JSX.Element {
  const seid = number(p.seid);
  return seid === undefined ? <List /> : <One key={p.seid} seid={seid} />;
}
