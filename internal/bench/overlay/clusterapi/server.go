package clusterapi

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Server answers requests of clients as client-go makes them, in JSON.
type Server struct {
	http http.Server

	mu      sync.Mutex
	objects map[place]Object
	log     []event // that objects changed; the version of an object is how many there were
	changed chan struct{}
	closed  context.Context
	end     context.CancelFunc
}

// event is a change of an object.
type event struct {
	kind   string // ADDED or MODIFIED
	at     place
	object Object
}

// New makes a Server without objects.
func New() *Server {
	s := &Server{objects: map[place]Object{}, changed: make(chan struct{})}
	s.http.Handler = s
	s.closed, s.end = context.WithCancel(context.Background())
	return s
}

// Serve answers until Close.
func (s *Server) Serve(l net.Listener) {
	go func() { _ = s.http.Serve(l) }()
}

// Close ends all.
func (s *Server) Close() error {
	s.end()
	return s.http.Close()
}

// Put stores an object in a collection, such as networking.k8s.io/networkpolicies.
func (s *Server) Put(collection string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(place{collection, text(o, "metadata", "namespace"), text(o, "metadata", "name")}, o)
}

func (s *Server) put(at place, o Object) Object {
	kind := "MODIFIED"
	if s.objects[at] == nil {
		kind = "ADDED"
	}
	o = versioned(o, len(s.log)+1)
	s.objects[at], s.log = o, append(s.log, event{kind, at, o})
	close(s.changed)
	s.changed = make(chan struct{})
	return o
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, ok := placeOf(r.URL.Path)
	if !ok {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	switch r.Method {
	case http.MethodGet:
		s.get(w, r, at)
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		s.write(w, r, at)
	default:
		fail(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// write takes a whole object, or what changes of one.
func (s *Server) write(w http.ResponseWriter, r *http.Request, at place) {
	var o Object
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		fail(w, http.StatusBadRequest, "BadRequest")
		return
	}
	at.name = cmp.Or(at.name, text(o, "metadata", "name"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodPatch {
		o = merged(s.objects[at], o)
	}
	answer(w, s.put(at, o))
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, at place) {
	q := r.URL.Query()
	if q.Get("watch") != "" {
		s.watch(w, r, at)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at.name != "" {
		if o := s.objects[at]; o != nil {
			answer(w, o)
			return
		}
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	list := Object{"apiVersion": "v1", "kind": "List", "metadata": Object{"resourceVersion": strconv.Itoa(len(s.log))}, "items": s.items(at, q, as(r))}
	if as(r) != "" {
		list["apiVersion"], list["kind"] = "meta.k8s.io/v1", as(r)+"List"
	}
	answer(w, list)
}

// items are the objects at a place that a query asks for.
func (s *Server) items(at place, q url.Values, kind string) []Object {
	found := map[place]Object{}
	for where, o := range s.objects {
		if at.holds(event{at: where}) && asked(o, q) {
			found[where] = shown(o, kind)
		}
	}
	return sorted(found)
}

func asked(o Object, q url.Values) bool {
	return matches(o, selectorOf(q.Get("fieldSelector")), selectorOf(q.Get("labelSelector")))
}

// as is how the client wants objects to be: PartialObjectMetadata, or "" for whole.
func as(r *http.Request) string {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return "PartialObjectMetadata"
	}
	return ""
}

// shown is an object as a client wants it.
func shown(o Object, kind string) Object {
	if kind == "" {
		return o
	}
	return Object{"apiVersion": "meta.k8s.io/v1", "kind": kind, "metadata": o["metadata"]}
}

// watch sends changes as they come, after all objects if the client asks for these first.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, at place) {
	q, send := r.URL.Query(), sender(w)
	next, _ := strconv.Atoi(q.Get("resourceVersion")) // of nothing: from the start
	s.mu.Lock()
	if q.Get("sendInitialEvents") == "true" {
		next = len(s.log)
		for _, o := range s.items(at, q, as(r)) {
			send("ADDED", o)
		}
		send("BOOKMARK", Object{"apiVersion": "v1", "kind": "Bookmark", "metadata": Object{
			"resourceVersion": strconv.Itoa(next), "annotations": Object{"k8s.io/initial-events-end": "true"},
		}})
	}
	for {
		for ; next < len(s.log); next++ {
			if e := s.log[next]; at.holds(e) && asked(e.object, q) {
				send(e.kind, shown(e.object, as(r)))
			}
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-s.closed.Done():
			return
		}
		s.mu.Lock()
	}
}

// sender sends the events of a watch.
func sender(w http.ResponseWriter) func(kind string, o Object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	to, out := json.NewEncoder(w), http.NewResponseController(w)
	return func(kind string, o Object) {
		if to.Encode(Object{"type": kind, "object": o}) == nil { // else the client is gone
			_ = out.Flush()
		}
	}
}

func answer(w http.ResponseWriter, o Object) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(o) // else the client is gone
}

// fail answers with a Status.
func fail(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(Object{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "code": code})
}
