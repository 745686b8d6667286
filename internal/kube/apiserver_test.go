//go:build apiserver

package kube

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/culvert-net/culvert/internal/overlay"
)

// These tests ask a real kube-apiserver with etcd, which tools/cluster/build.sh
// builds: go test -tags apiserver ./internal/kube

// A node with the rights of the manifest, and no others, through all that it
// does; then its API server killed, and slow.
func TestAPIServer(t *testing.T) {
	s := newServer(t)
	for _, u := range []*unstructured.Unstructured{nodeObject(me, nil), nodeObject("node-2", other("node-2", "2001:db8::2")), listingObject(listing), policyObject("core", spec(nil))} {
		s.apply(t, u)
	}
	proxy := newProxy(t, s)
	w, h, _ := starts(t, s.agent(t, me, proxy.url), Config{Node: me, Namespace: namespace, Trust: Trust{Accept: anything}}, Known{})
	core, byName, byAddress := "srv6policy:core", "configmap:ipv4:node-2", "configmap:ipv6:fd11::1000"
	s.waits(t, "everything is observed", func() error {
		return want(h.has(func(h *observed) bool { return len(h.paths) == 3 && len(h.nodes) == 1 && len(h.self.PodCIDRs) == 2 }) && w.Status().Complete, "observed %v, status %+v", h.log, w.Status())
	})

	t.Run("publish", func(t *testing.T) {
		w.Publish(other(me, "2001:db8::1"))
		s.waits(t, "published", func() error {
			text := s.get(t, nodeObject(me, nil)).GetAnnotations()[NodeAnnotation]
			return want(strings.Contains(text, "2001:db8::1"), "annotation %q", text)
		})
	})
	t.Run("status", func(t *testing.T) {
		w.SetVerdicts([]Verdict{{core, true, true, "highest preference", "1.2ms -"}, {byName, true, false, "stands by", ""}, {byAddress, false, true, "no route", ""}})
		s.waits(t, "the status of a policy", func() error {
			got := nodeStatus(s.get(t, policyObject("core", nil)), me)
			return want(got["state"] == stateActive && got["reason"] == "highest preference" && got["since"] != nil &&
				fmt.Sprint(got["roundTrips"]) == "[1.2ms -]", "%v", got)
		})
		if got := s.kubectl(t, "root", "get", "srp", "-o", "wide"); !regexp.MustCompile(`\ncore .* 1/1 Active +\["1\.2ms","-"\] `).MatchString(got) {
			t.Errorf("kubectl shows\n%s", got)
		}
		s.waits(t, "the status of the ConfigMap", func() error {
			text := s.get(t, listingObject("")).GetAnnotations()[StatusAnnotation]
			return want(strings.Contains(text, `"state":"Invalid"`) && strings.Contains(text, `"state":"Standby"`), "%s", text)
		})
	})
	t.Run("faults", func(t *testing.T) {
		h.take()
		s.apply(t, listingObject(strings.Replace(listing, "egress_node: node-2", "egress: node-2", 1)))
		s.waits(t, "the fault", func() error {
			text := s.get(t, listingObject("")).GetAnnotations()[StatusAnnotation]
			return want(strings.Contains(text, `policies[1].egress: unknown field`), "%s", text)
		})
		s.waits(t, "an event", func() error {
			list, err := s.objects.Resource(eventResource).Namespace(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=InvalidPolicies"})
			if err != nil {
				return err
			}
			return want(len(list.Items) == 1 && strings.Contains(list.Items[0].Object["message"].(string), "policies[1].egress"), "%v", list.Items)
		})
		if said := h.take(); said != "" {
			t.Errorf("a fault changed %s", said)
		}
		s.apply(t, listingObject(listing))
		s.waits(t, "mended", func() error {
			text := s.get(t, listingObject("")).GetAnnotations()[StatusAnnotation]
			return want(!strings.Contains(text, "error"), "%s", text)
		})
	})
	t.Run("schema", func(t *testing.T) { s.refuses(t) })
	t.Run("delay", func(t *testing.T) { s.delays(t) })
	t.Run("by label", func(t *testing.T) {
		chosen := policyObject("chosen", spec(func(f map[string]any) {
			delete(f, "node")
			f["nodeSelector"] = map[string]any{"matchLabels": map[string]any{"rack": "a"}}
		}))
		s.apply(t, chosen)
		node := nodeObject(me, nil)
		node.SetLabels(map[string]string{"rack": "a"})
		s.apply(t, node)
		s.waits(t, "the path", func() error {
			return want(h.has(func(h *observed) bool { return h.paths["srv6policy:chosen"].Name != "" }), "%v", h.pathNames())
		})
		s.waits(t, "its status", func() error {
			return want(nodeStatus(s.get(t, chosen), me) != nil, "none")
		})
		s.apply(t, nodeObject(me, nil))
		s.waits(t, "no path", func() error {
			return want(h.has(func(h *observed) bool { return h.paths["srv6policy:chosen"].Name == "" }), "%v", h.pathNames())
		})
		s.waits(t, "no status", func() error { return want(nodeStatus(s.get(t, chosen), me) == nil, "there is one") })
	})
	t.Run("own node only", func(t *testing.T) { s.keepsToItself(t, proxy.url) })
	t.Run("inject", func(t *testing.T) { s.injected(t, h) })
	t.Run("own claims only", func(t *testing.T) { s.takesNoClaim(t) })
	t.Run("claims", func(t *testing.T) { s.claimed(t) })
	t.Run("latency", func(t *testing.T) { s.latency(t, h) })
	t.Run("slow", func(t *testing.T) {
		release := proxy.hold()
		defer release()
		w.SetVerdicts([]Verdict{{core, true, true, "slowly", ""}, {byName, true, false, "stands by", ""}, {byAddress, false, true, "no route", ""}})
		time.Sleep(settlesSoon * 2) // the write is under way
		s.apply(t, policyObject("core", spec(func(f map[string]any) { f["preference"] = int64(300) })))
		s.waits(t, "a change during the write", func() error {
			return want(h.has(func(h *observed) bool { return h.paths[core].Preference == 300 }), "not observed")
		})
		release()
		s.waits(t, "the write", func() error {
			got := nodeStatus(s.get(t, policyObject("core", nil)), me)
			return want(got["reason"] == "slowly", "%v", got)
		})
	})
	t.Run("conflicts", func(t *testing.T) {
		proxy.refusals.Store(2)
		w.SetVerdicts([]Verdict{{core, true, true, "after conflicts", ""}, {byName, true, false, "stands by", ""}, {byAddress, false, true, "no route", ""}})
		s.waits(t, "the write", func() error {
			got := nodeStatus(s.get(t, policyObject("core", nil)), me)
			return want(got["reason"] == "after conflicts", "%v, %d refusals left", got, proxy.refusals.Load())
		})
	})
	t.Run("killed", func(t *testing.T) {
		h.take()
		end(s.api)
		s.waits(t, "the node says so", func() error { return want(w.Status().Error != "", "status %+v", w.Status()) })
		time.Sleep(3 * time.Second)
		if said := h.take(); said != "" {
			t.Errorf("a dead API server changed %s", said)
		}
		s.start(t)
		s.waits(t, "core is deleted", func() error {
			return s.objects.Resource(policyResource).Delete(t.Context(), "core", metav1.DeleteOptions{})
		})
		s.apply(t, nodeObject("node-3", other("node-3", "2001:db8::3")))
		s.waits(t, "what changed since", func() error {
			return want(h.has(func(h *observed) bool { return h.paths[core].Name == "" && h.nodes["node-3"].Name != "" }), "status %+v", w.Status())
		})
		if said := strings.Split(h.take(), ", "); !slices.Contains(said, "no path "+core) || len(said) != 2 {
			t.Errorf("observed more than what differs: %q", said)
		}
	})
}

// refuses: what the schema finds never gets as far as a node.
func (s *server) refuses(t *testing.T) {
	for words, change := range map[string]func(map[string]any){
		"give either node or nodeSelector":    func(f map[string]any) { f["nodeSelector"] = map[string]any{} },
		"spec.egressNode: Required value":     func(f map[string]any) { delete(f, "egressNode") },
		`supported values: "IPv4", "IPv6"`:    func(f map[string]any) { f["traffic"] = "IPv5" },
		"spec.segmentLists[0].segments[0]":    func(f map[string]any) { f["segmentLists"] = []any{map[string]any{"segments": []any{"10.0.0.1"}}} },
		"spec.segmentLists: Required value":   func(f map[string]any) { delete(f, "segmentLists") },
		"spec.bindingSID: Invalid value":      func(f map[string]any) { f["bindingSID"] = "cafe" },
		"should be less than or equal to 429": func(f map[string]any) { f["preference"] = int64(1) << 33 },
		`field not declared in schema`:        func(f map[string]any) { f["egress"] = "node-2" },
	} {
		err := s.tryApply(t.Context(), policyObject("wrong", spec(change)))
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("want %q, got %v", words, err)
		}
	}
}

