// The client of the management API, and what all views share of it.
import { Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { useEffect, useState } from "preact/hooks";
import { Culvert, type WatchResponse } from "./gen/culvert/v1/culvert_pb.ts";

// shownNode is the node of a cluster that this page is of: culvert ui --cluster has a page for each.
// Empty: the page is of the only daemon, or of all nodes.
export const shownNode = new URLSearchParams(location.search).get("node") ?? "";

// pageOf is the address of a node's page.
export function pageOf(node: string): string {
  return "/?" + new URLSearchParams({ node }).toString() + "#/topology";
}

const stored = "culvert-token"; // in sessionStorage: it ends with the tab

// takeToken takes a token out of the address, so that it stays in no history.
export function takeToken(): void {
  const given = /^#token=([\w-]+)$/.exec(location.hash);
  if (given?.[1]) {
    sessionStorage.setItem(stored, given[1]);
    history.replaceState(null, "", location.pathname + location.search + "#/topology");
  }
}

export function setToken(token: string): void {
  sessionStorage.setItem(stored, token);
}

function authorization(): Record<string, string> {
  const token = sessionStorage.getItem(stored);
  return token ? { Authorization: "Bearer " + token } : {};
}

const withToken: Interceptor = (next) => (request) => {
  for (const [name, value] of Object.entries(authorization())) request.header.set(name, value);
  return next(request);
};

const base = location.origin + (shownNode ? "/node/" + encodeURIComponent(shownNode) : "");

export const client = createClient(Culvert, createConnectTransport({ baseUrl: base, useBinaryFormat: true, interceptors: [withToken] }));

// local asks the server of `culvert ui` for what no daemon knows; undefined: there is none.
export async function local<T>(what: string): Promise<T | undefined> {
  const answer = await fetch("/local/" + what, { headers: authorization(), cache: "no-store" });
  if (answer.status === 204) return undefined;
  if (!answer.ok) throw new Error(await answer.text());
  return (await answer.json()) as T;
}

// Failure is what a call came to, in words.
export interface Failure {
  text: string;
  token: boolean; // another token is needed
  absent: boolean; // this node does not do that
  refused: boolean; // another try would not help
}

export function failure(error: unknown): Failure {
  const e = ConnectError.from(error);
  if (e.code === Code.Unavailable && /^HTTP \d+$|fetch/.test(e.rawMessage)) {
    return { text: "the daemon does not answer: this page tries again every two seconds", token: false, absent: false, refused: false };
  }
  return { text: e.rawMessage || "the daemon does not answer", token: e.code === Code.Unauthenticated, absent: e.code === Code.Unimplemented, refused: e.code === Code.PermissionDenied };
}

let onToken: () => void = () => {};

// whenTokenIsNeeded sets what is done when the daemon refuses the token.
export function whenTokenIsNeeded(f: () => void): void {
  onToken = f;
}

export function noteFailure(error: unknown): Failure {
  const f = failure(error);
  if (f.token) onToken();
  return f;
}

const patience = 2000; // milliseconds before another try

// useStream follows a stream while the page can be seen. It returns why that fails now.
export function useStream<M>(open: (signal: AbortSignal) => AsyncIterable<M>, take: (m: M, first: boolean) => void, keys: unknown[]): Failure | undefined {
  const [failed, setFailed] = useState<Failure | undefined>(undefined);
  useEffect(() => {
    let controller = new AbortController();
    let timer = 0;
    const run = async (): Promise<void> => {
      const own = (controller = new AbortController());
      try {
        let first = true;
        for await (const m of open(own.signal)) {
          if (own.signal.aborted) return;
          setFailed(undefined);
          take(m, first);
          first = false;
        }
      } catch (error) {
        if (own.signal.aborted) return;
        const f = noteFailure(error);
        setFailed(f);
        if (f.token || f.absent || f.refused) return;
      }
      if (!own.signal.aborted) timer = window.setTimeout(run, patience);
    };
    const stop = (): void => {
      window.clearTimeout(timer);
      controller.abort();
    };
    const turn = (): void => {
      stop();
      if (!document.hidden) void run();
    };
    document.addEventListener("visibilitychange", turn);
    turn();
    return () => {
      document.removeEventListener("visibilitychange", turn);
      stop();
    };
  }, keys);
  return failed;
}

// useWatch follows a view of the daemon.
export function useWatch(view: string, seids: bigint[], take: (m: WatchResponse, first: boolean) => void): Failure | undefined {
  return useStream((signal) => client.watch({ view, seids }, { signal }), take, [view, seids.join()]);
}

// Answer is what a call came to: neither is set until it has.
export interface Answer<T> {
  value?: T;
  failed?: Failure;
  busy: boolean;
}

// useCall calls once for each value of the keys.
export function useCall<T>(call: (signal: AbortSignal) => Promise<T>, keys: unknown[]): Answer<T> {
  const [answer, setAnswer] = useState<Answer<T>>({ busy: true });
  useEffect(() => {
    const controller = new AbortController();
    setAnswer((a) => ({ ...a, busy: true }));
    call(controller.signal).then(
      (value) => controller.signal.aborted || setAnswer({ value, busy: false }),
      (error) => controller.signal.aborted || setAnswer({ failed: noteFailure(error), busy: false }),
    );
    return () => controller.abort();
  }, keys);
  return answer;
}
