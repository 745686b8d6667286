package api

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"github.com/culvert-net/culvert/internal/api/culvertv1/culvertv1connect"
	"github.com/culvert-net/culvert/internal/ui"
)

// pageCalls are what the page calls. It changes nothing.
var pageCalls = []string{
	culvertv1connect.CulvertStatusProcedure, culvertv1connect.CulvertListSessionsProcedure, culvertv1connect.CulvertListNodesProcedure,
	culvertv1connect.CulvertListPodsProcedure, culvertv1connect.CulvertExplainPolicyProcedure, culvertv1connect.CulvertDoctorProcedure,
	culvertv1connect.CulvertWatchProcedure, culvertv1connect.CulvertCaptureProcedure, culvertv1connect.CulvertExplainPacketsProcedure, culvertv1connect.CulvertFlowsProcedure,
}

// NewProxy passes the page's calls on to a daemon, with the endpoint's token.
func NewProxy(e Endpoint) (http.Handler, error) {
	tripper, base, err := e.transport()
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(base)
	if err != nil {
		return nil, err
	}
	proxy := passOn(tripper, func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = to.Host
	}, func(w http.ResponseWriter, _ *http.Request, _ error) {
		http.Error(w, "no answer from the daemon", http.StatusServiceUnavailable)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(pageCalls, r.URL.Path) {
			refuseCall(w)
			return
		}
		proxy.ServeHTTP(w, r)
	}), nil
}

// passOn passes the page's calls on by a transport, without what is for this server only. to sets
// where a call goes, failed answers one that nobody answers.
func passOn(tripper http.RoundTripper, to func(*httputil.ProxyRequest), failed func(http.ResponseWriter, *http.Request, error)) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: tripper, FlushInterval: -1, // streams
		ErrorLog: log.New(io.Discard, "", 0), // the page says it
		Rewrite: func(r *httputil.ProxyRequest) {
			to(r)
			for name := range r.Out.Header {
				if name == "Authorization" || name == "Origin" || name == "Referer" || name == "Cookie" || strings.HasPrefix(name, "Sec-") {
					r.Out.Header.Del(name)
				}
			}
		},
		ErrorHandler: failed,
	}
}

func refuseCall(w http.ResponseWriter) {
	http.Error(w, "the page does not call this", http.StatusForbidden)
}

// LocalPage serves the page on loopback to whoever knows the secret. calls gets the calls of the
// management API: those of a daemon, or, with /node/NAME in front of their path, of a cluster's
// nodes. local answers, as JSON, what the page asks of this server itself.
func LocalPage(secret string, calls http.Handler, local map[string]func(context.Context) (any, error)) http.Handler {
	grants := []grant{{digest: sha256.Sum256([]byte(secret)), may: func(string) bool { return true }}}
	mux := http.NewServeMux()
	mux.Handle("/local/", requireToken(grants, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, local[strings.TrimPrefix(r.URL.Path, "/local/")])
	})))
	mux.Handle("/node/", requireToken(grants, calls))
	mux.Handle("/", ui.Handler(requireToken(grants, calls)))
	return requireHost(http.NewCrossOriginProtection().Handler(mux), isLocal)
}

// answer writes what f returns.
func answer(w http.ResponseWriter, r *http.Request, f func(context.Context) (any, error)) {
	if f == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	v, err := f(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(v) // the page is gone
}
