package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/culvert-net/culvert/internal/kube"
	"github.com/culvert-net/culvert/internal/overlay"
)

// kubeAPI is an API server of Nodes, and of any objects by the path of their URL. A write that does
// not know the object as it is now is a conflict. Its rights are tested with a real one.
type kubeAPI struct {
	t      *testing.T
	away   atomic.Bool // it refuses connections
	server *httptest.Server

	mu      sync.Mutex
	version int
	nodes   map[string]overlay.Node
	objects map[string]map[string]any
	writes  int // of SRv6Policies

	unclaimed string // the node that has claimed no locator
}

func newKubeAPI(t *testing.T, nodes ...overlay.Node) *kubeAPI {
	k := &kubeAPI{t: t, nodes: map[string]overlay.Node{}, objects: map[string]map[string]any{}}
	for _, n := range nodes {
		k.nodes[n.Name] = n
	}
	k.server = httptest.NewServer(k)
	t.Cleanup(k.server.Close)
	return k
}

// kubeconfig says where it is.
func (k *kubeAPI) kubeconfig() string {
	file := filepath.Join(k.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "k", "cluster": {"server": %q}}],
		"users": [{"name": "u", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`, k.server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		k.t.Fatal(err)
	}
	return file
}

const policiesPath = "/apis/culvert.net/v1alpha1/srv6policies"

// policies are the SRv6Policies by name.
func (k *kubeAPI) policies() map[string]map[string]any {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := map[string]map[string]any{}
	for path, o := range k.objects {
		if name, is := strings.CutPrefix(path, policiesPath+"/"); is {
			out[name] = maps.Clone(o)
		}
	}
	return out
}

func (k *kubeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if k.away.Load() {
		panic(http.ErrAbortHandler)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	code, answer := k.answer(r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer) // the client is gone
}

func (k *kubeAPI) answer(r *http.Request) (int, any) {
	failure := func(code int, reason string) (int, any) {
		return code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": reason + " of the test"}
	}
	path := r.URL.Path
	there, has := k.objects[path]
	var sent map[string]any
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return failure(http.StatusBadRequest, "BadRequest")
		}
		if strings.HasPrefix(path, policiesPath) {
			k.writes++
		}
	}
	meta := func(o map[string]any) map[string]any { return o["metadata"].(map[string]any) }
	switch {
	case path == "/api/v1/nodes":
		return http.StatusOK, k.nodeList()
	case path == "/api/v1/namespaces/kube-system/configmaps":
		return http.StatusOK, k.claimList()
	case r.Method == http.MethodGet && path == policiesPath:
		items := []any{}
		for _, at := range slices.Sorted(maps.Keys(k.objects)) {
			labels, _ := meta(k.objects[at])["labels"].(map[string]any)
			if key, value, _ := strings.Cut(r.URL.Query().Get("labelSelector"), "="); strings.HasPrefix(at, policiesPath+"/") && labels[key] == value {
				items = append(items, k.objects[at])
			}
		}
		return http.StatusOK, map[string]any{"kind": "SRv6PolicyList", "apiVersion": "culvert.net/v1alpha1", "metadata": map[string]any{}, "items": items}
	case r.Method == http.MethodPost:
		path += "/" + meta(sent)["name"].(string)
		if _, has = k.objects[path]; has {
			return failure(http.StatusConflict, "AlreadyExists")
		}
	case !has:
		return failure(http.StatusNotFound, "NotFound")
	case r.Method == http.MethodPut && meta(sent)["resourceVersion"] != meta(there)["resourceVersion"]:
		return failure(http.StatusConflict, "Conflict")
	case r.Method == http.MethodDelete:
		delete(k.objects, path)
		return http.StatusOK, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
	}
	if sent == nil {
		return http.StatusOK, there
	}
	k.version++
	meta(sent)["resourceVersion"], meta(sent)["uid"] = fmt.Sprint(k.version), "uid of "+path
	k.objects[path] = sent
	return http.StatusOK, sent
}

// nodeList are Nodes with the addresses and podCIDRs that their agents publish.
func (k *kubeAPI) nodeList() any {
	items := []any{}
	for name, n := range k.nodes {
		text, err := json.Marshal(n)
		if err != nil {
			k.t.Error(err)
		}
		cidrs := []any{}
		for _, p := range n.Prefixes {
			cidrs = append(cidrs, p.String())
		}
		items = append(items, map[string]any{"kind": "Node", "apiVersion": "v1",
			"metadata": map[string]any{"name": name, "uid": "uid of " + name, "annotations": map[string]any{kube.NodeAnnotation: string(text)}},
			"spec":     map[string]any{"podCIDRs": cidrs},
			"status":   map[string]any{"addresses": []any{map[string]any{"type": "InternalIP", "address": n.Address.String()}}}})
	}
	return map[string]any{"kind": "NodeList", "apiVersion": "v1", "metadata": map[string]any{}, "items": items}
}

// claimList are the nodes' claims of their locators, without those of k.unclaimed.
func (k *kubeAPI) claimList() any {
	items := []any{}
	for name, n := range k.nodes {
		if name == k.unclaimed {
			continue
		}
		items = append(items, map[string]any{"kind": "ConfigMap", "apiVersion": "v1",
			"metadata": map[string]any{"name": kube.ClaimName(n.Locator), "namespace": "kube-system", "labels": map[string]any{kube.ClaimLabel: ""},
				"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": name, "uid": "uid of " + name}}},
			"data": map[string]any{"node": name, "locator": n.Locator.String()}})
	}
	return map[string]any{"kind": "ConfigMapList", "apiVersion": "v1", "metadata": map[string]any{}, "items": items}
}
