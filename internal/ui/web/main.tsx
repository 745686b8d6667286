// The page: its views, by the fragment of the address.
import { render, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { local, setToken, shownNode, takeToken, whenTokenIsNeeded } from "./client.ts";
import { Cluster, Members } from "./cluster.tsx";
import { Paths } from "./paths.tsx";
import { Sessions } from "./sessions.tsx";
import { Topology } from "./topology.tsx";
import { Why } from "./why.tsx";

// Local is what the server of `culvert ui` says of itself.
interface Local {
  target: string;
  cluster: boolean;
  engine: boolean;
}

const views: { id: string; name: string; show: (rest: string) => JSX.Element }[] = [
  { id: "topology", name: "Topology", show: () => <Topology /> },
  { id: "sessions", name: "Sessions", show: (rest) => <Sessions seid={rest} /> },
  { id: "why", name: "Why", show: () => <Why /> },
  { id: "paths", name: "Traffic engineering", show: () => <Paths /> },
  { id: "cluster", name: "Cluster", show: () => <Cluster /> },
];

function useFragment(): string {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => setHash(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return hash;
}

function AskToken(p: { done: () => void }): JSX.Element {
  const [text, setText] = useState("");
  return (
    <main class="ask">
      <h1>Culvert</h1>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          setToken(text.trim());
          p.done();
        }}
      >
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="off" required value={text} onInput={(e) => setText(e.currentTarget.value)} />
        <button type="submit">Open</button>
      </form>
      <p class="note">It is in the file that <code>api.token_file</code> names, or <code>api.viewer_token_file</code> for looking only. It stays in this tab until you close it. If <code>culvert ui</code> serves this page, open the address that it prints.</p>
    </main>
  );
}

function Page(): JSX.Element {
  const [asking, setAsking] = useState(false);
  const [where, setWhere] = useState<Local | undefined>(undefined);
  const hash = useFragment();
  const main = useRef<HTMLElement>(null);
  const [, id, rest] = /^#\/(\w+)\/?(.*)$/.exec(hash) ?? [];
  const view = views.find((v) => v.id === id) ?? views[0]!;
  const all = where?.cluster && !shownNode;
  useEffect(() => {
    whenTokenIsNeeded(() => setAsking(true));
    local<Local>("info").then((of) => {
      if (shownNode && !of?.cluster) location.replace("/"); // this server is of one daemon
      setWhere(of);
    }, () => setAsking(true));
  }, [asking]);
  useEffect(() => {
    document.title = [all ? "Cluster" : view.name, shownNode, "Culvert"].filter(Boolean).join(" · ");
  }, [view, all]);
  if (asking) return <AskToken done={() => setAsking(false)} />;
  if (all) {
    return (
      <>
        <header><span class="mark">Culvert</span><span class="where">{where?.target}</span></header>
        <main><Members /></main>
      </>
    );
  }
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current?.focus(); }}>Skip to the view</a>
      <header>
        <span class="mark">Culvert</span>
        <nav aria-label="Views">
          {shownNode && <a href="/">All nodes</a>}
          {views.map((v) => (
            <a key={v.id} href={`#/${v.id}`} aria-current={v === view ? "page" : undefined}>{v.name}</a>
          ))}
        </nav>
        {where && <span class="where">{shownNode || where.target}</span>}
      </header>
      <main id="main" tabIndex={-1} ref={main}>
        <h1>{view.name}</h1>
        {view.show(decodeURIComponent(rest ?? ""))}
      </main>
      <footer><a href="/licences.txt">Parts of this page, and their licences</a></footer>
    </>
  );
}

takeToken();
render(<Page />, document.getElementById("page")!);