// injected: what the command writes, in both forms, by a kubeconfig.
func (s *server) injected(t *testing.T, h *observed) {
	file := s.kubeconfig(t, "root")
	set := func(c InjectorConfig, list ...Injection) (string, error) {
		t.Helper()
		c.Kubeconfig, c.Namespace = file, namespace
		in, err := NewInjector(c)
		if err != nil {
			t.Fatal(err)
		}
		events, err := in.Set(t.Context(), list)
		return sayEvents(events), err
	}
	path := injection(overlay.ColorIPv6, "fd11::7", me)
	if said, err := set(InjectorConfig{Form: FormConfigMap}, path); !errors.Is(err, ErrForeign) {
		t.Errorf("over what somebody else has written: %s, %v", said, err)
	}
	const add, replace, withdraw = "add ipv6:fd11::7 for node-1", "replace ipv6:fd11::7 for node-1", "withdraw ipv6:fd11::7 for node-1"
	for range 2 { // it changes nothing, so that it says the same again
		if said, err := set(InjectorConfig{Form: FormSRv6Policy, DryRun: true}, path); err != nil || said != add {
			t.Errorf("a dry run: %s, %v", said, err)
		}
	}
	if said, err := set(InjectorConfig{Form: FormSRv6Policy}, path); err != nil || said != add {
		t.Errorf("%s, %v", said, err)
	}
	s.waits(t, "the path", func() error {
		return want(h.has(func(h *observed) bool { return h.paths["srv6policy:node-1.ipv6-fd11--7"].Endpoint == path.Endpoint }), "%v", h.pathNames())
	})
	path.Preference = 300
	if said, err := set(InjectorConfig{Form: FormSRv6Policy}, path); err != nil || said != replace {
		t.Errorf("%s, %v", said, err)
	}
	if said, err := set(InjectorConfig{Form: FormSRv6Policy}); err != nil || said != withdraw {
		t.Errorf("%s, %v", said, err)
	}
	if said, err := set(InjectorConfig{Form: FormConfigMap, Force: true}, path); err != nil || !strings.HasPrefix(said, add) {
		t.Errorf("%s, %v", said, err)
	}
	s.waits(t, "the path", func() error {
		return want(h.has(func(h *observed) bool {
			return h.paths["configmap:ipv6:fd11::7"].Preference == 300 && h.paths["srv6policy:node-1.ipv6-fd11--7"].Name == ""
		}), "%v", h.pathNames())
	})
	if said, err := set(InjectorConfig{Form: FormConfigMap}); err != nil || said != withdraw {
		t.Errorf("%s, %v", said, err)
	}
	s.apply(t, listingObject(listing))
}

