package clusterapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const nodes = "/api/v1/nodes"

func newServer(t *testing.T) (*Server, *httptest.Server) {
	t.Helper()
	s := New()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	t.Cleanup(func() {
		if err := s.Close(); err != nil { // first: it ends the watches
			t.Error(err)
		}
	})
	s.Put("nodes", Object{"kind": "Node", "metadata": Object{"name": "a", "labels": Object{"zone": "x"}}, "spec": Object{"kept": "yes"}})
	s.Put("nodes", Object{"kind": "Node", "metadata": Object{"name": "b"}})
	s.Put("pods", Object{"kind": "Pod", "metadata": Object{"name": "a", "namespace": "n"}})
	return s, h
}

func do(t *testing.T, method, url, accept, body string) (int, Object) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var o Object
	if err := json.NewDecoder(answer.Body).Decode(&o); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, o
}

func names(list Object) (out string) {
	items, _ := list["items"].([]any)
	for _, o := range items {
		out += text(o.(Object), "metadata", "namespace") + "/" + text(o.(Object), "metadata", "name") + " "
	}
	return out
}

// Selectors choose; whole objects and their metadata are shown as they are asked for.
func TestList(t *testing.T) {
	_, h := newServer(t)
	for path, want := range map[string]string{
		nodes: "/a /b ",
		nodes + "?fieldSelector=metadata.name%3Db":   "/b ",
		nodes + "?labelSelector=zone%3Dx":            "/a ",
		nodes + "?labelSelector=zone%3Dy":            "",
		"/api/v1/pods":                               "n/a ",
		"/api/v1/namespaces/other/pods":              "",
		"/apis/networking.k8s.io/v1/networkpolicies": "",
	} {
		if code, list := do(t, http.MethodGet, h.URL+path, "application/json", ""); code != http.StatusOK || names(list) != want {
			t.Errorf("%s: %d, %q, want %q", path, code, names(list), want)
		}
	}
	_, list := do(t, http.MethodGet, h.URL+nodes, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "")
	first := list["items"].([]any)[0].(Object)
	if list["kind"] != "PartialObjectMetadataList" || first["kind"] != "PartialObjectMetadata" || first["spec"] != nil || names(list) != "/a /b " {
		t.Errorf("metadata: %v", list)
	}
	if code, _ := do(t, http.MethodGet, h.URL+nodes+"/c", "application/json", ""); code != http.StatusNotFound {
		t.Errorf("a node that is not there: %d", code)
	}
}

// A watch has what is there, then what changes, and nothing of other objects. A patch keeps the rest.
func TestWatch(t *testing.T) {
	_, h := newServer(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+nodes+"?watch=true&sendInitialEvents=true&fieldSelector=metadata.name%3Da", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	events := json.NewDecoder(answer.Body)
	next := func() (e struct {
		Type   string
		Object Object
	}) {
		t.Helper()
		if err := events.Decode(&e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := next(); e.Type != "ADDED" || text(e.Object, "metadata", "name") != "a" {
		t.Errorf("first: %v", e)
	}
	if e := next(); e.Type != "BOOKMARK" || text(e.Object, "metadata", "annotations", "k8s.io/initial-events-end") != "true" {
		t.Errorf("then: %v", e)
	}
	do(t, http.MethodPatch, h.URL+nodes+"/b", "application/json", `{"metadata":{"annotations":{"x":"1"}}}`)
	do(t, http.MethodPatch, h.URL+nodes+"/a", "application/json", `{"metadata":{"annotations":{"x":"2"}}}`)
	if e := next(); e.Type != "MODIFIED" || text(e.Object, "metadata", "annotations", "x") != "2" || text(e.Object, "spec", "kept") != "yes" {
		t.Errorf("after the patch: %v", e)
	}
}