// latency is from a policy's change in the API to the handler.
func (s *server) latency(t *testing.T, h *observed) {
	const n = 100
	took := make([]time.Duration, n)
	for i := range took {
		preference := uint32(1000 + i)
		u := policyObject("core", spec(func(f map[string]any) { f["preference"] = int64(preference) }))
		began := time.Now()
		s.apply(t, u)
		answered := time.Since(began)
		for !h.has(func(h *observed) bool { return h.paths["srv6policy:core"].Preference == preference }) {
			if time.Since(began) > 10*time.Second {
				t.Fatal("not observed")
			}
			time.Sleep(200 * time.Microsecond)
		}
		took[i] = time.Since(began) - answered
	}
	slices.Sort(took)
	t.Logf("from the API server's answer to the handler: median %s, P99 %s", took[n/2], took[n*99/100-1])
}

// What a node keeps of a cluster with a thousand others, and two thousand
// policies to them.
func TestMemory(t *testing.T) {
	const n = 1000
	s := newServer(t)
	s.apply(t, nodeObject(me, nil))
	list := "node: node-1\npolicies:\n"
	var makers errgroup.Group
	makers.SetLimit(8)
	for i := range n {
		name, address := fmt.Sprintf("far-%04d", i), fmt.Sprintf("2001:db8:1::%x", i+1)
		list += fmt.Sprintf("- {egress_node: %s, traffic: IPv6, segment_list: [\"fcff:3::%x\", \"fcff:4::%x\"]}\n", name, i+1, i+1)
		makers.Go(func() error {
			node := nodeObject(name, other(name, address))
			node.SetLabels(map[string]string{"topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name})
			return errors.Join(s.tryApply(t.Context(), node), s.tryApply(t.Context(), policyObject(name, spec(func(f map[string]any) {
				f["egressNode"], f["traffic"] = address, "IPv4"
			}))))
		})
	}
	if err := makers.Wait(); err != nil {
		t.Fatal(err)
	}
	s.apply(t, listingObject(list))
	before := heap()
	began := time.Now()
	w, h, _ := starts(t, s.agent(t, me, s.admin.Host), Config{Node: me, Namespace: namespace, Trust: Trust{Accept: anything}}, Known{})
	s.waits(t, "everything is observed", func() error {
		return want(h.has(func(h *observed) bool { return len(h.paths) == 2*n && len(h.nodes) == n }), "status %+v", w.Status())
	})
	took, used := time.Since(began), heap()-before
	t.Logf("%d nodes and %d paths observed within %s, in %d KiB", n, 2*n, took, used>>10)
	if used > 16<<20 {
		t.Errorf("they take %d octets of memory", used)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// proxy is a way to the API server that can hold writes, or answer them with conflicts.
type proxy struct {
	url      string
	gate     sync.RWMutex // writes pass while it can be read
	refusals atomic.Int64 // of the next writes
}

// hold lets no write pass until it is released.
func (p *proxy) hold() (release func()) {
	p.gate.Lock()
	return sync.OnceFunc(p.gate.Unlock)
}

func newProxy(t *testing.T, s *server) *proxy {
	t.Helper()
	to, err := url.Parse(s.admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.Transport, forward.FlushInterval = transport, -1
	forward.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			p.gate.RLock()
			defer p.gate.RUnlock()
			if p.refusals.Add(-1) >= 0 {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
				return
			}
		}
		forward.ServeHTTP(w, r)
	})}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { _ = server.Close() })
	p.url = "http://" + l.Addr().String()
	return p
}
